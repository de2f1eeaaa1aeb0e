//! The filter: compiled, freed of exports it does not use, optimised.
//!
//! Invariant: every callback that is exported costs CPU on every request, so the shipped module
//! exports what `exports.txt` names and nothing else; a name that is missing fails the build.

use super::exports;
use crate::{
    env,
    problem::{OrProblem, Result},
    run, tools,
    tools::node,
    versions::WASM_TARGET,
    workspace::Workspace,
};
use std::{fs, path::Path, process::Command};

/// What Envoy may call, one name a line; kept beside the callbacks, in the filter's own sources.
const EXPORTS: &str = "crates/tollgate-envoy/src/exports.txt";

/// What rustc 1.95 uses by default. Never `--all-features`: V8 refuses what that writes.
const WASM_OPT: &[&str] = &[
    "--enable-bulk-memory",
    "--enable-bulk-memory-opt",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-mutable-globals",
    "--enable-multivalue",
    "--enable-reference-types",
    "--enable-call-indirect-overlong",
    "-O3",
];

pub fn build(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, tools::FOR_ENVOY_BUILD)?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&workspace.root);
    cargo.args(["build", "--release", "-p", "tollgate-envoy", "--target", WASM_TARGET]);
    run::shown(&mut cargo, "fix what the compiler says")?;
    let linked = workspace.target.join(WASM_TARGET).join("release/tollgate_envoy.wasm");
    let stripped = workspace.out.join("tollgate-envoy.linked.wasm");
    fs::create_dir_all(&workspace.out).or_problem("cannot create target/tollgate", "free space")?;
    strip(workspace, &linked, &stripped)?;
    let named = workspace.out.join("tollgate-envoy.names.wasm");
    optimise(workspace, &stripped, &named, &["-g"])?;
    optimise(workspace, &stripped, &workspace.envoy_wasm(), &["--strip-producers"])?;
    super::print_sizes(workspace, &workspace.envoy_wasm())?;
    super::print_sizes(workspace, &named)
}

fn strip(workspace: &Workspace, linked: &Path, stripped: &Path) -> Result<()> {
    let fix = "build again";
    let list = fs::read_to_string(workspace.root.join(EXPORTS))
        .or_problem(format!("cannot read {EXPORTS}"), "restore it with git")?;
    let names: Vec<&str> = list.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let module = fs::read(linked).or_problem("cannot read the linked filter", fix)?;
    let kept = exports::keep_only(&module, &names)
        .or_problem("the filter does not export what it must", format!("change {EXPORTS}"))?;
    fs::write(stripped, kept).or_problem("cannot write the stripped filter", fix)
}

fn optimise(workspace: &Workspace, from: &Path, to: &Path, extra: &[&str]) -> Result<()> {
    let partial = to.with_extension("partial");
    let mut command = Command::new(node::bin(workspace).join("wasm-opt"));
    command.args(WASM_OPT).args(extra).arg(from).arg("-o").arg(&partial);
    run::output(env::with_tools(workspace, &mut command), "see what wasm-opt says")?;
    fs::rename(&partial, to).or_problem("cannot move the filter into place", "free disk space")
}
