//! Packages of Python that only tests use, each tool in a folder of its own.
//!
//! Invariant: a tool and all its dependencies have the versions in its list in crates/xtask/python,
//! which is stored next to them and compared. Nothing of it is shipped, and nothing is compiled.

use super::{apt, place::made_from};
use crate::{files, problem::Result, progress::Job, run, workspace::Workspace};
use std::{path::PathBuf, process::Command};

const LISTS: &str = "crates/xtask/python";
const KEPT: &str = "requirements.txt";
const FIX: &str = "see whether pip reaches its index, then run again";

/// One tool: the name of its folder, and that of its list.
#[derive(Debug, Clone, Copy)]
pub struct Packages {
    folder: &'static str,
    list: &'static str,
}

/// Makes requests of the OpenAPI document and compares the answers.
pub const SCHEMATHESIS: Packages = Packages { folder: "schemathesis", list: "requirements.txt" };

/// The schemas of all kinds of objects that Kubernetes knows, and a reader of GitHub's workflows.
pub const MANIFESTS: Packages = Packages { folder: "manifests", list: "manifests.txt" };

/// A limiter to compare with.
pub const LIMITS: Packages = Packages { folder: "limits", list: "limits.txt" };

/// Has the schema of lists of parts.
pub const CYCLONEDX: Packages = Packages { folder: "cyclonedx", list: "cyclonedx.txt" };

impl Packages {
    /// Python, which finds them.
    pub fn python(self, workspace: &Workspace) -> Command {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", self.path(workspace));
        python
    }

    pub fn path(self, workspace: &Workspace) -> PathBuf {
        workspace.tool(self.folder)
    }

    fn list(self, workspace: &Workspace) -> PathBuf {
        workspace.root.join(LISTS).join(self.list)
    }

    pub fn check(self, workspace: &Workspace) -> Option<String> {
        made_from(&self.path(workspace), KEPT, &self.list(workspace))
    }

    pub fn install(self, workspace: &Workspace, job: &Job) -> Result<()> {
        let list = self.list(workspace);
        let mut install = pip(job)?;
        files::atomically(&self.path(workspace), |folder| {
            install.args(["install", "--no-deps", "--only-binary", ":all:", "--target"]);
            install.arg(folder).arg("-r").arg(&list);
            run::logged(&mut install, job, FIX)?;
            files::copy(&list, folder.join(KEPT))
        })
    }
}

/// pip, which is installed where it is missing.
pub fn pip(job: &Job) -> Result<Command> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip"]);
    if !run::succeeds(Command::new("python3").args(["-m", "pip", "--version"])) {
        apt::install(&["python3-pip"], job)?;
    }
    Ok(pip)
}
