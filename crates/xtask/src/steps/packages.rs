//! The packages to publish: each builds from its content, on the packages below it.
//!
//! Invariant: the built files are those that were packed a moment ago. `cargo package` could build
//! them, too, but keeps the first package of a version that it unpacked and builds the next ones on
//! that. Deliberately absent: the registry check that `cargo publish --dry-run` also makes, so no
//! network is needed.

use crate::{
    files,
    problem::{OrProblem, Result},
    release::{self, names::CRATES},
    run,
    versions::TOLLGATE as VERSION,
    workspace::Workspace,
};
use std::{fs::OpenOptions, io::Write, path::Path, process::Command};

const FIX: &str = "see `include` in the Cargo.toml of the package";

pub fn build(workspace: &Workspace) -> Result<()> {
    release::pack(workspace, &workspace.target)?;
    let folder = workspace.out.join("packages");
    files::make_empty(&folder)?;
    CRATES.iter().try_for_each(|package| unpack(workspace, &folder, package))?;
    CRATES.iter().try_for_each(|package| check(workspace, &folder, package))
}

fn unpack(workspace: &Workspace, folder: &Path, package: &str) -> Result<()> {
    let packed = workspace.target.join(format!("package/{package}-{VERSION}.crate"));
    let mut tar = Command::new("tar");
    // As of now: packed files are of 2006, and cargo would take what it built of others for them.
    tar.arg("-xzmf").arg(packed).arg("-C").arg(folder);
    run::output(&mut tar, "install tar")?;
    // It is below our own workspace and does not belong to it.
    let manifest = folder.join(format!("{package}-{VERSION}/Cargo.toml"));
    let mut manifest =
        OpenOptions::new().append(true).open(manifest).or_problem("not packed", FIX)?;
    manifest.write_all(b"\n[workspace]\n").or_problem("cannot unpack", "make target/ writable")
}

fn check(workspace: &Workspace, folder: &Path, package: &str) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(folder.join(format!("{package}-{VERSION}")));
    cargo.env("CARGO_TARGET_DIR", &workspace.target);
    cargo.args(["check", "--quiet", "--offline", "--all-features"]);
    let below = CRATES.iter().take_while(|other| **other != package);
    for other in below {
        let patch = format!("patch.crates-io.{other}.path='../{other}-{VERSION}'");
        cargo.args(["--config", &patch]);
    }
    run::shown(&mut cargo, FIX)
}
