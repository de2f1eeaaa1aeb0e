//! The problems of a document: every mistake at once, each with its path.
//!
//! Invariant: a message is one line, lower case, without a full stop, and names the valid values:
//! `rules[2].quotas[0].window: "0s" is too short; use 1ms to 366d`. It never contains the whole
//! document. A place consists of names that this crate knows and of numbers, so it reveals none of
//! the document's values, among which a secret may be misplaced.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// One mistake in a policy document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path: `rules[2].quotas[0].window`; empty for the document itself.
    pub path: String,
    /// The public form of the path: `*` replaces a name that the document chose, such as a
    /// header's.
    pub place: String,
    /// The mistake and the valid values. It repeats the document's value, which may be a misplaced
    /// secret.
    pub message: String,
}

impl Problem {
    /// A problem at a path whose names are not secret.
    #[must_use]
    pub fn new(path: &str, message: String) -> Self {
        Self { path: path.into(), place: path.into(), message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// Every mistake in a policy document, in its order; never empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl core::error::Error for Problems {}
