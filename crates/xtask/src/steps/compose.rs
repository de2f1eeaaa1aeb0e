//! The compose step: `envoy/docker-compose.yaml` and `fleet/docker-compose.yaml`, unchanged,
//! through the commands of the README next to each.
//!
//! Invariant: whatever happens, the containers are removed again and our own engine is stopped.

use super::readme;
use crate::{
    build::{self, Product},
    files,
    problem::{OrProblem, Problem, Result},
    run,
    servers::{docker::Engine, must_be_free},
    workspace::Workspace,
};
use std::{path::Path, process::Command};

/// The folders, and the ports that the compose file in each publishes.
const FILES: [(&str, &[u16]); 2] = [("envoy", &[10_000]), ("fleet", &[10_001, 10_002])];

pub fn compose(workspace: &Workspace) -> Result<()> {
    if !workspace.envoy_wasm().is_file() {
        build::build(workspace, Product::Envoy)?;
    }
    build::server::build(workspace, "tollgate-server")?;
    for port in FILES.iter().flat_map(|(_, ports)| *ports) {
        must_be_free(*port, "nothing: a docker-compose.yaml publishes this one")?;
    }
    let engine = Engine::start(workspace)?;
    engine.provide_images()?;
    FILES.iter().try_for_each(|(name, _)| try_out(&engine, &workspace.root.join(name)))
}

/// All that is in `folder`, from up to down.
fn try_out(engine: &Engine, folder: &Path) -> Result<()> {
    let mut check = engine.docker();
    check.current_dir(folder).args(["compose", "config", "--quiet"]);
    let fix = format!("correct docker-compose.yaml in {}", folder.display());
    run::output(&mut check, &fix)?;
    let result = run_readme(engine, folder);
    if result.is_err() {
        let mut logs = engine.docker();
        logs.current_dir(folder).args(["compose", "logs", "--tail", "30"]);
        println!("{}", run::output(&mut logs, "see above").unwrap_or_default());
    }
    let mut down = engine.docker();
    down.current_dir(folder).args(["compose", "down", "--timeout", "2", "--volumes"]);
    let down = run::output(&mut down, "stop the containers by hand").map(drop);
    result.and(down)
}

fn run_readme(engine: &Engine, folder: &Path) -> Result<()> {
    let readme = folder.join("README.md");
    let text = files::text(&readme)?;
    let commands = readme::commands(&text);
    if commands.is_empty() {
        let fix = "show commands in ```console blocks, each after `$ `";
        let what = format!("{} shows no command", readme.display());
        return Err(Problem::new(what, "no console block", fix));
    }
    for command in commands {
        println!("  $ {}", command.line);
        let mut shell = Command::new("bash");
        shell.current_dir(folder).args(["-o", "pipefail", "-c", &command.line]);
        let (status, stdout, stderr) = run::captured(engine.with(&mut shell))?;
        let what = || format!("a command of {} failed: {}", readme.display(), command.line);
        let fix = "correct the README, the configuration or the program";
        if !status.success() {
            return Err(Problem::new(what(), format!("{status}\n{stdout}{stderr}"), fix));
        }
        readme::compare(&command.shown, &stdout).or_problem(what(), fix)?;
    }
    Ok(())
}
