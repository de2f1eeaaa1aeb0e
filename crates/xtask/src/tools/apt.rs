//! Packages of the distribution, and looking for programs.
//!
//! Invariant: the package lists are refreshed at most once, and only when a package is missing.
//! Nothing is upgraded or removed.

use super::place::{ToolState, atomically};
use crate::{
    problem::{OrProblem, Problem, Result},
    progress::Job,
    run,
    workspace::Workspace,
};
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

const FIX: &str = "install the packages by hand as root with apt-get, or run xtask as root";

/// Where a program is, as a shell would find it.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

pub fn check_programs(names: &[&str]) -> ToolState {
    let found: Vec<_> = names.iter().map(|name| find_program(name)).collect();
    match found.iter().all(Option::is_some) {
        true => ToolState::Present(found.into_iter().flatten().next().map_or(String::new(), shown)),
        false => ToolState::Missing,
    }
}

fn shown(path: PathBuf) -> String {
    path.display().to_string()
}

pub fn install(packages: &[&str], job: &Job) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let why = "installing packages needs root";
        return Err(Problem::new(format!("cannot install {}", packages.join(" ")), why, FIX));
    }
    static REFRESHED: OnceLock<Result<()>> = OnceLock::new();
    let refresh = || run::logged(apt_get().args(["update", "-q"]), job, FIX);
    REFRESHED.get_or_init(refresh).clone()?;
    let mut command = apt_get();
    command.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
    run::logged(&mut command, job, FIX)
}

/// nginx, unpacked next to the other tools: installed it would start a server on port 80.
pub fn nginx(workspace: &Workspace) -> PathBuf {
    workspace.tool("nginx").join("usr/sbin/nginx")
}

pub fn check_nginx(workspace: &Workspace) -> ToolState {
    let nginx = nginx(workspace);
    match run::succeeds(Command::new(&nginx).arg("-v")) {
        true => ToolState::Present(shown(nginx)),
        false => ToolState::Missing,
    }
}

pub fn install_nginx(workspace: &Workspace, job: &Job) -> Result<()> {
    const LIBRARIES: [&str; 3] = ["libpcre2-8-0", "libssl3", "zlib1g"];
    let is_there = |package: &&str| run::succeeds(Command::new("dpkg").args(["-s", package]));
    if !LIBRARIES.iter().all(is_there) {
        install(&LIBRARIES, job)?;
    }
    atomically(&workspace.tool("nginx"), |folder| download(folder, "nginx", ".", job))
}

/// Caddy, one program that needs nothing else; its package would start a server.
pub fn caddy(workspace: &Workspace) -> PathBuf {
    workspace.tool("caddy").join("usr/bin/caddy")
}

pub fn check_caddy(workspace: &Workspace) -> ToolState {
    let caddy = caddy(workspace);
    match run::succeeds(Command::new(&caddy).arg("version")) {
        true => ToolState::Present(shown(caddy)),
        false => ToolState::Missing,
    }
}

pub fn install_caddy(workspace: &Workspace, job: &Job) -> Result<()> {
    let file = "./usr/bin/caddy";
    atomically(&workspace.tool("caddy"), |folder| download(folder, "caddy", file, job))
}

/// Redis, unpacked next to the other tools: installed it would start a server on port 6379.
pub fn redis(workspace: &Workspace) -> PathBuf {
    workspace.tool("redis").join("usr/bin/redis-server")
}

pub fn check_redis(workspace: &Workspace) -> ToolState {
    let redis = redis(workspace);
    match run::succeeds(Command::new(&redis).arg("--version")) {
        true => ToolState::Present(shown(redis)),
        false => ToolState::Missing,
    }
}

pub fn install_redis(workspace: &Workspace, job: &Job) -> Result<()> {
    const LIBRARIES: [&str; 4] = ["libatomic1", "libjemalloc2", "liblzf1", "libssl3"];
    let is_there = |package: &&str| run::succeeds(Command::new("dpkg").args(["-s", package]));
    if !LIBRARIES.iter().all(is_there) {
        install(&LIBRARIES, job)?;
    }
    // One program, whose role depends on its name: the packages of server and sentinel are links to
    // it.
    atomically(&workspace.tool("redis"), |folder| {
        download(folder, "redis-tools", ".", job)?;
        let link = |name: &str| {
            std::os::unix::fs::symlink("redis-check-rdb", folder.join("usr/bin").join(name))
        };
        let linked = ["redis-server", "redis-sentinel"].into_iter().try_for_each(link);
        linked.or_problem("cannot link the program", "free disk space")
    })
}

/// Prometheus, which needs nothing else; its package, installed, would start a server.
pub fn prometheus(workspace: &Workspace) -> PathBuf {
    workspace.tool("prometheus").join("usr/bin/prometheus")
}

/// Its checker of metrics, rules and queries.
pub fn promtool(workspace: &Workspace) -> PathBuf {
    workspace.tool("prometheus").join("usr/bin/promtool")
}

pub fn check_prometheus(workspace: &Workspace) -> ToolState {
    let programs = [prometheus(workspace), promtool(workspace)];
    let runs = |program: &PathBuf| run::succeeds(Command::new(program).arg("--version"));
    match programs.iter().all(runs) {
        true => ToolState::Present(shown(prometheus(workspace))),
        false => ToolState::Missing,
    }
}

pub fn install_prometheus(workspace: &Workspace, job: &Job) -> Result<()> {
    let files = "./usr/bin/prometheus ./usr/bin/promtool";
    atomically(&workspace.tool("prometheus"), |folder| download(folder, "prometheus", files, job))
}

/// A registry of images, one program that needs nothing else; its package would start a server.
pub fn registry(workspace: &Workspace) -> PathBuf {
    workspace.tool("docker-registry").join("usr/bin/docker-registry")
}

pub fn check_registry(workspace: &Workspace) -> ToolState {
    let registry = registry(workspace);
    match run::succeeds(Command::new(&registry).arg("--version")) {
        true => ToolState::Present(shown(registry)),
        false => ToolState::Missing,
    }
}

pub fn install_registry(workspace: &Workspace, job: &Job) -> Result<()> {
    let (package, file) = ("docker-registry", "./usr/bin/docker-registry");
    atomically(&workspace.tool(package), |folder| download(folder, package, file, job))
}

/// Unpacks `files` of a package, or all of it (`.`), into `folder`; nothing is installed.
fn download(folder: &Path, package: &str, files: &str, job: &Job) -> Result<()> {
    let mut refresh = apt_get();
    refresh.args(["update", "-q"]);
    let mut download = apt_get();
    download.current_dir(folder).args(["download", "-q", package]);
    if run::logged(&mut download, job, FIX).is_err() {
        run::logged(&mut refresh, job, FIX)?;
        run::logged(&mut download, job, FIX)?;
    }
    let mut unpack = Command::new("sh");
    let script = format!(
        "dpkg --fsys-tarfile {package}_*.deb > all.tar && tar -xf all.tar {files} && rm all.tar {package}_*.deb"
    );
    unpack.current_dir(folder).args(["-c", &script]);
    run::logged(&mut unpack, job, FIX)
}

/// apt-get that waits for another apt-get and asks no questions.
pub fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]);
    command
}

/// The mirror and release this machine installs Debian from, taken from apt itself.
pub fn debian_mirror() -> Result<(String, String)> {
    let release = os_release("VERSION_CODENAME");
    let format = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(CREATED_BY)";
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", format]);
    let targets = run::output(&mut command, "check /etc/apt/sources.list.d")?;
    find_mirror(&targets, &release).map(|mirror| (mirror, release.clone())).ok_or_else(|| {
        let why = format!("no apt source offers the component main of {release:?}");
        Problem::new("cannot find the source of packages", why, "run this on Debian")
    })
}

fn find_mirror(targets: &str, release: &str) -> Option<String> {
    let rows = targets.lines().map(|line| line.split('|').collect::<Vec<_>>());
    let mut hits = rows.filter(|row| row[1..].starts_with(&[release, "main", "Packages"]));
    hits.next().map(|row| row[0].to_owned())
}

fn os_release(key: &str) -> String {
    let text = std::fs::read_to_string(Path::new("/etc/os-release")).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_of_this_release() {
        let targets = "http://a.test/|next|main|Packages\nhttp://b.test/|now|main|DEP-11\n\
                       http://c.test/|now|main|Packages\n";
        assert_eq!(find_mirror(targets, "now").as_deref(), Some("http://c.test/"));
        assert_eq!(find_mirror(targets, "other"), None);
    }

    #[test]
    fn programs_are_found_or_missing() {
        assert!(matches!(check_programs(&["sh"]), ToolState::Present(_)));
        assert_eq!(check_programs(&["sh", "no-such-program-anywhere"]), ToolState::Missing);
    }
}
