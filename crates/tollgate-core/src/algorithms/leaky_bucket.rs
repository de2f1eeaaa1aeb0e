//! Leaky bucket as a meter: the same decisions as GCRA, expressed as a level that leaks.
//!
//! State: the level, in nanoseconds of draining, and when it was measured. Every unit pours in T,
//! and one nanosecond drains in one: `level - (now - drained_at)` is in the bucket at `now`, and a
//! cost is allowed when `level + cost x T <= burst x T`. GCRA's TAT is `drained_at + level`.
//!
//! Bound: as GCRA, any half-open window w allows at most `burst + ceil(w / T) - 1`.
//!
//! Source: ITU-T I.371 (continuous-state leaky bucket), ATM Forum Traffic Management 4.1, annex C.
//!
//! Deliberately not here: a queue. This is the meter, which allows now or not now; the queue that
//! makes requests wait is `leaky_queue`.

use crate::algorithms::rate::{Rate, Weighed};
use crate::algorithms::step::Step;
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, Span, Timestamp};

/// The parameters of the leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket(Rate);

/// The state of the leaky bucket. All zero is an empty bucket: "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeakyBucketState {
    /// The content of the bucket at `drained_at`, as the time it takes to drain.
    pub level: Span,
    /// When the level was measured.
    pub drained_at: Timestamp,
}

impl LeakyBucket {
    /// The parameters for `quota`. Limit 100 per 60 s, burst 20: a unit pours in 600 ms, the bucket
    /// holds 12 s.
    ///
    /// # Errors
    /// A strict quota whose burst exceeds its limit, or takes too long to grow back.
    pub const fn new(quota: Quota) -> Result<Self, QuotaError> {
        match Rate::new(quota) {
            Ok(rate) => Ok(Self(rate)),
            Err(error) => Err(error),
        }
    }

    /// The decision on `cost` at `now` and the state after it; the same state when denied or when
    /// `cost` is 0. Never fails.
    #[must_use]
    #[inline]
    pub fn check(
        &self,
        state: LeakyBucketState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, LeakyBucketState) {
        let rate = &self.0;
        let now = now.min(LATEST);
        let level = rate.debt_within_skew(level_at(state, now), cost);
        if cost > rate.quota.burst() {
            return (rate.decision(Verdict::Deny, level, None), state);
        }
        let poured = level.saturating_add(rate.span_of(cost));
        if poured > rate.burst_span && cost > 0 {
            let overflow = poured.saturating_sub(rate.burst_span);
            return (rate.decision(Verdict::Deny, level, Some(overflow)), state);
        }
        let decision = rate.decision(Verdict::Allow, poured, None);
        let next = LeakyBucketState { level: poured, drained_at: now };
        (decision, if cost == 0 { state } else { next })
    }

    /// The state with `charge` taken back at `now`. Exact when `now` is the time of the charge;
    /// later, the units that have drained by then are not given back, so that no window ever
    /// exceeds the bound.
    #[must_use]
    pub fn refund(
        &self,
        state: LeakyBucketState,
        charge: Charge,
        now: Timestamp,
    ) -> LeakyBucketState {
        let owed = self.0.owed(&charge, now);
        // The part that the level cannot give would have drained earlier.
        let earlier = owed.saturating_sub(state.level);
        LeakyBucketState {
            level: state.level.saturating_sub(owed),
            drained_at: state.drained_at.saturating_sub(earlier),
        }
    }

    /// The state after a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    /// Its level can be above the burst.
    #[must_use]
    pub fn debit(&self, state: LeakyBucketState, units: u64, now: Timestamp) -> LeakyBucketState {
        let empty_at = self.idle_at(state);
        let next_at = self.0.debited(empty_at, now, units);
        if next_at == empty_at { state } else { Self::paid_off(next_at, now) }
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten.
    #[must_use]
    pub const fn idle_at(&self, state: LeakyBucketState) -> Timestamp {
        state.drained_at.saturating_add(state.level)
    }

    /// The state in which all is paid off at `paid_off_at`, measured at `now` or then.
    pub(crate) const fn paid_off(paid_off_at: Timestamp, now: Timestamp) -> LeakyBucketState {
        let level = paid_off_at.since(now);
        LeakyBucketState { level, drained_at: paid_off_at.saturating_sub(level) }
    }

    /// The rate that decides.
    pub(crate) const fn rate(&self) -> &Rate {
        &self.0
    }

    /// The algorithm's quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.0.quota
    }

    /// Units allowed at most in any half-open window as long as the quota's: burst + ceil(window /
    /// T) - 1.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        self.0.max_in_window()
    }
}

/// The content of the bucket at `now`. A late clock finds more in it: nothing drains twice.
const fn level_at(state: LeakyBucketState, now: Timestamp) -> Span {
    state.drained_at.saturating_add(state.level).since(now)
}

impl Step for LeakyBucket {
    type State = LeakyBucketState;

    fn limit(&self) -> u64 {
        self.quota().limit()
    }

    #[inline]
    fn check_fast(
        &self,
        state: LeakyBucketState,
        now: Timestamp,
        cost: u64,
        record: impl FnOnce(LeakyBucketState),
    ) -> Option<Decision> {
        let rate = &self.0;
        Some(match rate.weigh(self.idle_at(state), now, cost)? {
            Weighed::Fits { next, credit, .. } => {
                record(LeakyBucketState { level: next.wrapping_since(now), drained_at: now });
                rate.decision_on_credit(Verdict::Allow, credit, None)
            }
            Weighed::Denied { wait, credit } => rate.denial(credit, wait),
        })
    }

    #[inline]
    fn look_fast(&self, state: LeakyBucketState, now: Timestamp) -> Option<Decision> {
        self.0.look(self.idle_at(state), now)
    }

    fn check_slow(
        &self,
        state: LeakyBucketState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, LeakyBucketState) {
        self.check(state, now, cost)
    }
}

impl Encoded for LeakyBucketState {
    const LEN: usize = 16;

    fn decode(bytes: &[u8]) -> Self {
        Self {
            level: Span::from_nanos(read_u64(bytes, 0)),
            drained_at: Timestamp::from_nanos(read_u64(bytes, 1)),
        }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.level.as_nanos());
        write_u64(bytes, 1, self.drained_at.as_nanos());
    }
}
