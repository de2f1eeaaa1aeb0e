//! The progress line of a long command, on a terminal's standard error.
//!
//! Invariant: nothing is written where the standard error is not a terminal, and at most five times
//! per second; the line is erased before anything else is written. It contains only Tollgate's own
//! numbers: no text of a log or a policy.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Often enough to look alive, seldom enough to be read.
const EVERY: Duration = Duration::from_millis(200);
/// Erases the line (ECMA-48, EL).
const ERASE: &str = "\r\u{1b}[2K";

/// The line.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    /// The time of the last write; `None` where there is no terminal.
    last: Option<Instant>,
    is_shown: bool,
}

impl ProgressLine {
    /// An empty line: nothing is shown yet.
    pub(crate) fn new() -> Self {
        let last = std::io::stderr().is_terminal().then(Instant::now);
        Self { last, is_shown: false }
    }

    /// Shows `text`, unless something was shown within the last [`EVERY`].
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        if self.last.is_some_and(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            self.is_shown = true;
            write(&format!("{ERASE}{}", text()));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_shown {
            write(ERASE);
        }
    }
}

/// A failed write is ignored: there is no other output to report it on.
fn write(text: &str) {
    let mut stream = std::io::stderr().lock();
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}
