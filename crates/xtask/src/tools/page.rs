//! The packages bundled with the playground's page, and the ones that test it in a browser.
//!
//! Invariant: `dependencies` of its package.json may be shipped, and NOTICE names them;
//! `devDependencies` only test. The bundler itself is `node.rs`.

use super::{npm::Packages, place::ToolState};
use crate::{problem::Result, progress::Job, workspace::Workspace};
use std::path::PathBuf;

const PACKAGES: Packages =
    Packages { name: "page", committed: "crates/xtask/page", marker: "playwright-core/index.mjs" };

/// Where a bundler and a test find packages by their names.
pub fn modules(workspace: &Workspace) -> PathBuf {
    PACKAGES.modules(workspace)
}

pub fn check(workspace: &Workspace) -> ToolState {
    PACKAGES.check(workspace)
}

pub fn install(workspace: &Workspace, job: &Job) -> Result<()> {
    PACKAGES.install(workspace, job)
}
