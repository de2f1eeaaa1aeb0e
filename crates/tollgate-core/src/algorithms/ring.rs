//! The decision of the two that keep a ring of what was admitted: the log and the buckets.
//!
//! Invariant: a wait ends exactly when enough of the oldest units have left for what is waited for to be admitted.
//! When a unit leaves is the ring's own business, and not here.

use crate::decision::{Decision, Verdict};
use crate::time::{Span, Timestamp};

/// What a ring knows at one time.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) limit: u64,
    /// The units that count.
    pub(crate) used: u64,
    pub(crate) now: Timestamp,
}

impl Counted {
    /// Decides on `cost`; `left_at(n)` is when the oldest n units have left, with those of `cost` as the youngest.
    /// Limit 10, 9 used, cost 3: denied until the oldest 2 have left.
    ///
    /// Until the oldest unit leaves no more than `remaining` should be used (`reset_after`); with none
    /// remaining, until as many have left as let one in.
    pub(crate) fn decide(self, cost: u64, left_at: impl Fn(u64) -> Timestamp) -> Decision {
        let Self { limit, used, now } = self;
        let after = |units| -> Span { left_at(units).since(now) };
        let charged = used.saturating_add(cost);
        let (verdict, used, retry_after) = if cost > limit {
            (Verdict::Deny, used, None)
        } else if charged > limit && cost > 0 {
            (Verdict::Deny, used, Some(after(charged.saturating_sub(limit))))
        } else {
            (Verdict::Allow, charged, None)
        };
        let in_the_way = used.saturating_add(1).saturating_sub(limit);
        Decision {
            verdict,
            limit,
            remaining: limit.saturating_sub(used),
            retry_after,
            reset_after: after(in_the_way.max(1)),
        }
    }
}
