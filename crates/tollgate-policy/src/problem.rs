//! What is wrong with a document: every mistake at once, each with its path.
//!
//! Invariant: a message is one line, lower case, without a full stop, and says what is allowed:
//! `rules[2].quotas[0].window: "0s" is too short; use 1ms to 366d`. Never the whole document.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// One mistake in a policy document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `rules[2].quotas[0].window`; empty for the document itself.
    pub path: String,
    /// What, and what is allowed.
    pub message: String,
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
