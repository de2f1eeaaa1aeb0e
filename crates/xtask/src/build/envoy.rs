//! The filter: compiled, freed of exports it does not use, optimised.
//!
//! Invariant: every callback that is exported costs CPU on every request, so the shipped module
//! exports `KEPT_EXPORTS` and nothing else; a name that is missing fails the build.

use super::exports;
use crate::{
    env,
    problem::{OrProblem, Problem, Result},
    run, tools,
    tools::node,
    versions::WASM_TARGET,
    workspace::Workspace,
};
use std::{fs, path::Path, process::Command};

/// What Envoy may call. Change this when the filter starts or stops using a callback.
pub const KEPT_EXPORTS: &[&str] = &[
    "memory",
    "malloc", // the host asks for room for the bytes it returns
    "proxy_abi_version_0_2_1",
    "_initialize",
    "proxy_on_context_create",
    "proxy_on_vm_start",
    "proxy_on_configure",
    "proxy_on_request_headers",
    "proxy_on_response_headers",
    "proxy_on_done",
    "proxy_on_log",
    "proxy_on_delete",
];

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
    strip(&linked, &stripped)?;
    let named = workspace.out.join("tollgate-envoy.names.wasm");
    optimise(workspace, &stripped, &named, &["-g"])?;
    optimise(workspace, &stripped, &workspace.envoy_wasm(), &["--strip-producers"])?;
    super::print_sizes(workspace, &workspace.envoy_wasm())?;
    super::print_sizes(workspace, &named)
}

fn strip(linked: &Path, stripped: &Path) -> Result<()> {
    let fix = "build again";
    let module = fs::read(linked).or_problem("cannot read the linked filter", fix)?;
    let kept = exports::keep_only(&module, KEPT_EXPORTS).map_err(|why| {
        let fix = "change KEPT_EXPORTS in crates/xtask/src/build/envoy.rs, or the filter";
        Problem::new("the filter does not export what it must", why, fix)
    })?;
    fs::write(stripped, kept).or_problem("cannot write the stripped filter", fix)
}

fn optimise(workspace: &Workspace, from: &Path, to: &Path, extra: &[&str]) -> Result<()> {
    let partial = to.with_extension("partial");
    let mut command = Command::new(node::bin(workspace).join("wasm-opt"));
    command.args(WASM_OPT).args(extra).arg(from).arg("-o").arg(&partial);
    run::output(env::with_tools(workspace, &mut command), "see what wasm-opt says")?;
    fs::rename(&partial, to).or_problem("cannot move the filter into place", "free disk space")
}
