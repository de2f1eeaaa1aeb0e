//! Where text goes.
//!
//! Invariant: a reader that leaves early (`tollgate schema | head`) is no error and no panic.

use std::io::Write as _;

use serde::Serialize;

/// Writes `text` to the standard output.
pub(crate) fn out(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Writes `text` to the standard error.
pub(crate) fn err(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes `report` to the standard output as indented JSON.
pub(crate) fn json(report: &impl Serialize) {
    let text = serde_json::to_string_pretty(report).unwrap_or_default();
    out(&format!("{text}\n"));
}
