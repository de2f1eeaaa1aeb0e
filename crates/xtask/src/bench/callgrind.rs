//! Instructions that a program executes, the same in every run however busy the machine is.
//! Another processor changes them a little, because the C library chooses how it copies bytes by
//! what the processor can: 1,175 to 1,185 for one decision of the policy layer.
//!
//! Invariant: instructions executed once, before and after the measured part, cancel: the program
//! runs with two counts, and the difference is taken.

use crate::{
    problem::{Problem, Result},
    run,
};
use std::{path::Path, process::Command};

/// Instructions of one of the operations that `program` does a given number of times; `arguments`
/// contains the number's position.
pub fn each(
    program: &Path,
    (fewer, more): (u64, u64),
    arguments: impl Fn(String) -> Vec<String>,
) -> Result<f64> {
    let count = |number: u64| all(program, &arguments(number.to_string()));
    Ok((count(more)? as f64 - count(fewer)? as f64) / (more - fewer) as f64)
}

/// Fails when a ceiling is exceeded: a line for each.
pub fn within(what: &str, exceeded: &[String]) -> Result<()> {
    if cfg!(not(target_arch = "x86_64")) {
        let why = "the ceilings are instructions of x86-64";
        return Err(Problem::new("cannot compare", why, "run this on an x86-64 machine"));
    }
    let fix = "see what is hot by callgrind_annotate; a ceiling is raised only for a reason";
    match exceeded {
        [] => Ok(()),
        _ => Err(Problem::new(what, exceeded.join("\n"), fix)),
    }
}

fn all(program: &Path, arguments: &[String]) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let (status, _, said) = run::captured(command.args(arguments))?;
    let why = format!("{} said:\n{said}", run::line_of(&command));
    let counted = collected(&said).filter(|_| status.success());
    counted.ok_or_else(|| Problem::new("callgrind counted nothing", why, "see above"))
}

/// The line `==7== Collected : 12345`.
fn collected(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_callgrind_counted() {
        let said = "==7== Events    : Ir\n==7== Collected : 1296183\n==7==\n";
        assert_eq!(collected(said), Some(1_296_183));
        assert_eq!(collected("==7== died\n"), None);
    }
}
