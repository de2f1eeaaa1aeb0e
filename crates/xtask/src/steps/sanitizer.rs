//! The dynamic module's tests with several threads under ThreadSanitizer, of the nightly compiler.
//!
//! Invariant: the standard library is built for it too, because locks that it does not see would be
//! reported as races. A race that is planted must be found. Not here: the wasm modules, of which
//! each has one thread.

use crate::{
    problem::{Problem, Result},
    run,
    tools::cargo_tools,
    workspace::Workspace,
};
use std::process::Command;

/// It has no prebuilt standard library for the target with this sanitizer.
const BUILD: [&str; 3] = ["test", "-Zbuild-std", "--target=x86_64-unknown-linux-gnu"];
const TESTS: [&str; 4] = ["-ptollgate-envoy-module", "--test=all", "--", "--test-threads=1"];
/// The modules of `crates/tollgate-envoy-module/tests` whose tests have several threads.
const WITH_THREADS: [&str; 2] = ["races::", "linearizable::"];
const PLANTED: &str = "races::a_planted_race";

pub fn races(workspace: &Workspace) -> Result<()> {
    run::shown(tests(workspace).args(WITH_THREADS), "the report names both accesses of the race")?;
    let (status, _, report) = run::captured(tests(workspace).args(["--ignored", PLANTED]))?;
    if status.success() || !report.contains("ThreadSanitizer: data race") {
        let fix = "see crates/xtask/src/steps/sanitizer.rs";
        return Err(Problem::new("ThreadSanitizer does not find a planted race", report, fix));
    }
    Ok(())
}

fn tests(workspace: &Workspace) -> Command {
    let mut cargo = cargo_tools::with_nightly(workspace, "cargo");
    cargo.env("CARGO_TARGET_DIR", workspace.target.join("sanitizer"));
    cargo.env("RUSTFLAGS", "-Zsanitizer=thread --cfg=tollgate_sanitized");
    cargo.env("TSAN_OPTIONS", "halt_on_error=1");
    cargo.args(BUILD).args(TESTS);
    cargo
}
