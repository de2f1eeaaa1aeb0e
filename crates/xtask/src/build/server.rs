//! `tollgate-server`: a native program, and nothing beside it.

use crate::{
    problem::Result,
    run::{self, Runner},
    workspace::Workspace,
};
use std::process::Command;

/// As end-to-end tests and benches run it: optimised, and quick to build.
pub fn build(workspace: &Workspace) -> Result<()> {
    compile(workspace, &run::shown)
}

/// The same for `up`, beside other jobs.
pub fn compile(workspace: &Workspace, run: Runner) -> Result<()> {
    let mut command = Command::new("cargo");
    command.current_dir(&workspace.root).args(["build", "-p", "tollgate-server"]);
    run(command.args(["--profile", "release-test"]), "correct crates/tollgate-server")
}
