//! Runs tests of `tests/e2e`, which are clients of real servers.
//!
//! Invariant: what they depend on is optimised, and each gets the paths of all servers.

use super::second_try::{self, Tests};
use crate::{
    env, metadata,
    problem::{Problem, Result},
    run,
    tools::envoy::{CURRENT, Release},
    workspace::Workspace,
};
use std::{ffi::OsStr, process::Command};

const E2E: &str = "tollgate-e2e";
/// A third of their time such tests wait: for an event, a window, a clock of the platform.
const AT_ONCE: &str = "3";

/// The target of Envoys that lease from a server.
pub(super) const FLEET_LEASES: &str = "fleet_leases";
/// Tests of processes that share one budget, among them the Envoys that follow a server.
pub(super) const FLEET_PROCESSES: &str = "fleet_processes";

/// These tests of the targets that are wanted.
pub(super) fn e2e(
    workspace: &Workspace,
    wanted: impl Fn(&str) -> bool,
    tests: Tests,
) -> Result<()> {
    let packages = metadata::packages(workspace)?;
    let ours = packages.into_iter().filter(|package| package.name == E2E);
    let targets: Vec<String> =
        ours.flat_map(|package| package.tests).filter(|target| wanted(target)).collect();
    if targets.is_empty() {
        let why = "tests/Cargo.toml has no test target for this step";
        return Err(Problem::new(
            "nothing was tested",
            why,
            "add the [[test]] to tests/Cargo.toml",
        ));
    }
    second_try::run(workspace, tests, || tests_of(workspace, CURRENT, &targets))
}

/// The end-to-end tests of these targets, with this Envoy.
pub(super) fn tests_of<T: AsRef<OsStr>>(ws: &Workspace, envoy: Release, targets: &[T]) -> Command {
    // What these tests depend on is optimised: they compare with thousands of decisions, and run
    // the filter in an interpreter.
    let mut command = ws.cargo();
    command.args(["test", "-p", E2E, "--profile", "release-test"]);
    targets.iter().for_each(|target| {
        command.arg("--test").arg(target);
    });
    command.env("RUST_TEST_THREADS", AT_ONCE);
    env::for_tests(ws, envoy, &mut command);
    command
}

/// The clock that tests preload into Envoy and Redis.
pub(super) fn build_clock(workspace: &Workspace) -> Result<()> {
    let mut clock = workspace.cargo();
    clock.args(["build", "-p", "tollgate-clock"]);
    run::shown(clock.args(["--profile", "release-test"]), "correct tests/clock")
}
