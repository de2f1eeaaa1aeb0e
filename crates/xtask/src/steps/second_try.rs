//! Tests with real servers that fail once: run again, alone, and named at the end of the run.
//!
//! A machine or a disk that pauses for a while fails one test of hundreds, and the other forty
//! minutes would be wasted. Invariant: a test that fails twice has failed, and so has a step in
//! which more than [`FEW`] fail. A test that passes the second time is reported by name, with its
//! first output above it, and has to be fixed like any other.

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

/// More failures than these are not an accident.
const FEW: usize = 3;

const FIX: &str = "read the failed test";
const PASSED: &str = " ... ok";
const FAILED: &str = " ... FAILED";

/// Tests of a command, by their full names.
#[derive(Clone, Copy)]
pub enum Tests<'a> {
    All,
    AllBut(&'a [&'a str]),
    Named(&'a [&'a str]),
}

/// Runs the tests of `command`, which ends before its `--`. Runs failed ones again.
pub fn run(ws: &Workspace, tests: Tests, command: impl Fn() -> Command) -> Result<()> {
    // All files of tests, also behind one that fails.
    let mut first = command();
    first.arg("--no-fail-fast").args(["--", "--exact"]);
    let wanted = match tests {
        Tests::All => &[][..],
        Tests::AllBut(names) => {
            first.args(names.iter().flat_map(|name| ["--skip", name]));
            &[]
        }
        Tests::Named(names) => {
            first.args(names);
            names
        }
    };
    let (result, ended) = ended(&mut first)?;
    if let Some(lost) = wanted.iter().find(|name| !ended.iter().any(|(it, _)| it == *name)) {
        result?;
        let fix = "name the test that replaces it";
        return Err(Problem::new("a test did not run", format!("there is no {lost}"), fix));
    }
    let names: Vec<String> =
        ended.into_iter().filter(|(_, passed)| !passed).map(|(name, _)| name).collect();
    if result.is_ok() || names.is_empty() || names.len() > FEW {
        return result;
    }
    println!("\n=== tried again, alone: {}", names.join(", "));
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

/// Runs tests; returns the result, and the tests that ended.
fn ended(command: &mut Command) -> Result<(Result<()>, Vec<Ended>)> {
    let (result, lines) = run::watched(command, |line| name_of(line).is_some(), FIX)?;
    Ok((result, lines.iter().filter_map(|line| name_of(line)).collect()))
}

fn note(workspace: &Workspace, names: &[String]) -> io::Result<()> {
    let mut file = fs::File::options().create(true).append(true).open(names_of(workspace))?;
    names.iter().try_for_each(|name| writeln!(file, "{name}"))
}

/// No test has run twice yet.
pub fn forget(workspace: &Workspace) {
    let _ = fs::remove_file(names_of(workspace));
}

/// The tests that passed only the second time, one name per line.
pub fn told(workspace: &Workspace) -> String {
    fs::read_to_string(names_of(workspace)).unwrap_or_default()
}

fn names_of(workspace: &Workspace) -> PathBuf {
    workspace.out.join("run/second-tries.log")
}

/// Of the line `test worker::is_exact ... ok`, also after another test's output; with whether it
/// passed.
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
