//! Limiters with a penalty: the denial that starts it, and its end before its time.
//!
//! Invariant: a penalty that runs is never changed, so it is one step however many requests are
//! denied. Deliberately not here: which denials count, which is for the caller to decide: not those
//! of looks, of rules that only watch, or of another rule.

use crate::encoding::Encoded;
use crate::limiter::Limiter;
use crate::method::Method;
use crate::penalty::{Penalty, PenaltyState};
use crate::time::{LATEST, Span, Timestamp};

impl Limiter {
    /// The same limiter with a penalty: [`Limiter::punish`] starts it, and while it runs every cost
    /// above zero is denied with [`Verdict::Penalty`](crate::Verdict::Penalty), and none remain.
    /// States are 16 bytes longer. `None` for `leaky-queue`, whose requests wait, and for a limit
    /// on requests in flight, which says nothing about how many were sent.
    #[must_use]
    pub const fn with_penalty(self, penalty: Penalty) -> Option<Self> {
        match self.method {
            Method::LeakyQueue(_) | Method::InFlight(_) => None,
            method => Some(Self { method, penalty: Some(penalty) }),
        }
    }

    /// Its penalty.
    #[must_use]
    pub const fn penalty(&self) -> Option<&Penalty> {
        self.penalty.as_ref()
    }

    /// Starts the penalty of a key that is denied `cost` at `now`; true when that changed `state`.
    /// Nothing changes while a penalty runs, where the cost is allowed or can never be, and where
    /// only [held](Limiter::with_holds) units are in its way, which may come back. Nor by an
    /// algorithm that keeps a debt where the cost fits within half of the time of one unit, at most
    /// a second: processes that read their clocks before they meet are apart by that much.
    pub fn punish(&self, state: &mut [u8], now: Timestamp, cost: u64) -> bool {
        let Some(penalty) = self.penalty else { return false };
        let Some((own, rest)) = self.split_mut(state) else { return false };
        let now = now.min(LATEST);
        let before = penalty.seen(PenaltyState::decode(rest), now);
        let decision = self.method.peek(own, now, cost);
        let is_offence =
            before.until <= now && decision.retry_after.is_some_and(|wait| wait > self.grace());
        if !is_offence || !self.denies_used(own, now, cost) {
            return false;
        }
        penalty.begun(before, now).encode(rest);
        true
    }

    /// Ends a penalty, and forgets the steps that were taken; true when that changed `state`.
    pub fn pardon(&self, state: &mut [u8]) -> bool {
        let Some((_, rest)) = self.split_mut(state) else { return false };
        let is_changed = rest.iter().any(|byte| *byte != 0);
        rest.fill(0);
        is_changed
    }

    /// The end of the penalty that runs at `now`, and the number of its step, from 1; `None` where
    /// none runs.
    #[must_use]
    pub fn penalty_at(&self, state: &[u8], now: Timestamp) -> Option<(Timestamp, u64)> {
        let penalty = self.penalty?;
        let (_, rest) = self.split(state)?;
        let PenaltyState { until, steps } = penalty.seen(PenaltyState::decode(rest), now);
        (until > now).then_some((until, steps))
    }

    /// Writes to `rest` the penalty in `earlier`, of the limiter `old`, as far as this one has one.
    pub(crate) fn carry_penalty(
        &self,
        old: &Self,
        earlier: &[u8],
        now: Timestamp,
        rest: &mut [u8],
    ) {
        let (Some(penalty), Some(before)) = (self.penalty, old.penalty) else { return };
        let state = before.seen(PenaltyState::decode(earlier), now);
        let until = state.until.min(now.saturating_add(penalty.longest()));
        PenaltyState { until, ..state }.encode(rest);
    }

    /// The longest wait of a denial that is no offence.
    fn grace(&self) -> Span {
        let method = &self.method;
        let rate =
            if let Method::Holds(holds) = method { Some(holds.rate()) } else { method.meter() };
        let Some(rate) = rate else { return Span::ZERO };
        let half = Span::from_nanos(rate.emission_interval().as_nanos().div_ceil(2));
        half.min(Span::from_secs(1))
    }

    /// True where the used units alone deny.
    fn denies_used(&self, own: &[u8], now: Timestamp, cost: u64) -> bool {
        match &self.method {
            Method::Holds(holds) => holds.denies_used(own, now, cost),
            Method::Gcra(_)
            | Method::TokenBucket(_)
            | Method::LeakyBucket(_)
            | Method::LeakyQueue(_)
            | Method::FixedWindow(_)
            | Method::SlidingWindow(_)
            | Method::SlidingBuckets(_)
            | Method::SlidingLog(_)
            | Method::CalendarWindow(_)
            | Method::InFlight(_) => true,
        }
    }
}
