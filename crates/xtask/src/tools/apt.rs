//! Packages of the distribution, and looking for programs.
//!
//! Invariant: the package lists are refreshed at most once, and only when a package is missing.
//! Nothing is upgraded or removed.

use crate::{
    files,
    problem::{Problem, Result},
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

/// The place of the first program, when all are there.
pub fn check_programs(names: &[&str]) -> Option<String> {
    let found: Option<Vec<_>> = names.iter().map(|name| find_program(name)).collect();
    found?.first().map(|path| path.display().to_string())
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

/// A package that is unpacked next to the other tools: installed it would start a server.
#[derive(Debug)]
pub struct Unpacked {
    folder: &'static str,
    pub package: &'static str,
    /// The unpacked files of the package; `.` for all.
    files: &'static str,
    /// Each must respond to `version`.
    programs: &'static [&'static str],
    version: &'static str,
    /// Installed packages that the programs need.
    libraries: &'static [&'static str],
    /// A command of the shell in the folder, at last.
    finish: &'static str,
}

pub const NGINX: Unpacked = Unpacked {
    folder: "nginx",
    package: "nginx",
    files: ".",
    programs: &["usr/sbin/nginx"],
    version: "-v",
    libraries: &["libpcre2-8-0", "libssl3", "zlib1g"],
    finish: "true",
};
pub const CADDY: Unpacked = Unpacked {
    folder: "caddy",
    package: "caddy",
    files: "./usr/bin/caddy",
    programs: &["usr/bin/caddy"],
    version: "version",
    libraries: &[],
    finish: "true",
};
/// One program, whose role depends on its name: the packages of server and sentinel are links to
/// it.
pub const REDIS: Unpacked = Unpacked {
    folder: "redis",
    package: "redis-tools",
    programs: &["usr/bin/redis-server"],
    version: "--version",
    libraries: &["libatomic1", "libjemalloc2", "liblzf1", "libssl3"],
    finish: "for name in server sentinel; do ln -s redis-check-rdb usr/bin/redis-$name; done",
    ..NGINX
};
/// With its checker of metrics, rules and queries.
pub const PROMETHEUS: Unpacked = Unpacked {
    folder: "prometheus",
    package: "prometheus",
    files: "./usr/bin/prometheus ./usr/bin/promtool",
    programs: &["usr/bin/prometheus", "usr/bin/promtool"],
    version: "--version",
    ..CADDY
};
/// A registry of images.
pub const REGISTRY: Unpacked = Unpacked {
    folder: "docker-registry",
    package: "docker-registry",
    files: "./usr/bin/docker-registry",
    programs: &["usr/bin/docker-registry"],
    version: "--version",
    ..CADDY
};

impl Unpacked {
    /// The first program.
    pub fn program(&self, workspace: &Workspace) -> PathBuf {
        self.programs(workspace).next().unwrap_or_default()
    }

    fn programs(&self, workspace: &Workspace) -> impl Iterator<Item = PathBuf> {
        let folder = workspace.tool(self.folder);
        self.programs.iter().map(move |program| folder.join(program))
    }

    pub fn check(&self, workspace: &Workspace) -> Option<String> {
        let run = self
            .programs(workspace)
            .all(|program| run::succeeds(Command::new(program).arg(self.version)));
        run.then(|| self.program(workspace).display().to_string())
    }

    pub fn install(&self, workspace: &Workspace, job: &Job) -> Result<()> {
        let is_there = |package: &&str| run::succeeds(Command::new("dpkg").args(["-s", package]));
        if !self.libraries.iter().all(is_there) {
            install(self.libraries, job)?;
        }
        files::atomically(&workspace.tool(self.folder), |folder| self.download(folder, job))
    }

    fn download(&self, folder: &Path, job: &Job) -> Result<()> {
        let Self { package, files, finish, .. } = self;
        let mut download = apt_get();
        download.current_dir(folder).args(["download", "-q", package]);
        if run::logged(&mut download, job, FIX).is_err() {
            run::logged(apt_get().args(["update", "-q"]), job, FIX)?;
            run::logged(&mut download, job, FIX)?;
        }
        let mut unpack = Command::new("sh");
        let script = format!(
            "dpkg --fsys-tarfile {package}_*.deb > all.tar && tar -xf all.tar {files} && rm all.tar {package}_*.deb && {finish}"
        );
        unpack.current_dir(folder).args(["-ec", &script]);
        run::logged(&mut unpack, job, FIX)
    }
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
        assert!(check_programs(&["sh"]).is_some());
        assert_eq!(check_programs(&["sh", "no-such-program-anywhere"]), None);
    }
}
