//! Docker and its compose plugin.
//!
//! Invariant: the plugin is unpacked into the cache and found through DOCKER_CONFIG; the machine's
//! apt sources and installed packages stay unchanged. Starting the engine is `servers::docker`.

use super::apt;
use crate::{
    files, problem::Result, progress::Job, run, versions::COMPOSE_SUITE, workspace::Workspace,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const FIX: &str = "see whether apt reaches its mirror, or install the compose plugin by hand";
const PLUGINS: &str = "usr/libexec/docker/cli-plugins";

/// The docker client, with our plugin when the machine has none.
pub fn docker(workspace: &Workspace) -> Command {
    let mut docker = Command::new("docker");
    if cached_plugin(workspace).is_file() {
        docker.env("DOCKER_CONFIG", config(workspace));
    }
    docker
}

fn config(workspace: &Workspace) -> PathBuf {
    workspace.tool("docker-config")
}

fn cached_plugin(workspace: &Workspace) -> PathBuf {
    config(workspace).join("cli-plugins/docker-compose")
}

pub fn check(workspace: &Workspace) -> Option<String> {
    let mut version = docker(workspace);
    let version = run::output(version.args(["compose", "version", "--short"]), FIX).ok()?;
    Some(version.trim().to_owned())
}

pub fn install_docker(_: &Workspace, job: &Job) -> Result<()> {
    apt::install(&["docker.io"], job)?;
    if apt::find_program("docker").is_none() {
        apt::install(&["docker-cli"], job)?; // newer Debians split the client off
    }
    Ok(())
}

pub fn install(workspace: &Workspace, job: &Job) -> Result<()> {
    let (mirror, _) = apt::debian_mirror()?;
    files::atomically(&config(workspace), |folder| {
        let scratch = folder.join("scratch");
        let lists = scratch.join("lists/partial");
        files::make_folder(&lists)?;
        let source = scratch.join("suite.sources");
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let text = format!(
            "Types: deb\nURIs: {mirror}\nSuites: {COMPOSE_SUITE}\nComponents: main\nSigned-By: {keyring}\n"
        );
        files::write(&source, text)?;
        run::logged(private_apt(&scratch).arg("update"), job, FIX)?;
        let mut download = private_apt(&scratch);
        download.current_dir(&scratch).args(["download", "docker-compose"]);
        run::logged(&mut download, job, FIX)?;
        let mut unpack = Command::new("sh");
        unpack.current_dir(&scratch).args(["-c", "dpkg -x docker-compose_*.deb root"]);
        run::logged(&mut unpack, job, FIX)?;
        let plugins = scratch.join("root").join(PLUGINS);
        files::rename(plugins, folder.join("cli-plugins"))?;
        files::remove_all(&scratch)
    })
}

/// apt-get that knows one package source and keeps its lists in `scratch`.
fn private_apt(scratch: &Path) -> Command {
    let mut command = apt::apt_get();
    let settings = [
        format!("Dir::Etc::sourcelist={}", scratch.join("suite.sources").display()),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        format!("Dir::State::lists={}", scratch.join("lists").display()),
        "Dir::Cache::pkgcache=".to_owned(),
        "Dir::Cache::srcpkgcache=".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
        "Acquire::Languages=none".to_owned(),
    ];
    for setting in &settings {
        command.args(["-o", setting]);
    }
    command.arg("-q");
    command
}
