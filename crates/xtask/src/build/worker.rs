//! The Worker: compiled by worker-build and collected as the files that are deployed.
//!
//! Invariant: `target/tollgate/worker` holds `entry.mjs` and the modules it imports, as wrangler
//! uploads them. worker-build is told where every tool is and downloads nothing.

use crate::{
    env,
    problem::{OrProblem, Problem, Result},
    run, tools,
    tools::cargo_tools,
    versions::{WASM_BINDGEN, WASM_TARGET, WORKER_BUILD},
    workspace::Workspace,
};
use std::{fs, path::Path, process::Command};

/// The main module, and the policy that is bundled with it.
pub const MAIN: &str = "entry.mjs";
pub const POLICY: &str = "policy.json";
/// The main module and what it imports, relative to the crate.
pub const MODULES: [&str; 4] = [MAIN, POLICY, "build/index.js", "build/index_bg.wasm"];

pub fn build(workspace: &Workspace) -> Result<()> {
    tools::ensure(workspace, tools::FOR_WORKER_BUILD)?;
    same_wasm_bindgen(workspace)?;
    fs::create_dir_all(&workspace.out).or_problem("cannot create target/tollgate", "free space")?;
    let folder = workspace.root.join("crates/tollgate-worker");
    // The same call worker-build makes; what it links tells whether there is anything to do.
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&folder).args(["build", "--lib", "--release", "--target", WASM_TARGET]);
    run::shown(env::with_tools(workspace, &mut cargo), "fix what the compiler says")?;
    let linked = workspace.target.join(WASM_TARGET).join("release/tollgate_worker.wasm");
    let linked = fs::read(linked).or_problem("cannot read the linked Worker", "build again")?;
    let (stamp, how) = (workspace.out.join("tollgate-worker.stamp"), WORKER_BUILD);
    let made = MODULES.map(|module| folder.join(module));
    if !super::is_made(&stamp, &linked, how, &made) {
        let program = cargo_tools::worker_build_bin(workspace).join("worker-build");
        let mut command = Command::new(program);
        command.current_dir(&folder).arg("--release");
        run::shown(env::with_tools(workspace, &mut command), "fix what worker-build says")?;
        super::remember(&stamp, &linked, how)?;
    }
    MODULES.iter().try_for_each(|module| {
        let product = workspace.worker_dir().join(module);
        copy(&folder.join(module), &product)?;
        super::print_sizes(workspace, &product)
    })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let what = || format!("cannot copy {}", from.display());
    let fix = "see whether worker-build still writes this file; MODULES in xtask names them";
    fs::create_dir_all(to.parent().unwrap_or(to)).or_problem(what(), fix)?;
    fs::copy(from, to).map(drop).or_problem(what(), fix)
}

/// The command line tool and the library must be of one version, or the glue code does not fit.
fn same_wasm_bindgen(workspace: &Workspace) -> Result<()> {
    let lock = workspace.root.join("Cargo.lock");
    let text = fs::read_to_string(lock).or_problem("cannot read Cargo.lock", "commit it")?;
    let library = locked_version(&text, "wasm-bindgen").unwrap_or("none");
    if library == WASM_BINDGEN {
        return Ok(());
    }
    let why = format!("Cargo.lock has wasm-bindgen {library}, xtask installs {WASM_BINDGEN}");
    let fix = "make WASM_BINDGEN in crates/xtask/src/versions.rs and Cargo.lock equal";
    Err(Problem::new("wasm-bindgen versions differ", why, fix))
}

/// The version a lock file gives for a package.
pub fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let heading = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != heading);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_locked_version() {
        let lock = "[[package]]\nname = \"a-b\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"a\"\nversion = \"2.0.0\"\n";
        assert_eq!(locked_version(lock, "a"), Some("2.0.0"));
        assert_eq!(locked_version(lock, "c"), None);
    }
}
