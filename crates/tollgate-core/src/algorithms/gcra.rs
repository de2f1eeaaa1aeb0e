//! GCRA: the generic cell rate algorithm, the default everywhere.
//!
//! State: the theoretical arrival time (TAT) of the next unit if units came exactly T apart. A cost
//! is allowed when `max(TAT, now) + cost x T <= now + burst x T`, and that sum is the next TAT.
//!
//! Bound: any half-open window w allows at most `burst + ceil(w / T) - 1`; with `strict`, T =
//! ceil(window / (limit - burst + 1)) makes that at most `limit`. T rounds up, so rounding never
//! allows more than the quota.
//!
//! Source: ITU-T I.371 (virtual scheduling), ATM Forum Traffic Management 4.1, annex C.
//!
//! Deliberately not here: the time of the last request. TAT never falls while the clock is within
//! [`ALLOWED_SKEW`](crate::ALLOWED_SKEW), so a clock that oscillates credits no interval twice.

use crate::algorithms::rate::{Rate, Weighed};
use crate::algorithms::step::Step;
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, Timestamp};

/// The parameters of GCRA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra(Rate);

/// The state of GCRA: when the debt is paid off. Zero, or any time not after now, is "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcraState {
    /// TAT: the time from which the quota is whole again.
    pub theoretical_arrival_at: Timestamp,
}

impl Gcra {
    /// The parameters for `quota`. Limit 100 per 60 s, burst 20: T is 600 ms, the debt at most 12
    /// s.
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
    pub fn check(&self, state: GcraState, now: Timestamp, cost: u64) -> (Decision, GcraState) {
        let rate = &self.0;
        let now = now.min(LATEST);
        // Everything is counted from `now`: max(TAT, now) - now is the debt.
        let debt = rate.debt_within_skew(state.theoretical_arrival_at.since(now), cost);
        if cost > rate.quota.burst() {
            return (rate.decision(Verdict::Deny, debt, None), state);
        }
        if cost == 0 {
            return (rate.decision(Verdict::Allow, debt, None), state);
        }
        let next_debt = debt.saturating_add(rate.span_of(cost));
        if next_debt > rate.burst_span {
            let retry_after = next_debt.saturating_sub(rate.burst_span);
            return (rate.decision(Verdict::Deny, debt, Some(retry_after)), state);
        }
        let next = GcraState { theoretical_arrival_at: now.saturating_add(next_debt) };
        (rate.decision(Verdict::Allow, next_debt, None), next)
    }

    /// The state with `charge` taken back at `now`. Exact when `now` is the time of the charge;
    /// later, the units that have drained by then are not given back, so that no window ever
    /// exceeds the bound.
    #[must_use]
    pub fn refund(&self, state: GcraState, charge: Charge, now: Timestamp) -> GcraState {
        let owed = self.0.owed(&charge, now);
        GcraState { theoretical_arrival_at: state.theoretical_arrival_at.saturating_sub(owed) }
    }

    /// The state after a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    #[must_use]
    pub fn debit(&self, state: GcraState, units: u64, now: Timestamp) -> GcraState {
        Self::paid_off(self.0.debited(state.theoretical_arrival_at, now, units))
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten.
    #[must_use]
    pub const fn idle_at(&self, state: GcraState) -> Timestamp {
        state.theoretical_arrival_at
    }

    /// The state in which all is paid off at `paid_off_at`.
    pub(crate) const fn paid_off(paid_off_at: Timestamp) -> GcraState {
        GcraState { theoretical_arrival_at: paid_off_at }
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

impl Step for Gcra {
    type State = GcraState;

    fn limit(&self) -> u64 {
        self.quota().limit()
    }

    #[inline]
    fn check_fast(
        &self,
        state: GcraState,
        now: Timestamp,
        cost: u64,
        record: impl FnOnce(GcraState),
    ) -> Option<Decision> {
        let rate = &self.0;
        Some(match rate.weigh(state.theoretical_arrival_at, now, cost)? {
            Weighed::Fits { next, credit, .. } => {
                record(GcraState { theoretical_arrival_at: next });
                rate.decision_on_credit(Verdict::Allow, credit, None)
            }
            Weighed::Denied { wait, credit } => rate.denial(credit, wait),
        })
    }

    #[inline]
    fn look_fast(&self, state: GcraState, now: Timestamp) -> Option<Decision> {
        self.0.look(state.theoretical_arrival_at, now)
    }

    fn check_slow(&self, state: GcraState, now: Timestamp, cost: u64) -> (Decision, GcraState) {
        self.check(state, now, cost)
    }
}

impl Encoded for GcraState {
    const LEN: usize = 8;

    fn decode(bytes: &[u8]) -> Self {
        Self { theoretical_arrival_at: Timestamp::from_nanos(read_u64(bytes, 0)) }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.theoretical_arrival_at.as_nanos());
    }
}
