//! The dynamic module: a shared library for the machine that builds it, or for another processor.
//!
//! Invariant: it defines every hook that Envoy looks for, and asks Envoy for no function that the
//! tested versions lack; the test of its imports is Envoy's loader, which refuses an unknown one.

use crate::{
    files,
    problem::Result,
    run,
    tools::{self, cross},
    versions::AARCH64_TARGET,
    workspace::Workspace,
};
use std::{path::Path, process::Command};

/// Of the root `Cargo.toml`: panics unwind, because the module catches them.
const PROFILE: &str = "module";

/// Makes it for this machine and prints its size.
pub fn build(workspace: &Workspace) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo.arg("build");
    compile(cargo, &workspace.target, &workspace.envoy_module())
}

/// Makes it for machines with aarch64 and prints its size.
pub fn build_for_aarch64(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, tools::FOR_AARCH64_BUILD)?;
    let built = workspace.target.join(AARCH64_TARGET);
    let cargo = cross::cargo(workspace, "build");
    compile(cargo, &built, &workspace.envoy_module_for_aarch64())
}

/// Lets cargo build it below the folder `built` and copies it to `file`.
fn compile(mut cargo: Command, built: &Path, file: &Path) -> Result<()> {
    cargo.args(["-p", "tollgate-envoy-module", "--lib", "--profile", PROFILE]);
    run::shown(&mut cargo, "correct crates/tollgate-envoy-module")?;
    files::copy(built.join(PROFILE).join("libtollgate_envoy_module.so"), file)?;
    println!("{}: {} bytes", file.display(), files::bytes(file)?.len());
    Ok(())
}
