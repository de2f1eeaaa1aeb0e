//! Leaky bucket as a queue: shaping. It returns how long to wait, and denies only when the queue is
//! full.
//!
//! State: when the next free slot is. Slots are T apart; a cost takes that many slots in a row and
//! departs at the first of them: it is allowed when `max(next_free, now) + cost x T <= now + burst
//! x T`, with `Delay(max(next_free, now) - now)`, or `Allow` when that is zero. `burst` is the
//! number of units that an empty queue takes at once: the first unit now, the others after T, 2 T,
//! and so on.
//!
//! Bound: a departure is never closer to the one before than T for every unit of that one. Allowed
//! units (which may have to wait) are at most `burst + ceil(w / T) - 1` in any half-open window w,
//! as GCRA.
//!
//! Source: Turner, "New directions in communications", IEEE Communications Magazine 24 (10), 1986.
//!
//! Deliberately not here: the requests that wait. The surface holds them, and gives a slot back
//! when one leaves; only the last slot can be given back, until its departure. An earlier one stays
//! empty.

use crate::algorithms::rate::{Rate, Weighed};
use crate::algorithms::skew::is_foreign;
use crate::algorithms::step::Step;
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, Span, Timestamp};

/// The parameters of the leaky queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyQueue(Rate);

/// The state of the leaky queue. Zero, or any time not after now, is "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeakyQueueState {
    /// The first slot that is not taken.
    pub next_free_at: Timestamp,
}

impl LeakyQueue {
    /// The parameters for `quota`. Limit 10 per second, burst 5: a slot every 100 ms, a wait of at
    /// most 400 ms.
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
        state: LeakyQueueState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, LeakyQueueState) {
        let rate = &self.0;
        let now = now.min(LATEST);
        let wait = rate.debt_within_skew(state.next_free_at.since(now), cost);
        if cost == 0 {
            return (rate.decision(Verdict::Allow, wait, None), state);
        }
        if cost > rate.quota.burst() {
            return (rate.decision(Verdict::Deny, wait, None), state);
        }
        let taken = wait.saturating_add(rate.span_of(cost));
        if taken > rate.burst_span {
            let retry_after = taken.saturating_sub(rate.burst_span);
            return (rate.decision(Verdict::Deny, wait, Some(retry_after)), state);
        }
        let verdict = if wait == Span::ZERO { Verdict::Allow } else { Verdict::Delay(wait) };
        let next = LeakyQueueState { next_free_at: now.saturating_add(taken) };
        (rate.decision(verdict, taken, None), next)
    }

    /// The state with `charge` taken back at `now`: exact while its slots are the last ones taken
    /// and none of them has departed. Otherwise they stay taken and the state is unchanged, because
    /// a slot before the last cannot be found again, and a request that took a slot given back
    /// after its departure would depart sooner than T after it.
    #[must_use]
    pub fn refund(
        &self,
        state: LeakyQueueState,
        charge: Charge,
        now: Timestamp,
    ) -> LeakyQueueState {
        let charged_at = charge.at.min(LATEST);
        let slot_at = charged_at.saturating_add(charge.delay);
        let end_at = slot_at.saturating_add(self.0.span_of(charge.cost));
        let now = now.min(LATEST);
        let is_departed = slot_at < now;
        if is_foreign(charged_at, now) || is_departed || state.next_free_at != end_at {
            return state;
        }
        LeakyQueueState { next_free_at: slot_at }
    }

    /// The state after a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    #[must_use]
    pub fn debit(&self, state: LeakyQueueState, units: u64, now: Timestamp) -> LeakyQueueState {
        LeakyQueueState { next_free_at: self.0.debited(state.next_free_at, now, units) }
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten.
    #[must_use]
    pub const fn idle_at(&self, state: LeakyQueueState) -> Timestamp {
        state.next_free_at
    }

    /// The state that `state` of `old` becomes here at `now`: the next free slot stays in its
    /// place, so that no departure comes closer to the promised ones. It moves later when slots are
    /// now longer, so that the queue contains no more requests than allowed, and never beyond two
    /// bursts, the largest debt.
    pub(crate) fn carried(
        &self,
        old: &Self,
        state: LeakyQueueState,
        now: Timestamp,
    ) -> LeakyQueueState {
        let scaled_at = self.0.carried(&old.0, state.next_free_at, now);
        if scaled_at == Timestamp::ZERO {
            return LeakyQueueState::default();
        }
        let farthest_at = now.saturating_add(self.0.burst_span).saturating_add(self.0.burst_span);
        LeakyQueueState { next_free_at: state.next_free_at.min(farthest_at).max(scaled_at) }
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

impl Step for LeakyQueue {
    type State = LeakyQueueState;

    fn limit(&self) -> u64 {
        self.quota().limit()
    }

    #[inline]
    fn check_fast(
        &self,
        state: LeakyQueueState,
        now: Timestamp,
        cost: u64,
        record: impl FnOnce(LeakyQueueState),
    ) -> Option<Decision> {
        let rate = &self.0;
        Some(match rate.weigh(state.next_free_at, now, cost)? {
            Weighed::Fits { from, next, credit } => {
                record(LeakyQueueState { next_free_at: next });
                let wait = from.wrapping_since(now);
                let verdict =
                    if wait == Span::ZERO { Verdict::Allow } else { Verdict::Delay(wait) };
                rate.decision_on_credit(verdict, credit, None)
            }
            Weighed::Denied { wait, credit } => rate.denial(credit, wait),
        })
    }

    #[inline]
    fn look_fast(&self, state: LeakyQueueState, now: Timestamp) -> Option<Decision> {
        self.0.look(state.next_free_at, now)
    }

    fn check_slow(
        &self,
        state: LeakyQueueState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, LeakyQueueState) {
        self.check(state, now, cost)
    }
}

impl Encoded for LeakyQueueState {
    const LEN: usize = 8;

    fn decode(bytes: &[u8]) -> Self {
        Self { next_free_at: Timestamp::from_nanos(read_u64(bytes, 0)) }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.next_free_at.as_nanos());
    }
}
