//! The steps with real servers: build, validate, deploy dry, end to end, and `up` itself.
//!
//! Invariant: the end-to-end tests are `tests/`, found by the names of their targets: those with
//! "envoy" run in the Envoy step, those with "fleet" in the fleet's, all others in the workerd
//! step, so none is forgotten.

use super::{
    end_to_end::{FLEET_LEASES, build_clock, e2e, tests_of},
    envoy_modules, readme,
    second_try::{self, Tests},
};
use crate::{
    build::{self, Product},
    children::{self, Stop},
    env, files,
    problem::{OrProblem, Problem, Result},
    run,
    servers::{
        Server,
        envoy::{self, Ports},
        free_port,
        http::Request,
        log_to,
    },
    tools::{
        envoy::{CURRENT, Release},
        npm,
    },
    workspace::Workspace,
};
use std::{fs, process::Command, time::Duration};

/// Builds included.
const UP_PATIENCE: Duration = Duration::from_secs(600);

/// With the clock that tests preload into it.
pub fn build_envoy(workspace: &Workspace) -> Result<()> {
    build_clock(workspace)?;
    build::build(workspace, Product::Envoy)?;
    build::ceilings::check_filter(workspace)
}

pub fn build_module(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Module)
}

pub fn build_example(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Example)
}

pub fn build_worker(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Worker)?;
    build::ceilings::check_worker(workspace)
}

/// Envoy itself reads the shipped configuration and really configures the filter with its policy.
pub fn validate(workspace: &Workspace) -> Result<()> {
    validate_on(workspace, CURRENT)
}

/// The same on another Envoy.
pub(super) fn validate_on(workspace: &Workspace, release: Release) -> Result<()> {
    let ports = Ports { ingress: free_port()?, admin: free_port()?, origin: free_port()? };
    let config = envoy::shipped_config(workspace, ports)?;
    envoy::validate(workspace, release, "validate", &config)?;
    let origin = envoy::origin_config(workspace, ports.origin)?;
    envoy::validate(workspace, release, "validate-origin", &origin)
}

pub fn npm_package(workspace: &Workspace) -> Result<()> {
    build::npm::build(workspace)
}

pub fn dry_run(workspace: &Workspace) -> Result<()> {
    let mut command = Command::new(npm::bin(workspace).join("wrangler"));
    command.current_dir(&workspace.root).args(["deploy", "--dry-run", "--outdir"]);
    command.arg(workspace.out.join("dry-run"));
    run::shown(env::with_tools(workspace, &mut command), "correct wrangler.toml or the Worker")
}

/// Also tests that need both servers: they run after the filter was built.
pub fn e2e_workerd(workspace: &Workspace) -> Result<()> {
    let is_others = |name: &str| ["envoy", "fleet", "server"].iter().any(|it| name.contains(it));
    e2e(workspace, |name| !is_others(name), Tests::All)
}

/// All random events in real servers, instead of a quarter; and a million decisions across changes
/// of the policy, instead of the twelve thousand of every run.
pub fn decisions_deeply(workspace: &Workspace) -> Result<()> {
    build_clock(workspace)?;
    for (product, target, tests) in
        [(Product::Envoy, "envoy", &DEEP_ENVOY[..]), (Product::Worker, "worker", &DEEP_WORKER)]
    {
        build::build(workspace, product)?;
        second_try::run(workspace, Tests::Named(tests), || {
            let mut command = tests_of(workspace, CURRENT, &[target]);
            command.env("TOLLGATE_DECISIONS", "1000000").env("TOLLGATE_CASES", "416");
            command
        })?;
    }
    Ok(())
}

pub(super) const DEEP_ENVOY: [&str; 1] = ["envoy_cases_real::every_case_in_a_real_envoy"];

pub(super) const DEEP_WORKER: [&str; 2] = [
    "worker_cases::every_case_in_workerd",
    "worker_changes::every_decision_across_changes_is_the_cores",
];

/// `tollgate-server` alone.
pub fn e2e_server(workspace: &Workspace) -> Result<()> {
    build::server::build(workspace, "tollgate-server")?;
    e2e(workspace, |name| name.contains("server"), Tests::All)
}

/// Servers that share one budget in a real engine, real Envoys that share that of a server, and one
/// that follows a server.
pub fn e2e_fleet(workspace: &Workspace) -> Result<()> {
    build_clock(workspace)?;
    build::build(workspace, Product::Envoy)?;
    build::server::build(workspace, "tollgate-server")?;
    e2e(workspace, |name| name.contains("fleet"), Tests::All)?;
    envoy_modules::in_wasm(workspace, &workspace.envoy_slim_wasm(), FLEET_LEASES, &FLEET_OF_SLIM)?;
    build::build(workspace, Product::Module)?;
    envoy_modules::calls_of_module(workspace)
}

/// The same with the servers to ask compiled in addition to the policy, in the module that reads
/// nothing else.
pub(super) const FLEET_OF_SLIM: [&str; 3] = [
    "with_leases_two_proxies_admit_the_limit_and_no_more",
    "without_leases_two_proxies_admit_exactly_what_one_limiter_would",
    "without_the_authority_each_rule_says_what_becomes_of_requests",
];

/// Starts `cargo xtask up` as a person would, checks its output, stops it, checks that nothing is
/// left.
pub fn up(workspace: &Workspace) -> Result<()> {
    let fix = "run `cargo xtask up` by hand";
    let (envoy, worker) = (free_port()?, free_port()?);
    let (server, page) = (free_port()?, free_port()?);
    // Through cargo: another cargo command may have replaced this program's file meanwhile.
    let mut command = workspace.cargo();
    command.args(["xtask", "up", "--all"]);
    command.args(["--envoy-port", &envoy.to_string(), "--worker-port", &worker.to_string()]);
    command.args(["--server-port", &server.to_string(), "--playground-port", &page.to_string()]);
    let log = workspace.out.join("run/up.log");
    log_to(&mut command, &log)?;
    let running = children::spawn(&mut command, Stop::Leader(Duration::from_secs(20)))?;
    let started = Server { name: "`cargo xtask up`", port: envoy, running, log: log.clone() };
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let is_up = || said().contains("Ctrl-C stops everything");
    let started = started.wait_until(is_up, UP_PATIENCE, Duration::from_millis(200))?;
    let shown = said();
    let is_denial = |line: &&str| line.trim_end().ends_with("429");
    if shown.lines().filter(is_denial).count() != 3 {
        return Err(Problem::new("`cargo xtask up` must show one 429 of each", shown, fix));
    }
    if Request::new(page, "/").send()? != 200 {
        return Err(Problem::new("`cargo xtask up` does not serve the playground", shown, fix));
    }
    let ports = [(envoy, "10000"), (worker, "8787"), (server, "8080"), (page, "8000")];
    compare_with_readme(
        workspace,
        ports.iter().fold(shown, |text, (port, default)| {
            text.replace(&format!("127.0.0.1:{port}/"), &format!("127.0.0.1:{default}/"))
        }),
    )?;
    drop(started);
    let answers = |port| Request::new(port, "/").send().is_ok();
    if [envoy, worker, server, page].into_iter().any(answers) {
        let why = "a server still responds after `up` was stopped";
        return Err(Problem::new("a process was left behind", why, "see children.rs"));
    }
    Ok(())
}

/// The README's output of `up` must be the one that it printed.
fn compare_with_readme(workspace: &Workspace, printed: String) -> Result<()> {
    let text = files::text(workspace.root.join("README.md"))?;
    let shown = readme::commands(&text).into_iter().find(|shown| shown.line == "cargo xtask up");
    let fix = "correct the output of `cargo xtask up` in README.md";
    let shown = shown.ok_or_else(|| Problem::new("README.md is incomplete", "no `up`", fix))?;
    // A line that begins with `$ ` inside the output is indented, so it is not a separate command.
    readme::compare(&shown.shown, &printed).or_problem("README.md shows another output", fix)
}
