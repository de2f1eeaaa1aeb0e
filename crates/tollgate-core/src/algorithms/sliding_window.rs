//! Sliding window: two counters, the default at the edge.
//!
//! State: the index of the window, aligned as in `fixed_window`, and the units counted in it and in the
//! one before. The estimate of what the last window's length admitted is
//! `previous x (window - elapsed) / window + current`; a cost is admitted when
//! `floor(estimate) + cost <= limit`, with `strict` when `ceil(estimate) + cost <= limit`.
//!
//! Bound: `2 x limit` in any half-open window: a spike at the last instant of a window, then a steady
//! stream as its weight decays. `strict` saves the one unit that the floor gives: `2 x limit - 1`.
//!
//! Source: Cloudflare, "How we built rate limiting capable of scaling to millions of domains", 2017.
//!
//! Deliberately not here: a fractional estimate. All products are exact integers, and only the
//! estimate is rounded, once.

use crate::algorithms::skew::{effective_now, is_foreign, kept, most_counted};
use crate::algorithms::step::Step;
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, Span, Timestamp};

/// The parameters of the sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow(Quota);

/// The state of the sliding window. All zero is "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    /// floor(time / window) of the window of `current`.
    pub index: u64,
    /// The units admitted in the window before.
    pub previous: u64,
    /// The units admitted in the window.
    pub current: u64,
}

impl SlidingWindow {
    /// The parameters for `quota`. Limit 7 per 60 s, 5 in the minute before and 3 in this one, 18 s
    /// into it: the estimate is 5 x 42 / 60 + 3 = 6.5, and one more is admitted unless strict.
    ///
    /// # Errors
    /// A burst that differs from the limit.
    pub const fn new(quota: Quota) -> Result<Self, QuotaError> {
        if quota.burst() != quota.limit() {
            return Err(QuotaError::NoBurst);
        }
        Ok(Self(quota))
    }

    /// The decision on `cost` at `now` and the state after it; the same state when denied or when
    /// `cost` is 0. Never fails.
    #[must_use]
    #[inline]
    pub fn check(
        &self,
        state: SlidingWindowState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, SlidingWindowState) {
        let now = now.min(LATEST);
        let limit = self.0.limit();
        let window = self.bring_to(state, now, cost);
        if cost > limit {
            return (self.decision(Verdict::Deny, window, now, None), state);
        }
        if cost > 0 && self.used(window, now).saturating_add(cost) > limit {
            let retry_after = self.admits_at(window, cost).since(now);
            return (self.decision(Verdict::Deny, window, now, Some(retry_after)), state);
        }
        let next = SlidingWindowState { current: window.current.saturating_add(cost), ..window };
        let decision = self.decision(Verdict::Allow, next, now, None);
        (decision, if cost == 0 { state } else { next })
    }

    /// The state with `charge` taken back at `now`: exact while its window is one of the two counted;
    /// later there is nothing left to give back. What a late clock charged to the next window is given back
    /// to the window before it, which decays earlier.
    #[must_use]
    pub fn refund(
        &self,
        state: SlidingWindowState,
        charge: Charge,
        now: Timestamp,
    ) -> SlidingWindowState {
        let charged_at = charge.at.min(LATEST);
        let index = charged_at.index_of(self.0.window());
        if is_foreign(charged_at, now) {
            state
        } else if index == state.index {
            SlidingWindowState { current: state.current.saturating_sub(charge.cost), ..state }
        } else if index.saturating_add(1) == state.index {
            SlidingWindowState { previous: state.previous.saturating_sub(charge.cost), ..state }
        } else {
            state
        }
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten: the end of
    /// the window after the last one that counted something; the start of the window when none did.
    #[must_use]
    pub const fn idle_at(&self, state: SlidingWindowState) -> Timestamp {
        let span = self.0.window();
        let start_at = Timestamp::start_of(state.index, span);
        let end_at = start_at.saturating_add(span);
        match (state.previous, state.current) {
            (0, 0) => start_at, // before it a late clock is still told when this window ends
            (_, 0) => end_at,
            _ => end_at.saturating_add(span),
        }
    }

    /// A time before which `units` more cannot have been admitted from `decision` on: the estimate never
    /// falls faster than by a limit in a window, give or take the one unit that is rounded.
    pub(crate) fn soonest(&self, decision: &Decision, units: u64) -> Span {
        let beyond = units.saturating_sub(decision.remaining);
        if beyond == 0 {
            return Span::ZERO;
        }
        let next = if decision.remaining > 0 { Span::ZERO } else { decision.reset_after };
        let window = self.0.window().as_nanos();
        let decayed = mul_add_div(beyond.saturating_sub(1), window, 0, self.0.limit());
        next.max(Span::from_nanos(decayed))
    }

    /// The quota that is held.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.0
    }

    /// Units admitted at most in any half-open window as long as the quota's: 2 x limit, one less when
    /// strict.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        let twice = self.0.limit().saturating_mul(2);
        if self.0.is_strict() { twice.saturating_sub(1) } else { twice }
    }

    /// The window that `now` counts in; impossible counts are brought down to the most that is believed.
    fn bring_to(&self, state: SlidingWindowState, now: Timestamp, cost: u64) -> SlidingWindowState {
        let (span, limit) = (self.0.window(), self.0.limit());
        let index = now.index_of(span);
        let previous = state.previous.min(most_counted(limit));
        let current = state.current.min(most_counted(limit));
        if index > state.index {
            let next_index = state.index.saturating_add(1);
            let previous = if index == next_index { current } else { 0 };
            return SlidingWindowState { index, previous, current: 0 };
        }
        match effective_now(Timestamp::start_of(state.index, span), now) {
            Some(_) => SlidingWindowState { index: state.index, previous, current },
            None => {
                let used = previous.saturating_add(current);
                SlidingWindowState { index, previous: 0, current: kept(used, limit, cost) }
            }
        }
    }

    /// The estimate at `now`, rounded: previous x (window - elapsed) / window + current. On a late
    /// clock nothing has elapsed.
    fn used(&self, window: SlidingWindowState, now: Timestamp) -> u64 {
        let span = self.0.window();
        let elapsed = now.since(Timestamp::start_of(window.index, span));
        let left = span.saturating_sub(elapsed).as_nanos();
        let rounding = if self.0.is_strict() { span.as_nanos().saturating_sub(1) } else { 0 };
        mul_add_div(window.previous, left, rounding, span.as_nanos()).saturating_add(window.current)
    }

    /// The earliest time at which `cost`, which does not fit now, is admitted if nothing else is.
    fn admits_at(&self, window: SlidingWindowState, cost: u64) -> Timestamp {
        let span = self.0.window();
        let start_at = Timestamp::start_of(window.index, span);
        let room = self.0.limit().saturating_sub(cost);
        match room.checked_sub(window.current) {
            // This window's own units leave room: the previous ones have to decay.
            Some(room) => start_at.saturating_add(self.decays_after(window.previous, room)),
            // They do not: they have to decay in the next window, where they are the previous ones.
            None => start_at
                .saturating_add(span)
                .saturating_add(self.decays_after(window.current, room)),
        }
    }

    /// The least `elapsed` at which `previous` units weigh at most `room`, where they are more than that:
    /// floor(previous x left / window) <= room holds up to left = floor(((room + 1) x window - 1) / previous),
    /// ceil(previous x left / window) <= room up to left = floor(room x window / previous).
    fn decays_after(&self, previous: u64, room: u64) -> Span {
        let span = self.0.window();
        let left = if self.0.is_strict() {
            mul_add_div(room, span.as_nanos(), 0, previous)
        } else {
            mul_add_div(room, span.as_nanos(), span.as_nanos().saturating_sub(1), previous)
        };
        span.saturating_sub(Span::from_nanos(left))
    }

    fn decision(
        &self,
        verdict: Verdict,
        window: SlidingWindowState,
        now: Timestamp,
        retry_after: Option<Span>,
    ) -> Decision {
        let limit = self.0.limit();
        let remaining = limit.saturating_sub(self.used(window, now));
        let until_at = if remaining > 0 {
            let span = self.0.window();
            Timestamp::start_of(window.index, span).saturating_add(span)
        } else {
            self.admits_at(window, 1)
        };
        Decision { verdict, limit, remaining, retry_after, reset_after: until_at.since(now) }
    }
}

/// floor((a x b + c) / divisor), at most [`u64::MAX`]; widened only where 64 bits would overflow.
/// 0 when `divisor` is 0.
fn mul_add_div(a: u64, b: u64, c: u64, divisor: u64) -> u64 {
    match a.checked_mul(b).and_then(|product| product.checked_add(c)) {
        Some(sum) => sum.checked_div(divisor).unwrap_or(0),
        None => {
            let sum = u128::from(a).saturating_mul(u128::from(b)).saturating_add(u128::from(c));
            let quotient = sum.checked_div(u128::from(divisor)).unwrap_or(0);
            u64::try_from(quotient).unwrap_or(u64::MAX)
        }
    }
}

impl Step for SlidingWindow {
    type State = SlidingWindowState;

    fn limit(&self) -> u64 {
        self.quota().limit()
    }

    fn check_slow(
        &self,
        state: SlidingWindowState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, SlidingWindowState) {
        self.check(state, now, cost)
    }
}

impl Encoded for SlidingWindowState {
    const LEN: usize = 24;

    fn decode(bytes: &[u8]) -> Self {
        Self {
            index: read_u64(bytes, 0),
            previous: read_u64(bytes, 1),
            current: read_u64(bytes, 2),
        }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.index);
        write_u64(bytes, 1, self.previous);
        write_u64(bytes, 2, self.current);
    }
}
