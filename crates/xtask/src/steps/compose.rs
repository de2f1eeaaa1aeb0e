//! The compose step: `envoy/docker-compose.yaml`, unchanged, through the commands of its README.
//!
//! Invariant: whatever happens, the containers are removed again and our own engine is stopped.

use super::readme;
use crate::{
    build::{self, Product},
    problem::{OrProblem, Problem, Result},
    run,
    servers::{docker::Engine, must_be_free},
    workspace::Workspace,
};
use std::{fs, path::Path, process::Command};

/// The port the compose file publishes.
const PORT: u16 = 10000;

pub fn compose(workspace: &Workspace) -> Result<()> {
    if !workspace.envoy_wasm().is_file() {
        build::build(workspace, Product::Envoy)?;
    }
    must_be_free(PORT, "nothing: envoy/docker-compose.yaml publishes this one")?;
    let engine = Engine::start(workspace)?;
    engine.provide_image()?;
    let folder = workspace.root.join("envoy");
    let mut check = engine.docker();
    check.current_dir(&folder).args(["compose", "config", "--quiet"]);
    run::output(&mut check, "correct envoy/docker-compose.yaml")?;
    let result = run_readme(&engine, &folder);
    if result.is_err() {
        let mut logs = engine.docker();
        logs.current_dir(&folder).args(["compose", "logs", "--tail", "30"]);
        println!("{}", run::output(&mut logs, "see above").unwrap_or_default());
    }
    let mut down = engine.docker();
    down.current_dir(&folder).args(["compose", "down", "--timeout", "2", "--volumes"]);
    let down = run::output(&mut down, "stop the containers by hand").map(drop);
    result.and(down)
}

fn run_readme(engine: &Engine, folder: &Path) -> Result<()> {
    let text = fs::read_to_string(folder.join("README.md"))
        .or_problem("cannot read envoy/README.md", "restore it with git")?;
    let commands = readme::commands(&text);
    if commands.is_empty() {
        let fix = "show commands in ```console blocks, each after `$ `";
        return Err(Problem::new("envoy/README.md shows no command", "no console block", fix));
    }
    for command in commands {
        println!("  $ {}", command.line);
        let mut shell = Command::new("bash");
        shell.current_dir(folder).args(["-o", "pipefail", "-c", &command.line]);
        let (status, stdout, stderr) = run::captured(engine.with(&mut shell))?;
        let what = || format!("a command of envoy/README.md failed: {}", command.line);
        let fix = "correct the README, the configuration or the filter";
        if !status.success() {
            return Err(Problem::new(what(), format!("{status}\n{stdout}{stderr}"), fix));
        }
        readme::compare(&command.shown, &stdout).or_problem(what(), fix)?;
    }
    Ok(())
}
