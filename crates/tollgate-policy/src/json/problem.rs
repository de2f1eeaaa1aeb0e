//! What is wrong with a document: every mistake at once, each with its path.
//!
//! Invariant: a message is one line, lower case, without a full stop, and says what is allowed:
//! `rules[2].quotas[0].window: "0s" is too short; use 1ms to 366d`. Never the whole document. A
//! place is made of names that this crate knows and of numbers, so it tells nothing of the
//! document's values, among which a secret may be misplaced.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// One mistake in a policy document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `rules[2].quotas[0].window`; empty for the document itself.
    pub path: String,
    /// The same for everybody to see: `*` in place of a name that the document chose, such as a
    /// header's.
    pub place: String,
    /// What, and what is allowed. It repeats what stands there, which may be a secret that is
    /// misplaced.
    pub message: String,
}

impl Problem {
    /// A problem at a path of names that are no secret.
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
