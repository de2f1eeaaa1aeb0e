//! schemathesis, which makes requests of the OpenAPI document and compares the answers.
//!
//! Invariant: it and all that it needs are of the versions in crates/xtask/python/requirements.txt,
//! which is kept beside them and compared. Nothing of it is shipped, and nothing is compiled.

use super::{
    apt,
    place::{State, atomically},
};
use crate::{
    problem::{OrProblem, Result},
    progress::Job,
    run,
    workspace::Workspace,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const REQUIREMENTS: &str = "crates/xtask/python/requirements.txt";
const KEPT: &str = "requirements.txt";
const FIX: &str = "see whether pip reaches its index, then run again";

/// What Python finds it by.
pub fn packages(workspace: &Workspace) -> PathBuf {
    workspace.tool("schemathesis")
}

pub fn check(workspace: &Workspace) -> State {
    let folder = packages(workspace);
    let read = |file: &Path| fs::read(file).ok();
    match (read(&folder.join(KEPT)), read(&workspace.root.join(REQUIREMENTS))) {
        (Some(have), Some(want)) if have == want => State::Present(folder.display().to_string()),
        (Some(_), _) => State::Wrong("other versions".to_owned()),
        _ => State::Missing,
    }
}

pub fn install(workspace: &Workspace, job: &Job) -> Result<()> {
    let pip = || {
        let mut python = Command::new("python3");
        python.args(["-m", "pip"]);
        python
    };
    if !run::succeeds(pip().arg("--version")) {
        apt::install(&["python3-pip"], job)?;
    }
    let requirements = workspace.root.join(REQUIREMENTS);
    atomically(&packages(workspace), |folder| {
        let mut install = pip();
        install.args(["install", "--no-deps", "--only-binary", ":all:", "--target"]);
        install.arg(folder).arg("-r").arg(&requirements);
        run::logged(&mut install, job, FIX)?;
        fs::copy(&requirements, folder.join(KEPT)).map(drop).or_problem("cannot keep a list", FIX)
    })
}
