//! Foreign states: distinguishes, for every algorithm, a state that this clock cannot have left
//! from a debt.
//!
//! Invariant: the time that the window counters and the log decide at never falls while the clock
//! is within [`ALLOWED_SKEW`], so a clock that oscillates credits no interval twice. GCRA and its
//! kin need no such time: their state is one that never falls.
//!
//! Deliberately not here: a mark on a foreign state. A denial and a peek write nothing, so no
//! record is kept that a state was found foreign: if it is not charged, it is foreign until the
//! clock is near enough for it to be a debt, and then holds for no longer than a debt would.

use crate::time::{ALLOWED_SKEW, Span, Timestamp};

/// The largest debt of a key, in bursts: one that it took within its quota, and one that was only
/// known afterwards. Counts have the same bound: twice the limit.
const BURSTS_OWED: u64 = 2;

/// How far beyond `now` the time in a state may be: two bursts and the skew. A state further ahead
/// is foreign: no request left it by a clock that agrees with this one to within the skew.
///
/// `burst_span` is how long one burst takes to grow back, where the state is the time at which all
/// is paid off; zero where its time is that of a request, and its counts contain the debt.
pub(crate) const fn farthest_ahead(burst_span: Span) -> Span {
    most_owed(burst_span).saturating_add(ALLOWED_SKEW)
}

/// The longest debt that a debit leaves, where one burst takes `burst_span` to grow back.
pub(crate) const fn most_owed(burst_span: Span) -> Span {
    burst_span.saturating_mul(BURSTS_OWED)
}

/// The most units that a count is used with.
pub(crate) const fn most_counted(limit: u64) -> u64 {
    limit.saturating_mul(BURSTS_OWED)
}

/// The time to decide at when `latest_at` is the state's own latest time: `now`, or `latest_at`
/// when the clock is late by at most the allowed skew. `None` when the state is foreign.
pub(crate) const fn effective_now(latest_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    if is_foreign(latest_at, now) { None } else { Some(now.max(latest_at)) }
}

/// The units that stay counted when a state was foreign: its own units as far as `cost` still fits
/// in addition to them, none for a peek.
pub(crate) fn kept(used: u64, limit: u64, cost: u64) -> u64 {
    if cost == 0 { 0 } else { used.min(limit.saturating_sub(cost)) }
}

/// True when no request can have been decided at `decided_at` by a clock that agrees with this one:
/// the counts of that time are ignored, and a charge of that time has nothing left to give back.
pub(crate) const fn is_foreign(decided_at: Timestamp, now: Timestamp) -> bool {
    decided_at.since(now).as_nanos() > farthest_ahead(Span::ZERO).as_nanos()
}
