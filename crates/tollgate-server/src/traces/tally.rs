//! The number of spans that a collector took, and of those that were dropped.
//!
//! Invariant: every recorded span is counted once, when it is sent or dropped.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Tally {
    pub(super) fn add_sent(&self, count: usize) {
        add(&self.sent, count);
    }

    pub(super) fn add_dropped(&self, count: usize) {
        add(&self.dropped, count);
    }

    /// Taken, and dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }
}

fn add(to: &AtomicU64, count: usize) {
    to.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}
