//! The steps that are cargo's: formatting, lints, tests on every target, documentation.
//!
//! Invariant: a step whose test target is gone fails. Uses plain
//! `cargo test`, because a fresh machine has nothing else.

use crate::{
    env, metadata, problem::Result, release::names::CRATES, run, versions::WASM_TARGET,
    workspace::Workspace,
};

/// The end-to-end tests need running servers and are steps of their own.
const E2E: &str = "tollgate-e2e";
/// Workspaces of their own.
const APART: [&str; 3] =
    ["tests/fuzz/Cargo.toml", "tests/peers/Cargo.toml", "crates/xtask/bindgen/Cargo.toml"];
/// Random policies and traces for which every target gives the same results.
const CASES: &str = "tollgate-cases";
/// A policy in virtual time, whose tables are the same everywhere.
const LAB: &str = "tollgate-lab";
const READ: &str = "read the failed test; its doc comment says what it guards";
/// Crates that are loaded into a proxy, a Worker or a page.
pub const SHIPPED: [&str; 15] = [
    "tollgate-core",
    "tollgate-http-syntax",
    "tollgate-storage",
    "tollgate-policy",
    "tollgate-language",
    "tollgate",
    "tollgate-lab",
    "tollgate-filter",
    "tollgate-wasm-host",
    "tollgate-envoy",
    "tollgate-proxy-wasm",
    "example-proxy-wasm-filter",
    "tollgate-service",
    "tollgate-worker",
    "tollgate-playground",
];

pub fn format(workspace: &Workspace) -> Result<()> {
    cargo(workspace, &["fmt", "--all", "--check"], "run `cargo fmt --all`")?;
    APART.iter().try_for_each(|manifest| {
        let arguments = ["fmt", "--all", "--check", "--manifest-path", manifest];
        cargo(workspace, &arguments, &format!("run `cargo fmt --all --manifest-path {manifest}`"))
    })
}

pub fn clippy_native(workspace: &Workspace) -> Result<()> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo(workspace, &arguments, "follow clippy's advice")
}

/// The contributor's loop: what a fresh clone can build with Rust alone.
pub fn clippy_default(workspace: &Workspace) -> Result<()> {
    let arguments = ["clippy", "--all-targets", "--", "-D", "warnings"];
    cargo(workspace, &arguments, "follow clippy's advice")
}

pub fn test_default(workspace: &Workspace) -> Result<()> {
    cargo(workspace, &["test", "--no-fail-fast"], READ)
}

pub fn clippy_wasm(workspace: &Workspace) -> Result<()> {
    let mut arguments = vec!["clippy", "--target", WASM_TARGET];
    SHIPPED.iter().for_each(|package| arguments.extend(["-p", package]));
    arguments.extend(["--", "-D", "warnings"]);
    cargo(workspace, &arguments, "follow clippy's advice")
}

/// Each feature alone, and none: a feature's need of another is found here, where tests unite them.
pub fn features(workspace: &Workspace) -> Result<()> {
    let fix = "add what this feature needs, or let it require the other feature in Cargo.toml";
    for package in metadata::packages(workspace)? {
        let alone = package.features.iter().map(String::as_str).chain([""]);
        for feature in alone.filter(|_| !package.features.is_empty()) {
            let only = ["--no-default-features", "--features", feature];
            let arguments = [&["clippy", "-p", &package.name, "--lib"], &only[..]].concat();
            cargo(workspace, &[&arguments[..], &["--", "-D", "warnings"]].concat(), fix)?;
        }
    }
    Ok(())
}

/// All but the random policies and traces: they run optimised, and in Node with overflow checks.
pub fn native(workspace: &Workspace) -> Result<()> {
    let but = ["--exclude", E2E, "--exclude", CASES];
    cargo(workspace, &[&["test", "--workspace", "--no-fail-fast"], &but[..]].concat(), READ)
}

/// The shipped code has no overflow checks and is optimised, so the laws of the core and the random
/// decisions must hold there too. The other tests run without optimisation alone: compiling them
/// again takes longer than they do.
///
/// All but the core, on which nothing depends with other features, are built with the end-to-end
/// tests: what both contain is then compiled once, for the server and the command line, too. Of the
/// end-to-end tests only those of their clients run here.
pub fn release_laws(workspace: &Workspace) -> Result<()> {
    let fix = "read the failed law; it passed without optimisation if the step before passed";
    let start = ["test", "--profile", "release-test", "-p"];
    cargo(workspace, &[&start[..], &["tollgate-core"]].concat(), fix)?;
    let packages = metadata::packages(workspace)?;
    let cases = packages.iter().filter(|package| package.name == CASES);
    let tests = cases.flat_map(|package| &package.tests);
    let tests = tests.flat_map(|test| ["--test", test]).collect::<Vec<_>>();
    cargo(workspace, &[&start[..], &[E2E, "--lib", "-p", CASES], &tests].concat(), fix)
}

/// For contributors to Tollgate, with private items; and as docs.rs shows it, where a link to a
/// private item leads nowhere.
pub fn docs(workspace: &Workspace) -> Result<()> {
    let published = CRATES.iter().flat_map(|package| ["-p", package]);
    let published: Vec<&str> = published.chain(["--all-features"]).collect();
    for which in [&["--workspace", "--document-private-items"][..], &published] {
        let mut command = workspace.cargo();
        command.env("RUSTDOCFLAGS", "-D warnings");
        command.args(["doc", "--no-deps"]).args(which);
        run::shown(&mut command, "correct the doc comment")?;
    }
    Ok(())
}

/// The test target that runs natively and in Node, and the one that runs in a browser.
pub fn wasm_node(workspace: &Workspace) -> Result<()> {
    wasm(workspace, "vectors")
}

pub fn wasm_browser(workspace: &Workspace) -> Result<()> {
    wasm(workspace, "vectors_browser")
}

/// The random policies and traces, after the optimised run has produced the expected results.
pub fn cases_node(workspace: &Workspace) -> Result<()> {
    wasm(workspace, "decisions")
}

pub fn cases_browser(workspace: &Workspace) -> Result<()> {
    wasm(workspace, "decisions_browser")
}

/// The golden tables of the simulator: the page shows the numbers of the command line.
pub fn tables_node(workspace: &Workspace) -> Result<()> {
    wasm(workspace, "tables")
}

/// One test target. All packages that have one are named each time, so that cargo gives what they
/// share the same features and compiles it once.
fn wasm(workspace: &Workspace, test: &str) -> Result<()> {
    let packages = ["-p", "tollgate-core", "-p", CASES, "-p", LAB];
    let arguments = [&["test", "--target", WASM_TARGET], &packages[..], &["--test", test]].concat();
    let fix = "compare with the native step of the same test; the rows are the same";
    cargo(workspace, &arguments, fix)
}

fn cargo(workspace: &Workspace, arguments: &[&str], fix: &str) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(arguments);
    run::shown(env::with_tools(workspace, &mut command), fix)
}
