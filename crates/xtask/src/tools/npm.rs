//! A folder of npm packages in the cache, by `npm ci` from a committed lock file.
//!
//! Invariant: the cache contains exactly the packages of the lock file, because the lock file is
//! stored next to them and compared. Install scripts never run. Knows no package.

use super::place::{ToolState, atomically};
use crate::{
    problem::{OrProblem, Result},
    progress::Job,
    run,
    workspace::Workspace,
};
use std::{fs, path::PathBuf, process::Command};

const FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

/// Packages that one lock file names.
#[derive(Debug)]
pub struct Packages {
    /// The folder in the cache.
    pub name: &'static str,
    /// The folder with the lock file, in the repository.
    pub committed: &'static str,
    /// A file below `node_modules` that is there after a whole installation.
    pub marker: &'static str,
}

impl Packages {
    pub fn modules(&self, workspace: &Workspace) -> PathBuf {
        workspace.tool(self.name).join("node_modules")
    }

    pub fn check(&self, workspace: &Workspace) -> ToolState {
        let lock = |folder: PathBuf| fs::read(folder.join("package-lock.json")).ok();
        let there = self.modules(workspace).join(self.marker).exists();
        let wanted = lock(workspace.root.join(self.committed));
        match (lock(workspace.tool(self.name)), wanted) {
            (Some(have), Some(want)) if have == want && there => {
                ToolState::Present(workspace.tool(self.name).display().to_string())
            }
            (Some(_), _) => ToolState::Wrong("another lock file".to_owned()),
            _ => ToolState::Missing,
        }
    }

    pub fn install(&self, workspace: &Workspace, job: &Job) -> Result<()> {
        let committed = workspace.root.join(self.committed);
        atomically(&workspace.tool(self.name), |partial| {
            for file in FILES {
                let copied = fs::copy(committed.join(file), partial.join(file));
                copied.or_problem(format!("cannot copy {file} into the cache"), "restore it")?;
            }
            let mut npm = Command::new("npm");
            npm.current_dir(partial);
            npm.args(["ci", "--ignore-scripts", "--no-progress", "--loglevel=http"]);
            run::logged(&mut npm, job, "see whether npm reaches its registry, then run again")
        })
    }
}
