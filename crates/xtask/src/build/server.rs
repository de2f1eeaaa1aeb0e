//! The native programs: `tollgate-server`, and for a release the command line.

use crate::{
    problem::Result,
    run::{self, Runner},
    workspace::Workspace,
};

/// A program as end-to-end tests and benches run it: optimised, and quick to build. Each is built
/// alone: cargo unites the features of two programs that are built at once.
pub fn build(workspace: &Workspace, package: &str) -> Result<()> {
    compile(workspace, package, &run::shown)
}

/// The same for `up`, next to other jobs.
pub fn compile(workspace: &Workspace, package: &str, run: Runner) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "-p", package, "--profile", "release-test"]);
    run(&mut command, &format!("correct crates/{package}"))
}
