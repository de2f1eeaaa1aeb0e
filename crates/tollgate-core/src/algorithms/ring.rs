//! The decision of the two algorithms that keep a ring of allowed units: the log and the buckets.
//!
//! Invariant: a wait ends exactly when enough of the oldest units have left for the waiting cost to
//! be allowed. Deliberately not here: when a unit leaves, which the ring knows.

use crate::decision::{Decision, Verdict};
use crate::time::{Span, Timestamp};

/// The state of a ring at one time.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) limit: u64,
    /// The units that count.
    pub(crate) used: u64,
    pub(crate) now: Timestamp,
}

impl Counted {
    /// True when `cost` fits in addition to the used units, or is zero.
    #[inline]
    pub(crate) fn admits(self, cost: u64) -> bool {
        self.used.saturating_add(cost) <= self.limit || cost == 0
    }

    /// Decides on `cost`; `left_at(n)` is when the oldest n units have left, with those of `cost`
    /// as the youngest. Limit 10, 9 used, cost 3: denied until the oldest 2 have left.
    ///
    /// Until the oldest unit leaves no more than `remaining` should be used (`reset_after`); with
    /// none remaining, until enough have left to allow one.
    #[inline]
    pub(crate) fn decide(self, cost: u64, left_at: impl Fn(u64) -> Timestamp) -> Decision {
        let Self { limit, used, now } = self;
        let after = |units| -> Span { left_at(units).since(now) };
        let charged = used.saturating_add(cost);
        let is_admitted = self.admits(cost);
        let used = if is_admitted { charged } else { used };
        let in_the_way = used.saturating_add(1).saturating_sub(limit).max(1);
        let reset_after = after(in_the_way);
        let retry_after = if is_admitted || cost > limit {
            None
        } else {
            let units = charged.saturating_sub(limit);
            Some(if units == in_the_way { reset_after } else { after(units) })
        };
        let verdict = if is_admitted { Verdict::Allow } else { Verdict::Deny };
        let remaining = limit.saturating_sub(used);
        Decision { verdict, limit, remaining, retry_after, reset_after }
    }
}
