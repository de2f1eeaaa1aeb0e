//! The demand of a node for units of a quota set: counted per second; the busier of the last two
//! seconds is used.
//!
//! Invariant: seconds without demand are not remembered. Deliberately absent: the leases that are
//! requested for it.

use tollgate_core::{Span, Timestamp};

const PERIOD: Span = Span::from_secs(1);

/// Requested units, whether or not they were allowed.
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

    /// Starts a new period when this one is over; demand from before a pause is dropped.
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

    /// The units needed for a span of `life`, rounded up.
    pub(crate) fn within(&mut self, now: Timestamp, life: Span) -> u64 {
        self.roll(now);
        let (most, life) = (u128::from(self.now.max(self.before)), u128::from(life.as_nanos()));
        let units = most.saturating_mul(life).div_ceil(u128::from(PERIOD.as_nanos()));
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}
