//! A finding of tidy: a place and a message.
//!
//! Invariant: a finding names a line that can be opened, and contains advice.

/// One thing to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Relative to the root.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// The mistake, and the advice.
    pub message: String,
}

impl Finding {
    pub fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into() }
    }
}
