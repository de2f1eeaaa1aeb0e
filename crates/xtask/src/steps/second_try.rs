//! Tests with real servers that fail once: tried again, alone, and named at the end of the run.
//!
//! A machine that stands still for a while, or a disk that does, fails one test of hundreds, and
//! the other forty minutes would be for nothing. Invariant: what fails twice has failed, and so has
//! a step in which more than [`FEW`] fail; who passes at the second try is told by name, with what
//! the first one said above it, and is to be mended like any other.

use crate::{
    problem::{OrProblem, Problem, Result},
    run,
    workspace::Workspace,
};
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::Command,
};

/// More failures than these are no accident.
const FEW: usize = 3;

const FIX: &str = "read the failed test";
const PASSED: &str = " ... ok";
const FAILED: &str = " ... FAILED";

/// Runs the tests of `command`, which ends before its `--`: those that are named, or all. Those
/// that failed are run once more.
pub fn run(ws: &Workspace, wanted: &[&str], command: impl Fn() -> Command) -> Result<()> {
    // All files of tests, also behind one that fails.
    let mut first = command();
    first.arg("--no-fail-fast");
    if !wanted.is_empty() {
        first.args(["--", "--exact"]).args(wanted);
    }
    let (result, ended) = ended(&mut first)?;
    if let Some(lost) = wanted.iter().find(|name| !ended.iter().any(|(it, _)| it == *name)) {
        result?;
        let fix = "name the test that took its place";
        return Err(Problem::new("a test did not run", format!("there is no {lost}"), fix));
    }
    let names: Vec<String> =
        ended.into_iter().filter(|(_, passed)| !passed).map(|(name, _)| name).collect();
    if result.is_ok() || names.is_empty() || names.len() > FEW {
        return result;
    }
    println!("\n=== tried once more, alone: {}", names.join(", "));
    let mut second = command();
    second.args(["--", "--exact", "--test-threads", "1"]).args(&names);
    let (again, ended) = self::ended(&mut second)?;
    again?;
    if names.iter().any(|name| !ended.contains(&(name.clone(), true))) {
        return result; // one of them was not found by its name
    }
    note(ws, &names).or_problem("cannot note a second try", "free disk space")
}

/// A test that ended, and whether it passed.
type Ended = (String, bool);

/// Runs tests; how that went, and which of them ended.
fn ended(command: &mut Command) -> Result<(Result<()>, Vec<Ended>)> {
    let (result, lines) = run::watched(command, |line| name_of(line).is_some(), FIX)?;
    Ok((result, lines.iter().filter_map(|line| name_of(line)).collect()))
}

fn note(workspace: &Workspace, names: &[String]) -> io::Result<()> {
    let mut file = fs::File::options().create(true).append(true).open(names_of(workspace))?;
    names.iter().try_for_each(|name| writeln!(file, "{name}"))
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

/// Of the line `test worker::is_exact ... ok`, also behind what another test has printed; with
/// whether it passed.
fn name_of(line: &str) -> Option<(String, bool)> {
    let ended = |way, passed| Some((line.strip_suffix(way)?.rsplit_once("test ")?.1, passed));
    let (name, passed) = ended(PASSED, true).or_else(|| ended(FAILED, false))?;
    Some((name.to_owned(), passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_who_failed() {
        let of = |line| name_of(line);
        assert_eq!(
            of("test worker::is_exact ... FAILED"),
            Some(("worker::is_exact".into(), false))
        );
        assert_eq!(of("test worker::is_exact ... ok"), Some(("worker::is_exact".into(), true)));
        assert_eq!(of("test result: FAILED. 5 passed; 1 failed"), None);
    }
}
