//! A line that says how far a long command is, on a terminal's standard error.
//!
//! Invariant: nobody but a person at a terminal ever sees it, and it is gone before anything else
//! is written. Numbers of ours only: no text of a log or a policy stands in it.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Often enough to be alive, seldom enough to be read.
const EVERY: Duration = Duration::from_millis(200);

/// The line.
#[derive(Debug)]
pub(crate) struct Live {
    /// When it was written last; `None` where there is no terminal.
    last: Option<Instant>,
    is_shown: bool,
}

impl Live {
    /// Nothing is shown yet.
    pub(crate) fn new() -> Self {
        let last = std::io::stderr().is_terminal().then(Instant::now);
        Self { last, is_shown: false }
    }

    /// Shows what `words` say, unless something was shown a moment ago.
    pub(crate) fn say(&mut self, words: impl FnOnce() -> String) {
        if self.last.is_some_and(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            self.is_shown = true;
            // When it cannot be written, nobody is told.
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
