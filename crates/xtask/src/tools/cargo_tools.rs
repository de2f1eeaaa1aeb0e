//! Tools from rustup and `cargo install`.
//!
//! Invariant: each tool has its own folder named after its version, so two versions never mix, and
//! is compiled from a lock file. Nothing is optimised: compiling a tool so takes longer than all
//! its work. The toolchain itself is never updated: rust-toolchain.toml pins it. The nightly one
//! has a rustup home of its own in the cache, so that nothing else uses it.

use super::place::present;
use crate::{files, problem::Result, progress::Job, run, versions, workspace::Workspace};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const FIX: &str = "see whether cargo reaches its registry, then run again";

pub fn check_target(workspace: &Workspace, target: &str) -> Option<String> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(&workspace.root).args(["--print", "target-libdir", "--target", target]);
    let folder = run::output(&mut rustc, FIX).unwrap_or_default();
    present(Path::new(folder.trim()))
}

pub fn install_target(workspace: &Workspace, target: &str, job: &Job) -> Result<()> {
    let mut rustup = Command::new("rustup");
    rustup.current_dir(&workspace.root).args(["target", "add", target]);
    run::logged(&mut rustup, job, "install Rust through rustup, or add the target by hand")
}

/// A tool that binds modules to JavaScript: a program of our own package in [`BINDGEN`].
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    /// Its sources; stored next to the tool and compared.
    files: &'static [&'static str],
    /// For cargo.
    extra: &'static [&'static str],
}

const BINDGEN: &str = "crates/xtask/bindgen";

pub const WORKER_BINDGEN: Program = Program {
    name: "worker-bindgen",
    files: &["Cargo.toml", "Cargo.lock", "src/worker.rs", "src/test_runner.rs"],
    extra: &[],
};
pub const TEST_RUNNER: Program = Program {
    name: "wasm-bindgen-test-runner",
    extra: &["--features", "test-runner"],
    ..WORKER_BINDGEN
};
/// Its sources are apart, so that no other one is compiled again when this one changes.
pub const PAGE_BINDGEN: Program = Program {
    name: "page-bindgen",
    files: &["Cargo.toml", "Cargo.lock", "src/bin/page-bindgen.rs"],
    extra: &[],
};

impl Program {
    fn folder(&self, workspace: &Workspace) -> PathBuf {
        workspace.tool(&format!("{}-{}", self.name, versions::WASM_BINDGEN))
    }

    /// The folder of the program, for PATH.
    pub fn bin(&self, workspace: &Workspace) -> PathBuf {
        self.folder(workspace).join("bin")
    }

    pub fn path(&self, workspace: &Workspace) -> PathBuf {
        self.bin(workspace).join(self.name)
    }

    pub fn check(&self, workspace: &Workspace) -> Option<String> {
        let made_from = fs::read(self.folder(workspace).join("sources")).ok()?;
        let is_current = self.sources(workspace).is_ok_and(|now| now == made_from);
        present(&self.path(workspace)).filter(|_| is_current)
    }

    fn sources(&self, workspace: &Workspace) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for file in self.files {
            all.extend(files::bytes(workspace.root.join(BINDGEN).join(file))?);
        }
        Ok(all)
    }

    /// All are compiled in one folder, so that the second only adds what the first lacks.
    pub fn install(&self, ws: &Workspace, job: &Job) -> Result<()> {
        files::atomically(&self.folder(ws), |folder| {
            let mut cargo = install_unoptimised(ws, folder, &ws.target.join("bindgen"));
            cargo.arg("--path").arg(ws.root.join(BINDGEN));
            cargo.args(["--bin", self.name]).args(self.extra);
            run::logged(&mut cargo, job, FIX)?;
            files::write(folder.join("sources"), self.sources(ws)?)
        })
    }
}

/// The rustup home of the nightly toolchain.
pub fn nightly(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("rust-{}", versions::NIGHTLY))
}

pub fn check_nightly(workspace: &Workspace) -> Option<String> {
    present(&nightly(workspace).join("settings.toml"))
}

pub fn install_nightly(workspace: &Workspace, job: &Job) -> Result<()> {
    files::atomically(&nightly(workspace), |folder| {
        let mut rustup = Command::new("rustup");
        rustup.current_dir(&workspace.root).env("RUSTUP_HOME", folder);
        rustup.args(["toolchain", "install", versions::NIGHTLY]);
        rustup.args(["--profile", "minimal", "--no-self-update"]);
        run::logged(&mut rustup, job, "see whether rustup reaches its server, then run again")
    })
}

/// The sources of the standard library, which a sanitizer must see too.
pub fn check_nightly_sources(workspace: &Workspace) -> Option<String> {
    let toolchains = fs::read_dir(nightly(workspace).join("toolchains")).ok()?;
    let sources = |toolchain: fs::DirEntry| toolchain.path().join("lib/rustlib/src/rust/library");
    toolchains.flatten().find_map(|toolchain| present(&sources(toolchain)))
}

pub fn install_nightly_sources(workspace: &Workspace, job: &Job) -> Result<()> {
    let mut rustup = Command::new("rustup");
    rustup.current_dir(&workspace.root).env("RUSTUP_HOME", nightly(workspace));
    rustup.args(["component", "add", "rust-src", "--toolchain", versions::NIGHTLY]);
    run::logged(&mut rustup, job, "see whether rustup reaches its server, then run again")
}

/// A program that runs with the nightly toolchain.
pub fn with_nightly(workspace: &Workspace, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("rustup");
    command.current_dir(&workspace.root).env("RUSTUP_HOME", nightly(workspace));
    command.args(["run", versions::NIGHTLY]).arg(program);
    // Variables that cargo set for this program's toolchain must not reach the other one.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    command
}

pub fn cargo_fuzz(workspace: &Workspace) -> PathBuf {
    workspace.tool(&format!("cargo-fuzz-{}", versions::CARGO_FUZZ)).join("bin/cargo-fuzz")
}

pub fn check_cargo_fuzz(workspace: &Workspace) -> Option<String> {
    present(&cargo_fuzz(workspace))
}

pub fn install_cargo_fuzz(workspace: &Workspace, job: &Job) -> Result<()> {
    let (name, version) = ("cargo-fuzz", versions::CARGO_FUZZ);
    let build = workspace.cache.join("build").join(name);
    let result = files::atomically(&workspace.tool(&format!("{name}-{version}")), |folder| {
        let mut cargo = install_unoptimised(workspace, folder, &build);
        run::logged(cargo.args([name, "--version", version]), job, FIX)
    });
    files::remove_all(&build)?;
    result
}

fn install_unoptimised(ws: &Workspace, folder: &Path, target: &Path) -> Command {
    let mut cargo = ws.cargo();
    cargo.args(["install", "--debug", "--locked", "--no-track"]);
    cargo.arg("--root").arg(folder).arg("--target-dir").arg(target);
    // The caller's settings for this workspace must not reach a tool's build; tools need no debug
    // information.
    cargo.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    cargo
}
