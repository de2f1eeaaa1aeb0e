//! The compiler that checks the types of the npm package, and the platform's own types.
//!
//! Invariant: only tools; nothing of it is shipped.

use super::{npm::Packages, place::State};
use crate::{problem::Result, progress::Job, workspace::Workspace};
use std::path::PathBuf;

const PACKAGES: Packages = Packages {
    name: "types",
    committed: "crates/xtask/types",
    marker: "@cloudflare/workers-types/index.d.ts",
};

/// The folder with `typescript` and `@cloudflare/workers-types`.
pub fn modules(workspace: &Workspace) -> PathBuf {
    PACKAGES.modules(workspace)
}

pub fn check(workspace: &Workspace) -> State {
    PACKAGES.check(workspace)
}

pub fn install(workspace: &Workspace, job: &Job) -> Result<()> {
    PACKAGES.install(workspace, job)
}
