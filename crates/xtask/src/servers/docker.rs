//! A Docker engine for the compose test: the running one, or our own with its data in the cache.
//!
//! Invariant: our own engine is stopped when this is dropped. An engine that already runs is used
//! and left alone. A stand-in is imported only where the official image is absent.

use super::{START_TIMEOUT, STOP_TIMEOUT, Server, log_to};
use crate::{
    children::{self, Stop},
    files,
    problem::{Problem, Result},
    run,
    tools::{apt, compose, envoy},
    versions::{ENVOY_IMAGE, SERVER_IMAGE, VALKEY_IMAGE},
    workspace::Workspace,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// A usable engine.
#[derive(Debug)]
pub struct Engine {
    workspace: Workspace,
    /// The address of our own engine; `None` when one was running.
    host: Option<String>,
    _own: Option<Server>,
}

impl Engine {
    pub fn start(workspace: &Workspace) -> Result<Self> {
        let workspace = workspace.clone();
        if run::succeeds(compose::docker(&workspace).arg("info").env("DOCKER_API_TIMEOUT", "5")) {
            return Ok(Self { workspace, host: None, _own: None });
        }
        if !rustix::process::geteuid().is_root() {
            let fix = "start Docker, or run this as root";
            return Err(Problem::new("no Docker engine runs", "starting one needs root", fix));
        }
        let folder = workspace.cache.join("docker");
        let host = format!("unix://{}", folder.join("docker.sock").display());
        let log = workspace.logs().join("dockerd.log");
        let mut command = Command::new("dockerd");
        command.arg("--data-root").arg(folder.join("data"));
        command.arg("--exec-root").arg(folder.join("exec"));
        command.arg("--pidfile").arg(folder.join("dockerd.pid")).args(["-H", &host]);
        log_to(&mut command, &log)?;
        let running = children::spawn(&mut command, Stop::Leader(STOP_TIMEOUT * 6))?;
        let own = Server { name: "dockerd", port: 0, running, log };
        let mut engine = Self { workspace, host: Some(host), _own: None };
        let is_up = || run::succeeds(engine.docker().arg("info"));
        let own = own.wait_until(is_up, START_TIMEOUT, Duration::from_millis(100))?;
        engine._own = Some(own);
        Ok(engine)
    }

    /// Any command, configured to use this engine and our compose plugin.
    pub fn with<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for (name, value) in compose::docker(&self.workspace).get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        if let Some(host) = &self.host {
            command.env("DOCKER_HOST", host);
        }
        command
    }

    pub fn docker(&self) -> Command {
        let mut command = Command::new("docker");
        self.with(&mut command);
        command
    }

    /// Imports stand-ins for the images that are not there.
    pub fn provide_images(&self) -> Result<()> {
        if !self.has(ENVOY_IMAGE) {
            let changes = [
                "EXPOSE 10000",
                "ENTRYPOINT [\"/docker-entrypoint.sh\"]",
                "CMD [\"envoy\",\"-c\",\"/etc/envoy/envoy.yaml\"]",
            ];
            self.import(ENVOY_IMAGE, &envoy::stand_in(&self.workspace), &changes)?;
        }
        let folder = |name: &str| self.workspace.out.join("images").join(name);
        if !self.has(VALKEY_IMAGE) {
            let redis = apt::REDIS.program(&self.workspace);
            let client = redis.with_file_name("redis-cli");
            let programs = [(redis, "/usr/bin/valkey-server"), (client, "/usr/bin/valkey-cli")];
            let root = rootfs(&folder("valkey"), &programs)?;
            self.import(VALKEY_IMAGE, &root, &["EXPOSE 6379", "WORKDIR /data"])?;
        }
        // The program that this machine has just compiled; fleet/Containerfile would compile it
        // again.
        let server = self.workspace.server();
        let programs = [(server, "/usr/local/bin/tollgate-server")];
        let root = rootfs(&folder("server"), &programs)?;
        let changes = self.server_image()?;
        let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
        self.import(SERVER_IMAGE, &root, &changes)
    }

    /// The settings of the image in fleet/Containerfile, as an import takes them.
    fn server_image(&self) -> Result<Vec<String>> {
        let file = self.workspace.root.join("fleet/Containerfile");
        let text = files::text(file)?;
        let text = text.replace("\\\n", " ");
        let last = text.rsplit("\nFROM ").next().unwrap_or_default();
        let kept = ["USER ", "ENV ", "EXPOSE ", "ENTRYPOINT "];
        let is_kept = |line: &&str| kept.iter().any(|word| line.starts_with(word));
        Ok(last.lines().filter(is_kept).map(str::to_owned).collect())
    }

    fn has(&self, image: &str) -> bool {
        run::succeeds(self.docker().args(["image", "inspect", image]))
    }

    fn import(&self, image: &str, root: &Path, changes: &[&str]) -> Result<()> {
        println!("  importing a stand-in for {image}");
        let mut import = self.docker();
        import.arg("import");
        for change in changes {
            import.args(["--change", change]);
        }
        run::output(import.arg(root).arg(image), "free disk space").map(drop)
    }
}

const PACK: &str = "free disk space, or see whether ldd and tar are there";

/// An image that stands in for one which only a registry has, as a tar file in `folder`: each
/// program of this machine at its place, with a shell and `grep` for the health checks. Only the
/// libraries that `ldd` names are included, so it is small and is made again for each test.
/// Deliberately absent: the work of an official entry point.
fn rootfs(folder: &Path, programs: &[(PathBuf, &str)]) -> Result<PathBuf> {
    let root = folder.join("root");
    files::remove_all(folder)?;
    let shells = [("/bin/bash", "/bin/bash"), ("/bin/grep", "/bin/grep")];
    let shells = shells.map(|(from, to)| (PathBuf::from(from), to));
    let mut libraries = BTreeSet::new();
    for (from, to) in programs.iter().chain(&shells) {
        files::copy(from, inside(&root, Path::new(to)))?;
        libraries.extend(linked(from)?);
    }
    for library in &libraries {
        files::copy(library, inside(&root, library))?;
    }
    ["tmp", "data", "etc"].into_iter().try_for_each(|name| files::make_folder(root.join(name)))?;
    let tar = folder.join("rootfs.tar");
    let mut pack = Command::new("tar");
    pack.arg("--create").arg("--file").arg(&tar).arg("--directory").arg(&root).arg(".");
    run::output(&mut pack, PACK)?;
    Ok(tar)
}

/// The libraries of a program, and what loads them.
fn linked(program: &Path) -> Result<Vec<PathBuf>> {
    let said = run::output(Command::new("ldd").arg(program), PACK)?;
    let paths: Vec<_> = said
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect();
    if paths.is_empty() {
        return Err(Problem::new(format!("{} has no libraries", program.display()), said, PACK));
    }
    Ok(paths)
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
