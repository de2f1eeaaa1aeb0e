//! Sliding window: two counters, the older one weighted.
//!
//! State: the index of the window, aligned as in `fixed_window`, and the units counted in it and in
//! the one before. The estimate of the units allowed within the last window's length is `previous x
//! (window - elapsed) / window + current`; a cost is allowed when `floor(estimate) + cost <=
//! limit`, with `strict` when `ceil(estimate) + cost <= limit`.
//!
//! Bound: `2 x limit` in any half-open window: a spike at the last instant of a window, then a
//! steady stream as its weight decays. `strict` saves the one unit that the floor gives: `2 x
//! limit - 1`.
//!
//! Source: Cloudflare, "How we built rate limiting capable of scaling to millions of
//! domains", 2017.
//!
//! Deliberately not here: a fractional estimate. All products are exact integers, and only the
//! estimate is rounded, once.

use crate::algorithms::skew::{effective_now, is_foreign, kept, most_counted};
use crate::algorithms::step::Step;
use crate::algorithms::weight::{Weight, mul_add_div};
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, NEAR, Span, Timestamp};

/// The parameters of the sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    pub(super) quota: Quota,
    /// The last window that begins before [`LATEST`].
    last_index: u64,
}

/// The state of the sliding window. All zero is "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    /// floor(time / window) of the window of `current`.
    pub index: u64,
    /// The units allowed in the window before.
    pub previous: u64,
    /// The units allowed in the window.
    pub current: u64,
}

impl SlidingWindow {
    /// The parameters for `quota`. Limit 7 per 60 s, 5 in the minute before and 3 in this one, 18 s
    /// into it: the estimate is 5 x 42 / 60 + 3 = 6.5, and one more is allowed unless strict.
    ///
    /// # Errors
    /// A burst that differs from the limit.
    pub const fn new(quota: Quota) -> Result<Self, QuotaError> {
        if quota.burst() != quota.limit() {
            return Err(QuotaError::NoBurst);
        }
        Ok(Self { last_index: LATEST.index_of(quota.window()), quota })
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
        let allowed = self.quota.burst();
        let window = self.bring_to(state, now, cost, allowed);
        if cost > allowed {
            return (self.decision(Verdict::Deny, window, now, None), state);
        }
        if cost > 0 && self.used(window, now).saturating_add(cost) > allowed {
            let retry_after = self.admits_at(window, cost).since(now);
            return (self.decision(Verdict::Deny, window, now, Some(retry_after)), state);
        }
        let window = self.bring_to(state, now, cost, self.quota.limit());
        let next = SlidingWindowState { current: window.current.saturating_add(cost), ..window };
        let decision = self.decision(Verdict::Allow, next, now, None);
        (decision, if cost == 0 { state } else { next })
    }

    /// The state with `charge` taken back at `now`: exact while its window is one of the two
    /// counted; later there is nothing left to give back. Units that a late clock charged to the
    /// next window are given back to the window before it, which decays earlier.
    #[must_use]
    pub fn refund(
        &self,
        state: SlidingWindowState,
        charge: Charge,
        now: Timestamp,
    ) -> SlidingWindowState {
        let charged_at = charge.at.min(LATEST);
        let index = charged_at.index_of(self.quota.window());
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

    /// The state after a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    #[must_use]
    pub fn debit(
        &self,
        state: SlidingWindowState,
        units: u64,
        now: Timestamp,
    ) -> SlidingWindowState {
        let limit = self.quota.limit();
        let window = self.bring_to(state, now, units.min(limit), limit);
        let current = window.current.saturating_add(units).min(most_counted(limit));
        SlidingWindowState { current, ..window }
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten: the end
    /// of the window after the last one that counted something; the start of the window when none
    /// did.
    #[must_use]
    pub const fn idle_at(&self, state: SlidingWindowState) -> Timestamp {
        let span = self.quota.window();
        let start_at = Timestamp::start_of(state.index, span);
        let end_at = start_at.saturating_add(span);
        match (state.previous, state.current) {
            (0, 0) => start_at, // before it a late clock still gets the end of this window
            (_, 0) => end_at,
            _ => end_at.saturating_add(span),
        }
    }

    /// A time before which `units` more cannot have been allowed from `decision` on: the estimate
    /// never falls faster than by a limit in a window, give or take the one unit that is rounded.
    pub(crate) fn soonest(&self, decision: &Decision, units: u64) -> Span {
        let beyond = units.saturating_sub(decision.remaining);
        if beyond == 0 {
            return Span::ZERO;
        }
        let next = if decision.remaining > 0 { Span::ZERO } else { decision.reset_after };
        let window = self.quota.window().as_nanos();
        let decayed = mul_add_div(beyond.saturating_sub(1), window, 0, self.quota.limit());
        next.max(Span::from_nanos(decayed))
    }

    /// The algorithm's quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Units allowed at most in any half-open window as long as the quota's: 2 x limit, one less
    /// when strict.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        let twice = self.quota.limit().saturating_mul(2);
        if self.quota.is_strict() { twice.saturating_sub(1) } else { twice }
    }

    /// The estimate of the units that are used at `now`.
    pub(crate) fn counted(&self, state: SlidingWindowState, now: Timestamp) -> u64 {
        let now = now.min(LATEST);
        self.used(self.bring_to(state, now, 0, self.quota.limit()), now)
    }

    /// The window that `now` counts in; impossible counts are reduced to the most that is used. A
    /// foreign count is kept as far as `cost` fits in `limit`.
    fn bring_to(
        &self,
        state: SlidingWindowState,
        now: Timestamp,
        cost: u64,
        limit: u64,
    ) -> SlidingWindowState {
        let (span, most) = (self.quota.window(), most_counted(self.quota.limit()));
        let index = now.index_of(span);
        let previous = state.previous.min(most);
        let current = state.current.min(most);
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

    /// The rest of the window of `state` at `now`, in the usual case: that is also the window of
    /// `now`, and the counts are possible. A multiplication, not a division, shows whether it is
    /// the same.
    #[inline]
    fn left_fast(&self, state: SlidingWindowState, now: Timestamp) -> Option<Span> {
        let (window, most) = (self.quota.window(), most_counted(self.quota.limit()));
        if now > NEAR || state.index > self.last_index {
            return None;
        }
        if state.previous > most || state.current > most {
            return None;
        }
        let start_at = Timestamp::from_nanos(window.as_nanos().wrapping_mul(state.index));
        let elapsed = now.checked_since(start_at)?;
        window.checked_sub(elapsed).filter(|left| *left > Span::ZERO)
    }

    /// The decision in the usual case; `retry_after` is that of a cost. With nothing remaining, a
    /// cost of one has to wait for as long as the key is exhausted.
    #[inline]
    fn answer(
        &self,
        window: SlidingWindowState,
        left: Span,
        verdict: Verdict,
        remaining: u64,
        retry_after: Option<(u64, Span)>,
    ) -> Decision {
        let reset_after = match (remaining, retry_after) {
            (0, Some((1, wait))) => wait,
            (0, _) => self.wait(window, left, 1),
            _ => left,
        };
        let retry_after = retry_after.map(|(_, wait)| wait);
        Decision { verdict, limit: self.quota.burst(), remaining, retry_after, reset_after }
    }

    /// The estimate at `now`, rounded: previous x (window - elapsed) / window + current. On a late
    /// clock nothing has elapsed.
    fn used(&self, window: SlidingWindowState, now: Timestamp) -> u64 {
        let span = self.quota.window();
        let elapsed = now.since(Timestamp::start_of(window.index, span));
        self.weight(window.previous, span.saturating_sub(elapsed)).saturating_add(window.current)
    }

    /// The weight of `previous` units when this much of the window is left, rounded.
    #[inline]
    fn weight(&self, previous: u64, left: Span) -> u64 {
        Weight::new(self.quota.window(), &self.quota).of(previous, left)
    }

    /// The earliest time at which `cost`, which does not fit now, is allowed if no other cost is.
    fn admits_at(&self, window: SlidingWindowState, cost: u64) -> Timestamp {
        let span = self.quota.window();
        let end_at = Timestamp::start_of(window.index, span).saturating_add(span);
        match self.fits(window, cost) {
            (Turn::This, left) => end_at.saturating_sub(left),
            (Turn::Next, left) => end_at.saturating_add(span.saturating_sub(left)),
        }
    }

    /// How long until `cost`, which does not fit when `left` is left of the window, is allowed.
    #[inline]
    fn wait(&self, window: SlidingWindowState, left: Span, cost: u64) -> Span {
        match self.fits(window, cost) {
            (Turn::This, then_left) => left.saturating_sub(then_left),
            (Turn::Next, then_left) => {
                left.saturating_add(self.quota.window()).saturating_sub(then_left)
            }
        }
    }

    /// In which window `cost` fits first, and how much of that window is left then.
    #[inline]
    fn fits(&self, window: SlidingWindowState, cost: u64) -> (Turn, Span) {
        let room = self.quota.burst().saturating_sub(cost);
        match room.checked_sub(window.current) {
            // This window's own units leave room: the previous ones have to decay.
            Some(room) => (Turn::This, self.weighs_at_most(window.previous, room)),
            // They do not: they have to decay in the next window, where they are the previous ones.
            None => (Turn::Next, self.weighs_at_most(window.current, room)),
        }
    }

    /// How much of the window is left when `previous` units begin to weigh at most `room`, where
    /// they are more.
    #[inline]
    fn weighs_at_most(&self, previous: u64, room: u64) -> Span {
        Weight::new(self.quota.window(), &self.quota).at_most(previous, room)
    }

    fn decision(
        &self,
        verdict: Verdict,
        window: SlidingWindowState,
        now: Timestamp,
        retry_after: Option<Span>,
    ) -> Decision {
        let limit = self.quota.burst();
        let remaining = limit.saturating_sub(self.used(window, now));
        let until_at = if remaining > 0 {
            let span = self.quota.window();
            Timestamp::start_of(window.index, span).saturating_add(span)
        } else {
            self.admits_at(window, 1)
        };
        Decision { verdict, limit, remaining, retry_after, reset_after: until_at.since(now) }
    }
}

/// The window of the state, or the one after it.
#[derive(Clone, Copy)]
enum Turn {
    This,
    Next,
}

impl Step for SlidingWindow {
    type State = SlidingWindowState;

    fn limit(&self) -> u64 {
        self.quota().burst()
    }

    /// In the window of the state, with possible counts. The estimate is computed once.
    #[inline]
    fn check_fast(
        &self,
        state: SlidingWindowState,
        now: Timestamp,
        cost: u64,
        record: impl FnOnce(SlidingWindowState),
    ) -> Option<Decision> {
        let limit = self.quota.burst();
        // One comparison for both ends: 0 becomes the greatest number.
        if cost.wrapping_sub(1) >= limit {
            return None;
        }
        let left = self.left_fast(state, now)?;
        let used = self.weight(state.previous, left).wrapping_add(state.current);
        Some(match limit.checked_sub(used.wrapping_add(cost)) {
            Some(remaining) => {
                let current = state.current.wrapping_add(cost);
                let next = SlidingWindowState { current, ..state };
                record(next);
                self.answer(next, left, Verdict::Allow, remaining, None)
            }
            None => {
                let retry_after = Some((cost, self.wait(state, left, cost)));
                self.answer(state, left, Verdict::Deny, limit.saturating_sub(used), retry_after)
            }
        })
    }

    #[inline]
    fn look_fast(&self, state: SlidingWindowState, now: Timestamp) -> Option<Decision> {
        let left = self.left_fast(state, now)?;
        let used = self.weight(state.previous, left).wrapping_add(state.current);
        let remaining = self.quota.burst().saturating_sub(used);
        Some(self.answer(state, left, Verdict::Allow, remaining, None))
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
