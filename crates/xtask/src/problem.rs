//! The error of every xtask command: the failure, the reason and the remedy.
//!
//! Invariant: all three parts are filled, so that the next step is clear. No error chain and no
//! back trace: xtask's reader is a person at a terminal or of a CI log.

use std::fmt::{self, Display, Formatter};

/// A failure a person can act on.
#[derive(Debug, Clone)]
pub struct Problem {
    pub what: String,
    pub why: String,
    pub fix: String,
}

pub type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    pub fn new(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), fix: fix.into() }
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let indented = self.why.trim_end().replace('\n', "\n         ");
        write!(f, "{}\n  why:   {indented}\n  to do: {}", self.what, self.fix)
    }
}

/// Turns any error into a [`Problem`]: its text becomes the "why".
pub trait OrProblem<T> {
    fn or_problem(self, what: impl Into<String>, fix: impl Into<String>) -> Result<T>;
}

impl<T, E: Display> OrProblem<T> for std::result::Result<T, E> {
    fn or_problem(self, what: impl Into<String>, fix: impl Into<String>) -> Result<T> {
        self.map_err(|error| Problem::new(what, error.to_string(), fix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_all_three_parts() {
        let problem = Problem::new("cannot start", "line one\nline two\n", "free the port");
        let expected = "cannot start\n  why:   line one\n         line two\n  to do: free the port";
        assert_eq!(problem.to_string(), expected);
    }
}
