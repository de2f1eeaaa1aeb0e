//! Use that is recorded after the fact: a debit decides nothing and is never denied.
//!
//! Invariant: a debit never lowers a key's used units, credits nothing and allows nothing that
//! would have been denied without it. A key's debt is capped at two bursts (two limits), so a key
//! is whole again within the time that [`ALLOWED_SKEW`](crate::ALLOWED_SKEW) promises; use beyond
//! the cap is forgiven. Deliberately not here: which requests are debited, and the response to a
//! report.

use crate::limiter::Limiter;
use crate::method::{Method, update};
use crate::time::{LATEST, Timestamp};

impl Limiter {
    /// Records `units` that were used at `now`, whether or not they fit: tokens that a response
    /// turned out to cost, or units that a caller reports. Limit 1,000 per minute, 900 used, a
    /// debit of 300: nothing remains until 201 units have come back.
    ///
    /// With T the emission interval and n the units:
    ///
    /// | algorithm | what becomes of the state |
    /// |---|---|
    /// | `gcra`, `token-bucket`, `leaky-bucket` | paid off at `max(full, min(max(full, now) + n x T, now + 2 x burst x T))`, where `full` is when it was |
    /// | `leaky-queue` | the same for its next free slot: n slots from which no request departs |
    /// | `fixed-window`, also by a calendar, `sliding-window` | the count of the window: `min(count + n, max(count, 2 x limit))` |
    /// | `sliding-buckets` | the same for the sum, counted in the newest part |
    /// | `sliding-log` | n entries at `now`, at most `limit`; the oldest are dropped |
    ///
    /// A late clock is treated as by [`Limiter::check`]. So is a foreign state: its debt within one
    /// burst is kept. 0 units, and bytes that are not a state of this limiter, change nothing.
    /// Never fails.
    pub fn debit(&self, state: &mut [u8], units: u64, now: Timestamp) {
        if let Some((own, _)) = self.split_mut(state).filter(|_| units > 0) {
            self.method.debit(own, units, now);
        }
    }
}

impl Method {
    /// See [`Limiter::debit`]; `units` is above 0.
    fn debit(&self, state: &mut [u8], units: u64, now: Timestamp) {
        let now = now.min(LATEST);
        match self {
            Self::Gcra(gcra) => update(state, |s| gcra.debit(s, units, now)),
            Self::TokenBucket(bucket) => update(state, |s| bucket.debit(s, units, now)),
            Self::LeakyBucket(bucket) => update(state, |s| bucket.debit(s, units, now)),
            Self::LeakyQueue(queue) => update(state, |s| queue.debit(s, units, now)),
            Self::FixedWindow(window) => update(state, |s| window.debit(s, units, now)),
            Self::CalendarWindow(window) => update(state, |s| window.debit(s, units, now)),
            Self::SlidingWindow(window) => update(state, |s| window.debit(s, units, now)),
            Self::SlidingBuckets(buckets) => buckets.debit(state, units, now),
            Self::SlidingLog(log) => log.debit(state, units, now),
            // A request in flight is one, whatever it used.
            Self::InFlight(_) => {}
            Self::Holds(holds) => {
                let own = self.without_holds();
                holds.debit(state, units, now, |state| own.debit(state, units, now));
            }
        }
    }
}
