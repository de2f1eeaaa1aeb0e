//! Tests with real servers that fail once: tried again, alone, and named at the end of the run.
//!
//! A machine that stands still for a while, or a disk that does, fails one test of hundreds, and
//! the other forty minutes would be for nothing. Invariant: what fails twice has failed, and so has
//! a step in which more than [`FEW`] fail; who passes at the second try is told by name, with what
//! the first one said above it, and is to be mended like any other.

use crate::{
    env,
    problem::{OrProblem, Result},
    run,
    workspace::Workspace,
};
use std::{fs, io::Write, path::PathBuf, process::Command};

/// More failures than these are no accident.
const FEW: usize = 3;

const FIX: &str = "read the failed test";
const PASSED: &str = " ... ok";
const FAILED: &str = " ... FAILED";

/// Runs all tests of `command`, and once more those by name that failed.
pub fn run(workspace: &Workspace, command: impl Fn(&[String]) -> Command) -> Result<()> {
    // All files of tests, also behind one that fails.
    let mut all = command(&[]);
    let (result, names) = ended(workspace, all.arg("--no-fail-fast"), FAILED)?;
    if result.is_ok() || names.is_empty() || names.len() > FEW {
        return result;
    }
    println!("\n=== tried once more, alone: {}", names.join(", "));
    let (again, passed) = ended(workspace, &mut command(&names), PASSED)?;
    again?;
    if names.iter().any(|name| !passed.contains(name)) {
        return result; // one of them was not found by its name
    }
    let mut file = (fs::File::options().create(true).append(true).open(names_of(workspace)))
        .or_problem("cannot note a second try", "free disk space")?;
    names
        .iter()
        .try_for_each(|name| writeln!(file, "{name}"))
        .or_problem("cannot note a second try", "free disk space")
}

/// Runs tests; how that ended, and which of them ended in this way.
fn ended(
    workspace: &Workspace,
    command: &mut Command,
    way: &str,
) -> Result<(Result<()>, Vec<String>)> {
    let is_wanted = |line: &str| name_of(line, way).is_some();
    let (result, lines) = run::watched(env::for_tests(workspace, command), is_wanted, FIX)?;
    Ok((result, lines.iter().filter_map(|line| name_of(line, way)).collect()))
}

/// Nobody has tried twice so far.
pub fn forget(workspace: &Workspace) {
    let _ = fs::remove_file(names_of(workspace));
}

/// Who passed only at the second try, one name a line.
pub fn told(workspace: &Workspace) -> String {
    fs::read_to_string(names_of(workspace)).unwrap_or_default()
}

fn names_of(workspace: &Workspace) -> PathBuf {
    workspace.out.join("run/second-tries.log")
}

/// Of the line `test worker::is_exact ... ok`, also behind what another test has printed.
fn name_of(line: &str, way: &str) -> Option<String> {
    let name = line.strip_suffix(way)?.rsplit_once("test ")?.1;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_who_failed() {
        let name = |line| name_of(line, FAILED).unwrap_or_default();
        assert_eq!(name("test worker::is_exact ... FAILED"), "worker::is_exact");
        assert_eq!(name("test worker::is_exact ... ok"), "");
        assert_eq!(name("test result: FAILED. 5 passed; 1 failed"), "");
    }
}
