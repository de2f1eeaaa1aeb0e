//! The duration of measurements, and our measured programs.
//!
//! Invariant: an example is built as the products are built.

use crate::{problem::Result, run, workspace::Workspace};
use std::{path::PathBuf, time::Duration};

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Of load on one server in one round.
    pub seconds: u32,
    pub rounds: u32,
}

impl Effort {
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }
}

/// Builds the example `name` of `package` as it is measured, and returns its path.
pub fn example(workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--release", "-p", package, "--example", name]);
    run::shown(&mut cargo, "fix the errors of the compiler")?;
    Ok(workspace.target.join("release/examples").join(name))
}
