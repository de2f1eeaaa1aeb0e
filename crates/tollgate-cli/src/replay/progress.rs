//! The progress of reading logs, in one line.
//!
//! Invariant: only numbers of the files are shown, and no text of a log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::progress_line::ProgressLine;
use crate::words;

/// The progress of reading logs.
#[derive(Debug)]
pub(crate) struct ReadProgress {
    line: ProgressLine,
    begun: Instant,
    /// Bytes of files: read so far, and total.
    pub(crate) read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl ReadProgress {
    /// The progress through `total` bytes; `None` when the total is unknown.
    pub(crate) fn new(total: Option<u64>) -> Self {
        Self { line: ProgressLine::new(), begun: Instant::now(), read: Arc::default(), total }
    }

    /// Shows that `lines` lines were read.
    pub(crate) fn show(&mut self, lines: u64) {
        let Self { line, begun, read, total } = self;
        let read = total.map(|total| (read.load(Ordering::Relaxed), total));
        line.show(|| text(read, lines, begun.elapsed()));
    }
}

/// `37 % of 2.4 GiB, 1234567 lines, 890123 lines/s`; without the bytes read and in total where the
/// total is unknown.
fn text(read: Option<(u64, u64)>, lines: u64, elapsed: Duration) -> String {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = lines.saturating_mul(1000).checked_div(millis).unwrap_or(0);
    let part = match read {
        Some((read, total)) if total > 0 => {
            let percent = u128::from(read.min(total)).saturating_mul(100).checked_div(total.into());
            format!("{} % of {}, ", percent.unwrap_or(0), words::bytes(total))
        }
        Some(_) | None => String::new(),
    };
    format!("{part}{lines} lines, {rate} lines/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_the_share_and_the_rate() {
        let read = Some((926_000_000, 2_500_000_000));
        let line = text(read, 3_000_000, Duration::from_millis(1500));
        assert_eq!(line, "37 % of 2.4 GiB, 3000000 lines, 2000000 lines/s");
        let unknown = text(None, 10, Duration::ZERO);
        assert_eq!(unknown, "10 lines, 10000 lines/s");
    }
}
