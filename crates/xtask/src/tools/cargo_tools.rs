//! What comes through rustup and `cargo install`.
//!
//! Invariant: each tool has its own folder named after its version, so two versions never mix. The
//! toolchain itself is never updated: rust-toolchain.toml pins it. The nightly one has a rustup home of its
//! own in the cache, so that it is nobody else's.

use super::{State, atomically, remove_all};
use crate::{problem::Result, progress::Job, run, versions, workspace::Workspace};
use std::{path::PathBuf, process::Command};

const FIX: &str = "see whether cargo reaches its registry, then run again";

pub fn check_target(workspace: &Workspace) -> State {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(&workspace.root).args(["--print", "target-libdir", "--target"]);
    let folder = run::output(rustc.arg(versions::WASM_TARGET), FIX).unwrap_or_default();
    match PathBuf::from(folder.trim()).is_dir() {
        true => State::Present(versions::WASM_TARGET.to_owned()),
        false => State::Missing,
    }
}

pub fn install_target(workspace: &Workspace, job: &Job) -> Result<()> {
    let mut rustup = Command::new("rustup");
    rustup.current_dir(&workspace.root).args(["target", "add", versions::WASM_TARGET]);
    run::logged(&mut rustup, job, "install Rust through rustup, or add the target by hand")
}

/// The folder with `wasm-bindgen` and `wasm-bindgen-test-runner`.
pub fn wasm_bindgen_bin(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("wasm-bindgen-cli-{}", versions::WASM_BINDGEN)).join("bin")
}

/// The folder with `worker-build`.
pub fn worker_build_bin(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("worker-build-{}", versions::WORKER_BUILD)).join("bin")
}

/// The folder with `cargo-fuzz`.
pub fn cargo_fuzz_bin(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("cargo-fuzz-{}", versions::CARGO_FUZZ)).join("bin")
}

/// The rustup home of the nightly toolchain.
pub fn nightly(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("rust-{}", versions::NIGHTLY))
}

pub fn check_nightly(workspace: &Workspace) -> State {
    present(nightly(workspace).join("settings.toml"))
}

pub fn install_nightly(workspace: &Workspace, job: &Job) -> Result<()> {
    atomically(&nightly(workspace), |folder| {
        let mut rustup = Command::new("rustup");
        rustup.current_dir(&workspace.root).env("RUSTUP_HOME", folder);
        rustup.args(["toolchain", "install", versions::NIGHTLY]);
        rustup.args(["--profile", "minimal", "--no-self-update"]);
        run::logged(&mut rustup, job, "see whether rustup reaches its server, then run again")
    })
}

pub fn check_cargo_fuzz(workspace: &Workspace) -> State {
    present(cargo_fuzz_bin(workspace).join("cargo-fuzz"))
}

pub fn install_cargo_fuzz(workspace: &Workspace, job: &Job) -> Result<()> {
    install(workspace, job, "cargo-fuzz", versions::CARGO_FUZZ, &["--locked"])
}

pub fn check_wasm_bindgen(workspace: &Workspace) -> State {
    present(wasm_bindgen_bin(workspace).join("wasm-bindgen-test-runner"))
}

pub fn check_worker_build(workspace: &Workspace) -> State {
    present(worker_build_bin(workspace).join("worker-build"))
}

fn present(file: PathBuf) -> State {
    if file.is_file() { State::Present(file.display().to_string()) } else { State::Missing }
}

pub fn install_wasm_bindgen(workspace: &Workspace, job: &Job) -> Result<()> {
    // Without --locked: the lock file it ships names a crate version that registries may lack.
    install(workspace, job, "wasm-bindgen-cli", versions::WASM_BINDGEN, &[])
}

pub fn install_worker_build(workspace: &Workspace, job: &Job) -> Result<()> {
    install(workspace, job, "worker-build", versions::WORKER_BUILD, &["--locked"])
}

fn install(ws: &Workspace, job: &Job, name: &str, version: &str, extra: &[&str]) -> Result<()> {
    let build = ws.cache.join("build").join(name);
    let result = atomically(&ws.tool(&format!("{name}-{version}")), |folder| {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&ws.root).args(["install", name, "--version", version]).args(extra);
        cargo.arg("--root").arg(folder).arg("--target-dir").arg(&build);
        // What the caller set for this workspace must not leak into a tool's build.
        cargo.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
        run::logged(&mut cargo, job, FIX)
    });
    remove_all(&build)?;
    result
}
