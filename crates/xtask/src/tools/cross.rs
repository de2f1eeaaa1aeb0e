//! Programs for Linux on aarch64: compiled and linked here, and run by an emulator.
//!
//! Invariant: only xtask's own processes of cargo get these settings. A machine with aarch64 would
//! take them for its own programs if they were in `.cargo/config.toml`.

use crate::{files, problem::Result, versions::AARCH64_TARGET, workspace::Workspace};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The compiler of C, which links.
pub const LINKER: &str = "aarch64-linux-gnu-gcc";
pub const EMULATOR: &str = "qemu-aarch64";
/// The libraries of C that come with the compiler.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Cargo with this command, for aarch64.
pub fn cargo(workspace: &Workspace, command: &str) -> Command {
    let mut cargo = workspace.cargo();
    cargo.args([command, "--target", AARCH64_TARGET]);
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    let runner = format!("{EMULATOR} -L {LIBRARIES}");
    cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    cargo
}

/// A program of this machine that runs `program`, of aarch64, in the emulator.
pub fn emulated(workspace: &Workspace, program: &Path) -> Result<PathBuf> {
    let script = workspace.out.join("run/emulated").join(program.file_name().unwrap_or_default());
    let text =
        format!("#!/bin/sh\nexec {EMULATOR} -L {LIBRARIES} '{}' \"$@\"\n", program.display());
    files::write(&script, text)?;
    files::set_mode(&script, 0o755)?;
    Ok(script)
}
