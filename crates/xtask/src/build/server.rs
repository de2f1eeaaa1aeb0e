//! The native programs: `tollgate-server`, and for a release the command line.

use crate::{
    problem::Result,
    run::{self, Runner},
    workspace::Workspace,
};

/// The server as end-to-end tests and benches run it: optimised, and quick to build.
pub fn build(workspace: &Workspace) -> Result<()> {
    compile(workspace, &run::shown)
}

/// The command line in the same way, in a build of its own: cargo unites the features of two
/// programs that are built at once, so the server would get those of the command line.
pub fn build_cli(workspace: &Workspace) -> Result<()> {
    compile_cli(workspace, &run::shown)
}

/// The same for `up`, next to other jobs.
pub fn compile_cli(workspace: &Workspace, run: Runner) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "-p", "tollgate-cli"]);
    run(command.args(["--profile", "release-test"]), "correct crates/tollgate-cli")
}

/// The same for `up`, next to other jobs.
pub fn compile(workspace: &Workspace, run: Runner) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "-p", "tollgate-server"]);
    run(command.args(["--profile", "release-test"]), "correct crates/tollgate-server")
}
