//! A custom policy for every surface that `up` starts.
//!
//! Invariant: the command line compiles each surface's form of it, from YAML or JSON, and reports
//! mistakes with their place; a policy that one of the surfaces rejects is tried on none.

use crate::{
    files,
    problem::{OrProblem, Result},
    run,
    workspace::Workspace,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const FIX: &str = "correct the policy";

/// A policy that every surface takes.
#[derive(Debug)]
pub struct TrialPolicy {
    pub file: PathBuf,
    /// In the Worker's form.
    pub json: String,
}

impl TrialPolicy {
    /// The policy in `file`.
    pub fn read(workspace: &Workspace, file: &Path) -> Result<Self> {
        let file = std::path::absolute(file).or_problem("cannot find the policy", FIX)?;
        for surface in ["envoy", "server"] {
            let mut check = tollgate(workspace, "check", &file);
            run::output(check.args(["--surface", surface]), FIX)?;
        }
        let mut compile = tollgate(workspace, "compile", &file);
        let json = run::output(compile.args(["--surface", "worker", "--json"]), FIX)?;
        Ok(Self { file, json })
    }

    /// The configuration of Envoy with this policy in the place of its own.
    pub fn in_envoy(&self, workspace: &Workspace, config: &str) -> Result<String> {
        let to = workspace.out.join("up/envoy.yaml");
        files::write(&to, config)?;
        let mut embed = tollgate(workspace, "embed", &self.file);
        run::output(embed.arg("--into").arg(&to), FIX)?;
        files::text(&to)
    }
}

fn tollgate(workspace: &Workspace, name: &str, policy: &Path) -> Command {
    let mut command = Command::new(workspace.cli());
    command.arg(name).arg(policy);
    command
}
