//! The progress line of a long command, on a terminal's standard error.
//!
//! Invariant: only a person at a terminal sees it, and it is gone before anything else is written.
//! It contains only Tollgate's own numbers: no text of a log or a policy.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Often enough to look alive, seldom enough to be read.
const EVERY: Duration = Duration::from_millis(200);

/// The line.
#[derive(Debug)]
pub(crate) struct Live {
    /// The time of the last write; `None` where there is no terminal.
    last: Option<Instant>,
    is_shown: bool,
}

impl Live {
    /// An empty line: nothing is shown yet.
    pub(crate) fn new() -> Self {
        let last = std::io::stderr().is_terminal().then(Instant::now);
        Self { last, is_shown: false }
    }

    /// Shows the text of `words`, unless something was shown within the last [`EVERY`].
    pub(crate) fn say(&mut self, words: impl FnOnce() -> String) {
        if self.last.is_some_and(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            self.is_shown = true;
            // A failed write is ignored: there is no other output to report it on.
            let _ = write!(std::io::stderr(), "\r\u{1b}[K{}", words());
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
