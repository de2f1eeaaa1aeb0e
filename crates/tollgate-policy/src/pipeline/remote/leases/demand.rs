//! How much a node wants of a quota set: counted in seconds, of which the busier of the last two
//! counts.
//!
//! Invariant: seconds in which nothing was wanted are not remembered. Deliberately absent: what is
//! asked for because of it.

use tollgate_core::{Span, Timestamp};

const PERIOD: Span = Span::from_secs(1);

/// Units that were wanted, whatever became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) from: Timestamp,
    pub(crate) now: u64,
    pub(crate) before: u64,
}

impl Demand {
    pub(crate) fn note(&mut self, now: Timestamp, cost: u64) {
        self.roll(now);
        self.now = self.now.saturating_add(cost);
    }

    /// Begins another period when this one is over; what was before a pause says nothing.
    fn roll(&mut self, now: Timestamp) {
        let since = now.since(self.from);
        if since >= PERIOD {
            let before = if since < PERIOD.saturating_mul(2) { self.now } else { 0 };
            *self = Self { from: now, now: 0, before };
        }
    }

    /// The units of the current second.
    pub(crate) fn this_second(&mut self, now: Timestamp) -> u64 {
        self.roll(now);
        self.now
    }

    /// What a span of `life` is to use, rounded up.
    pub(crate) fn within(&mut self, now: Timestamp, life: Span) -> u64 {
        self.roll(now);
        let (most, life) = (u128::from(self.now.max(self.before)), u128::from(life.as_nanos()));
        let units = most.saturating_mul(life).div_ceil(u128::from(PERIOD.as_nanos()));
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}
