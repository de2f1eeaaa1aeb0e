//! Tools from rustup and `cargo install`.
//!
//! Invariant: each tool has its own folder named after its version, so two versions never mix, and
//! is compiled from a lock file. Nothing is optimised: compiling a tool so takes longer than all
//! its work. The toolchain itself is never updated: rust-toolchain.toml pins it. The nightly one
//! has a rustup home of its own in the cache, so that nothing else uses it.

use super::place::{ToolState, atomically, remove_all};
use crate::{
    problem::{OrProblem, Result},
    progress::Job,
    run, versions,
    workspace::Workspace,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const FIX: &str = "see whether cargo reaches its registry, then run again";

pub fn check_target(workspace: &Workspace) -> ToolState {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(&workspace.root).args(["--print", "target-libdir", "--target"]);
    let folder = run::output(rustc.arg(versions::WASM_TARGET), FIX).unwrap_or_default();
    match PathBuf::from(folder.trim()).is_dir() {
        true => ToolState::Present(versions::WASM_TARGET.to_owned()),
        false => ToolState::Missing,
    }
}

pub fn install_target(workspace: &Workspace, job: &Job) -> Result<()> {
    let mut rustup = Command::new("rustup");
    rustup.current_dir(&workspace.root).args(["target", "add", versions::WASM_TARGET]);
    run::logged(&mut rustup, job, "install Rust through rustup, or add the target by hand")
}

/// The tool that binds modules to JavaScript: a package of our own, compiled from
/// `crates/xtask/bindgen`.
const BINDGEN: &str = "crates/xtask/bindgen";
/// The sources of its programs; stored next to each tool and compared.
const BINDGEN_SOURCES: &[&str] =
    &["Cargo.toml", "Cargo.lock", "src/worker.rs", "src/test_runner.rs"];
/// Apart from the others, so that none of them is compiled again when this one changes.
const PAGE_BINDGEN_SOURCES: &[&str] = &["Cargo.toml", "Cargo.lock", "src/bin/page-bindgen.rs"];

/// The folder with `worker-bindgen`.
pub fn bindgen_bin(workspace: &Workspace) -> PathBuf {
    bindgen(workspace).join("bin")
}

/// The folder with `page-bindgen`.
pub fn page_bindgen_bin(workspace: &Workspace) -> PathBuf {
    page_bindgen(workspace).join("bin")
}

/// The folder with `wasm-bindgen-test-runner`.
pub fn test_runner_bin(workspace: &Workspace) -> PathBuf {
    test_runner(workspace).join("bin")
}

fn bindgen(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("worker-bindgen-{}", versions::WASM_BINDGEN))
}

fn page_bindgen(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("page-bindgen-{}", versions::WASM_BINDGEN))
}

fn test_runner(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("wasm-bindgen-test-runner-{}", versions::WASM_BINDGEN))
}

/// The folder with `cargo-fuzz`.
pub fn cargo_fuzz_bin(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("cargo-fuzz-{}", versions::CARGO_FUZZ)).join("bin")
}

/// The rustup home of the nightly toolchain.
pub fn nightly(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("rust-{}", versions::NIGHTLY))
}

pub fn check_nightly(workspace: &Workspace) -> ToolState {
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

pub fn check_cargo_fuzz(workspace: &Workspace) -> ToolState {
    present(cargo_fuzz_bin(workspace).join("cargo-fuzz"))
}

pub fn install_cargo_fuzz(workspace: &Workspace, job: &Job) -> Result<()> {
    install(workspace, job, "cargo-fuzz", versions::CARGO_FUZZ)
}

pub fn check_bindgen(workspace: &Workspace) -> ToolState {
    present_from_sources(workspace, &bindgen(workspace), "worker-bindgen", BINDGEN_SOURCES)
}

pub fn check_page_bindgen(workspace: &Workspace) -> ToolState {
    let folder = page_bindgen(workspace);
    present_from_sources(workspace, &folder, "page-bindgen", PAGE_BINDGEN_SOURCES)
}

pub fn check_test_runner(workspace: &Workspace) -> ToolState {
    let folder = test_runner(workspace);
    present_from_sources(workspace, &folder, "wasm-bindgen-test-runner", BINDGEN_SOURCES)
}

fn present_from_sources(ws: &Workspace, folder: &Path, program: &str, files: &[&str]) -> ToolState {
    let made_from = fs::read(folder.join("sources")).ok();
    match (present(folder.join("bin").join(program)), made_from, sources(ws, files).ok()) {
        (ToolState::Present(_), made_from, now) if made_from != now => {
            ToolState::Wrong("built from other sources".to_owned())
        }
        (state, _, _) => state,
    }
}

fn sources(workspace: &Workspace, files: &[&str]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for file in files {
        let bytes = fs::read(workspace.root.join(BINDGEN).join(file));
        all.extend(bytes.or_problem(format!("cannot read {BINDGEN}/{file}"), "restore it")?);
    }
    Ok(all)
}

fn present(file: PathBuf) -> ToolState {
    if file.is_file() { ToolState::Present(file.display().to_string()) } else { ToolState::Missing }
}

pub fn install_bindgen(workspace: &Workspace, job: &Job) -> Result<()> {
    let program = Program { name: "worker-bindgen", files: BINDGEN_SOURCES, extra: &[] };
    install_from_sources(workspace, job, &bindgen(workspace), program)
}

pub fn install_page_bindgen(workspace: &Workspace, job: &Job) -> Result<()> {
    let program = Program { name: "page-bindgen", files: PAGE_BINDGEN_SOURCES, extra: &[] };
    install_from_sources(workspace, job, &page_bindgen(workspace), program)
}

pub fn install_test_runner(workspace: &Workspace, job: &Job) -> Result<()> {
    let extra = &["--features", "test-runner"];
    let name = "wasm-bindgen-test-runner";
    let program = Program { name, files: BINDGEN_SOURCES, extra };
    install_from_sources(workspace, job, &test_runner(workspace), program)
}

/// One of the programs of [`BINDGEN`].
struct Program {
    name: &'static str,
    /// Its sources.
    files: &'static [&'static str],
    /// For cargo.
    extra: &'static [&'static str],
}

/// All are compiled in one folder, so that the second only adds what the first lacks.
fn install_from_sources(ws: &Workspace, job: &Job, folder: &Path, program: Program) -> Result<()> {
    atomically(folder, |folder| {
        let mut cargo = install_unoptimised(ws, folder, &ws.target.join("bindgen"));
        cargo.arg("--path").arg(ws.root.join(BINDGEN));
        cargo.args(["--bin", program.name]).args(program.extra);
        run::logged(&mut cargo, job, FIX)?;
        fs::write(folder.join("sources"), sources(ws, program.files)?)
            .or_problem("cannot write into the cache", "free disk space")
    })
}

fn install(ws: &Workspace, job: &Job, name: &str, version: &str) -> Result<()> {
    let build = ws.cache.join("build").join(name);
    let result = atomically(&ws.tool(&format!("{name}-{version}")), |folder| {
        let mut cargo = install_unoptimised(ws, folder, &build);
        run::logged(cargo.args([name, "--version", version]), job, FIX)
    });
    remove_all(&build)?;
    result
}

fn install_unoptimised(ws: &Workspace, folder: &Path, target: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&ws.root).args(["install", "--debug", "--locked", "--no-track"]);
    cargo.arg("--root").arg(folder).arg("--target-dir").arg(target);
    // The caller's settings for this workspace must not reach a tool's build; tools need no debug
    // information.
    cargo.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    cargo
}
