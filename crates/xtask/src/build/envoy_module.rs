//! The dynamic module: a shared library for the machine that builds it.
//!
//! Invariant: it defines every hook that Envoy looks for, and asks Envoy for no function that the
//! tested versions lack; the test of its imports is Envoy's loader, which refuses an unknown one.

use crate::{files, problem::Result, run, workspace::Workspace};

/// Of the root `Cargo.toml`: panics unwind, because the module catches them.
const PROFILE: &str = "module";

/// Makes it and prints its size.
pub fn build(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "-p", "tollgate-envoy-module", "--lib", "--profile", PROFILE]);
    run::shown(&mut command, "correct crates/tollgate-envoy-module")?;
    let file = workspace.envoy_module();
    let built = workspace.target.join(PROFILE).join("libtollgate_envoy_module.so");
    files::copy(&built, &file)?;
    println!("{}: {} bytes", file.display(), files::bytes(&file)?.len());
    Ok(())
}
