//! The compiler that checks the types of the npm package, and the platform's own types.
//!
//! Invariant: only tools; nothing of it is shipped.

use super::{Lane, Tool, npm::Packages};
use crate::workspace::Workspace;
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

pub static TOOL: Tool = Tool {
    name: "types packages",
    version: "locked",
    needed_for: "test workerd",
    by_hand: "install npm (Node 20 or newer) and see whether it reaches its registry",
    lane: Lane::Download,
    check: |workspace| PACKAGES.check(workspace),
    install: |workspace, job| PACKAGES.install(workspace, job),
};
