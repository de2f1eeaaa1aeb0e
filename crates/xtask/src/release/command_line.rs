//! The command line as packages for npm and pip, which need no Rust: the program with a name in
//! `PATH`.
//!
//! Invariant: the program in them is the one of the release. The wheel's tag names the oldest glibc
//! on which it starts, so pip refuses it on an older system. Identical files give identical bytes.

use crate::{
    build::archive::{Entry, gzip, tar},
    files,
    problem::{Problem, Result},
    run,
    versions::TOLLGATE as VERSION,
    workspace::Workspace,
};
use serde_json::json;
use std::process::Command;

/// The package's name in both registries.
const PACKAGE: &str = "tollgate-cli";
const README: &str = "crates/tollgate-cli/README.md";
const FIX: &str = "see crates/xtask/src/release/command_line.rs";

/// The name of the npm package's file.
pub fn npm_name() -> String {
    format!("{PACKAGE}-{VERSION}.tgz")
}

/// The npm package with `program`, for `npm install --global`.
pub fn npm(workspace: &Workspace, program: &[u8]) -> Result<Vec<u8>> {
    let manifest = json!({
        "name": PACKAGE,
        "version": VERSION,
        "description": "The command line of Tollgate: check, explain, simulate and replay a rate limit policy",
        "license": "Apache-2.0",
        "os": ["linux"], "cpu": ["x64"], "libc": ["glibc"],
        "bin": { "tollgate": "tollgate" },
    });
    let mut entries = vec![entry("package.json", format!("{manifest:#}\n").into_bytes())];
    entries.push(entry("tollgate", program.to_vec()));
    for text in [README, "LICENSE", "NOTICE"] {
        let name = text.rsplit('/').next().unwrap_or(text);
        entries.push(entry(name, files::bytes(workspace.root.join(text))?));
    }
    gzip(&tar(&entries)?)
}

fn entry(name: &str, bytes: Vec<u8>) -> Entry {
    Entry { name: format!("package/{name}"), bytes }
}

/// The wheel with `program`, for `pip install`: its name and its bytes.
pub fn wheel(workspace: &Workspace, program: &[u8]) -> Result<(String, Vec<u8>)> {
    let minor = glibc(program).ok_or_else(|| {
        Problem::new("cannot pack the command line", "the program names no glibc", FIX)
    })?;
    let tag = format!("py3-none-manylinux_2_{minor}_x86_64");
    let name = format!("{}-{VERSION}-{tag}.whl", PACKAGE.replace('-', "_"));
    let folder = workspace.out.join("wheel");
    let (binary, file) = (folder.join("tollgate"), folder.join(&name));
    files::write(&binary, program)?;
    let mut python = Command::new("python3");
    python.args(["-c", PACK]).arg(&file).args([PACKAGE, VERSION, &tag]).arg(&binary);
    for text in [README, "LICENSE", "NOTICE"] {
        python.arg(workspace.root.join(text));
    }
    run::output(&mut python, "read the output of Python")?;
    Ok((name, files::bytes(&file)?))
}

/// The minor version of the newest glibc 2 whose symbols `program` needs.
fn glibc(program: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"GLIBC_2.";
    let version = |rest: &[u8]| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    };
    let found = program.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    found.filter_map(|(at, _)| version(&program[at + MARK.len()..])).max()
}

/// Writes a wheel (Binary distribution format 1.0) whose only content is a program.
const PACK: &str = include_str!("wheel.py");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_that_is_needed_is_found() {
        assert_eq!(glibc(b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0"), Some(34));
        assert_eq!(glibc(b"GLIBC_PRIVATE"), None);
    }
}
