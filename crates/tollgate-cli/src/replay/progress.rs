//! The progress of reading: one line on a terminal.
//!
//! Invariant: nothing is written where the standard error is not a terminal, and at most five times
//! per second; the line is erased before the report.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(200);
/// Erases the line (ECMA-48, EL).
const ERASE: &str = "\r\u{1b}[2K";

/// The line.
#[derive(Debug)]
pub(crate) struct Progress {
    is_shown: bool,
    begun: Instant,
    last: Option<Instant>,
    /// Bytes of files: read so far, and total.
    pub(crate) read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Progress {
    /// A line for `total` bytes; `None` when the total is unknown.
    pub(crate) fn new(total: Option<u64>) -> Self {
        Self {
            is_shown: std::io::stderr().is_terminal(),
            begun: Instant::now(),
            last: None,
            read: Arc::default(),
            total,
        }
    }

    /// Shows that `lines` lines were read.
    pub(crate) fn show(&mut self, lines: u64) {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= EVERY);
        if !self.is_shown || !is_due {
            return;
        }
        self.last = Some(Instant::now());
        let text = self.text(lines, self.begun.elapsed());
        self.write(&format!("{ERASE}{text}"));
    }

    /// Erases the line.
    pub(crate) fn end(&mut self) {
        if self.is_shown && self.last.take().is_some() {
            self.write(ERASE);
        }
    }

    fn write(&self, text: &str) {
        let mut stream = std::io::stderr().lock();
        // A failed write is harmless.
        let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
    }

    /// `37 % of 1.2 GB, 1234567 lines, 890123 lines/s`.
    fn text(&self, lines: u64, elapsed: Duration) -> String {
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = lines.saturating_mul(1000).checked_div(millis).unwrap_or(0);
        let part = match self.total {
            Some(total) if total > 0 => {
                let read = self.read.load(Ordering::Relaxed).min(total);
                let percent = u128::from(read).saturating_mul(100).checked_div(total.into());
                format!("{} % of {}, ", percent.unwrap_or(0), bytes(total))
            }
            _ => String::new(),
        };
        format!("{part}{lines} lines, {rate} lines/s")
    }
}

/// `1.2 GB`, rounded down.
fn bytes(count: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let unit = units.into_iter().find(|(unit, _)| count >= *unit);
    let Some((unit, name)) = unit else { return format!("{count} B") };
    let tenths = u128::from(count).saturating_mul(10).checked_div(u128::from(unit)).unwrap_or(0);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_and_how_fast() {
        let progress = Progress::new(Some(2_500_000_000));
        progress.read.store(926_000_000, Ordering::Relaxed);
        let text = progress.text(3_000_000, Duration::from_millis(1500));
        assert_eq!(text, "37 % of 2.5 GB, 3000000 lines, 2000000 lines/s");
        let unknown = Progress::new(None).text(10, Duration::ZERO);
        assert_eq!(unknown, "10 lines, 10000 lines/s");
        assert_eq!((bytes(999), bytes(1999)), ("999 B".to_owned(), "1.9 kB".to_owned()));
    }
}
