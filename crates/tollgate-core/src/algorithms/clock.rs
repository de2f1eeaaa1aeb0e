//! What a late clock means to the window counters and the log.
//!
//! Invariant: the time they decide at never falls while the clock is within [`ALLOWED_SKEW`], so a
//! clock that oscillates credits no interval twice. GCRA and its kin need none of this: their state is
//! a time that never falls.

use crate::time::{ALLOWED_SKEW, Timestamp};

/// The time to decide at when `latest_at` is the state's own latest time: `now`, or `latest_at` when
/// the clock is late by at most the allowed skew. `None` when the clock was set anew.
pub(crate) const fn ride_out(latest_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    if latest_at.since(now).as_nanos() > ALLOWED_SKEW.as_nanos() {
        None
    } else {
        Some(now.max(latest_at))
    }
}

/// The units that stay counted when the clock was set anew: the old ones as far as `cost` still fits
/// beside them, none for a peek.
pub(crate) fn kept(used: u64, limit: u64, cost: u64) -> u64 {
    if cost == 0 { 0 } else { used.min(limit.saturating_sub(cost)) }
}

/// True when a charge was decided on a clock that has since been set back further than the skew: the
/// state was, or will be, brought to the new time without it, so there is nothing to give back.
pub(crate) const fn is_foreign(charged_at: Timestamp, now: Timestamp) -> bool {
    charged_at.since(now).as_nanos() > ALLOWED_SKEW.as_nanos()
}
