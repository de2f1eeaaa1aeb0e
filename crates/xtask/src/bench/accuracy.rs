//! How exact each algorithm is: the tables of `docs/accuracy.md`.
//!
//! Invariant: nothing is measured here. The program of `tests/accuracy` makes the tables and
//! compares them; they are the same on every machine.

use crate::{problem::Result, run, workspace::Workspace};
use std::{path::Path, process::Command};

/// Writes the document again, after all searches; a log that is not named is `TOLLGATE_NASA_LOG`,
/// if that is set.
pub fn measure(workspace: &Workspace, log: Option<&Path>) -> Result<String> {
    let mut command = program(workspace, log)?;
    run::shown(&mut command, "read the difference; a bound that is exceeded is a bug of the core")?;
    Ok("### Accuracy\n\nWritten into docs/accuracy.md.\n".to_owned())
}

/// Fails where the committed document differs from the code's result.
pub fn check(workspace: &Workspace, log: Option<&Path>) -> Result<()> {
    let mut command = program(workspace, log)?;
    command.arg("--check");
    run::shown(&mut command, "run `cargo xtask bench accuracy` and read what changed")
}

/// Optimised, and quick to build: nothing here is timed. It is built with the command line, whose
/// features include this program's, so that what both contain is compiled once.
fn program(workspace: &Workspace, log: Option<&Path>) -> Result<Command> {
    let mut build = workspace.cargo();
    build.args(["build", "--quiet", "--profile", "release-test"]);
    build.args(["-p", "tollgate-cli", "-p", "tollgate-accuracy"]);
    run::shown(&mut build, "correct tests/accuracy")?;
    let mut command = Command::new(workspace.server().with_file_name("tollgate-accuracy"));
    command.current_dir(&workspace.root);
    if let Some(log) = log {
        command.arg("--log").arg(log);
    }
    Ok(command)
}
