//! A limiter: an algorithm with the parameters of one quota, and the penalty of the keys that it
//! denies, if it has one.
//!
//! Invariant: `check` writes the state only when it allows a cost above zero; a denial and a peek
//! leave every byte as it was. The one exception is [`Limiter::punish`] (`punish.rs`), which a
//! caller calls for a denial that counts. A state with a penalty is the algorithm's own and then
//! that of the [penalty](crate::Penalty); the length shows which it is, so the usual case pays
//! nothing for it.

use crate::algorithms::Algorithm;
use crate::algorithms::in_flight::InFlightState;
use crate::algorithms::step::{admit_fast, check_fast, peek_fast};
use crate::calendar::Calendar;
use crate::decision::{Admission, Charge, Decision};
use crate::encoding::Encoded;
use crate::method::Method;
use crate::penalty::{Penalty, PenaltyState};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, Span, Timestamp};

/// The compiled parameters of one quota, which decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    pub(crate) method: Method,
    pub(crate) penalty: Option<Penalty>,
}

/// `Ok` of a limiter without a penalty, or the error: `Result::map` is not const.
macro_rules! plain {
    ($result:expr) => {
        match $result {
            Ok(method) => Ok(Self { method, penalty: None }),
            Err(error) => Err(error),
        }
    };
}

impl Limiter {
    /// The limiter that holds `quota` by `algorithm`.
    ///
    /// # Errors
    /// A quota that this algorithm cannot hold: a strict burst above the limit, a burst for one
    /// that has none, a limit or a number of buckets outside its range.
    pub const fn new(algorithm: Algorithm, quota: Quota) -> Result<Self, QuotaError> {
        plain!(Method::new(algorithm, quota))
    }

    /// The limiter that allows `limit` units in each window of `calendar`, by
    /// [`Algorithm::FixedWindow`]. Its times must be those of a wall clock.
    ///
    /// # Errors
    /// An impossible limit.
    pub const fn new_calendar_window(limit: u64, calendar: Calendar) -> Result<Self, QuotaError> {
        plain!(Method::new_calendar_window(limit, calendar))
    }

    /// A limit on requests in flight: at most `limit` at the same time, whatever their number in a
    /// window. Each is a charge until it is [refunded](Limiter::refund), and has to be
    /// [renewed](Limiter::renew) meanwhile. Its window is `max_age`.
    ///
    /// # Errors
    /// `limit` outside 1 to [`MAX_IN_FLIGHT`](crate::MAX_IN_FLIGHT), `max_age` outside
    /// [`MIN_MAX_AGE`](crate::MIN_MAX_AGE) to [`MAX_MAX_AGE`](crate::MAX_MAX_AGE).
    pub const fn new_concurrency(limit: u64, max_age: Span) -> Result<Self, QuotaError> {
        plain!(Method::new_concurrency(limit, max_age))
    }

    /// The limiter that denies every cost, with no `retry_after`: its limit is 0. `window` is only
    /// reported; zero where there is none.
    ///
    /// # Errors
    /// `window` neither zero nor a possible window.
    pub const fn closed(window: Span) -> Result<Self, QuotaError> {
        match Quota::closed(window) {
            Ok(quota) => Self::new(Algorithm::FixedWindow, quota),
            Err(error) => Err(error),
        }
    }

    /// True for [`Limiter::closed`]: no state of it is ever written.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.limit() == 0
    }

    /// The limiter of a request with a limit of its own, on the same states: it allows the request
    /// where the counted units and the cost are at most `limit`, or at most this limiter's limit if
    /// that is less. 0 denies. Everything else is by this limiter's limit: the length of states,
    /// the bound, what stays of foreign states, debits. Requests with different limits share one
    /// count.
    ///
    /// `None` where a state is a debt and not a count, and with a penalty.
    ///
    /// Limit 100 per minute, 12 used: a request with the limit 10 is denied, one with the limit 20
    /// has 8 left.
    #[must_use]
    pub const fn within(&self, limit: u64) -> Option<Self> {
        let method = match self.method {
            Method::FixedWindow(window) => Method::FixedWindow(window.within(limit)),
            Method::CalendarWindow(window) => Method::CalendarWindow(window.within(limit)),
            Method::SlidingWindow(window) => Method::SlidingWindow(window.within(limit)),
            Method::SlidingBuckets(buckets) => Method::SlidingBuckets(buckets.within(limit)),
            Method::SlidingLog(log) => Method::SlidingLog(log.within(limit)),
            Method::Gcra(_)
            | Method::TokenBucket(_)
            | Method::LeakyBucket(_)
            | Method::LeakyQueue(_)
            | Method::Holds(_)
            | Method::InFlight(_) => return None,
        };
        match self.penalty {
            None => Some(Self { method, penalty: None }),
            Some(_) => None,
        }
    }

    /// Bytes of one state: 8 for GCRA, up to 8,200 for a log of 1024; 16 more with a
    /// [penalty](Limiter::with_penalty).
    #[must_use]
    pub const fn state_len(&self) -> usize {
        let penalty = if self.penalty.is_some() { PenaltyState::LEN } else { 0 };
        self.method.state_len().saturating_add(penalty)
    }

    /// Decides on `cost` quota units at `now` and, when allowed, records them in `state`.
    ///
    /// `state` is [`Limiter::state_len`] bytes, all zero when never seen. Bytes of another length
    /// are not a state of this limiter: the cost is denied, with no `retry_after`. A cost of 0 is
    /// always allowed and changes nothing. Never fails.
    #[inline]
    pub fn check(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        // The usual case of the default; the other algorithms are a call away and do not slow it
        // down.
        let Method::Gcra(gcra) = &self.method else { return self.check_any(state, now, cost) };
        check_fast(gcra, state, now, cost).unwrap_or_else(|| self.check_any(state, now, cost))
    }

    /// Decides as [`Limiter::check`] does, and writes the same bytes, but computes only the verdict
    /// and its one number: for a caller that does not report, or not yet, the remaining units or
    /// when the quota is whole. A caller that needs them afterwards calls [`Limiter::peek`] with a
    /// cost of 0.
    ///
    /// It saves a division and most of the decision: half the instructions for GCRA.
    #[inline]
    pub fn admit(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Admission {
        let Method::Gcra(gcra) = &self.method else { return self.admit_any(state, now, cost) };
        admit_fast(gcra, state, now, cost).unwrap_or_else(|| self.admit_any(state, now, cost))
    }

    /// The decision that [`Limiter::check`] would return, without recording anything. Call this on
    /// several limiters that are to allow all or nothing, then charge them if none denies.
    #[must_use]
    #[inline]
    pub fn peek(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        let Method::Gcra(gcra) = &self.method else { return self.peek_any(state, now, cost) };
        peek_fast(gcra, state, now, cost).unwrap_or_else(|| self.peek_any(state, now, cost))
    }

    /// Each algorithm has its own function, which is jumped to and saves the registers it uses
    /// itself.
    #[inline(never)]
    fn check_any(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        match self.penalty {
            None => self.method.check(state, now, cost),
            Some(_) => self.check_penalised(state, now, cost),
        }
    }

    #[inline(never)]
    fn check_penalised(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        let Some((own, rest)) = self.split_mut(state) else {
            return Decision::of_no_state(self.limit());
        };
        if let Some(left) = self.left(rest, now) {
            return self.method.peek(own, now, cost).in_penalty(left, cost);
        }
        let decision = self.method.check(own, now, cost);
        if decision.is_admitted() && cost > 0 {
            self.forget_foreign(rest, now);
        }
        decision
    }

    #[inline(never)]
    fn admit_any(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Admission {
        Admission::from(&self.check_any(state, now, cost))
    }

    #[inline(never)]
    fn peek_any(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        match self.penalty {
            None => self.method.peek(state, now, cost),
            Some(_) => self.peek_penalised(state, now, cost),
        }
    }

    #[inline(never)]
    fn peek_penalised(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        let Some((own, rest)) = self.split(state) else {
            return Decision::of_no_state(self.limit());
        };
        let decision = self.method.peek(own, now, cost);
        self.left(rest, now).map_or(decision, |left| decision.in_penalty(left, cost))
    }

    /// Takes `charge` back at `now`: the roll-back of layered limits, or the settling of a cost
    /// known only afterwards. At the time of the charge it undoes it exactly; later it gives back
    /// at most what was charged, and never so much that a window exceeds the quota's bound. The
    /// charge must be one that was allowed on this state, and is given back once.
    pub fn refund(&self, state: &mut [u8], charge: Charge, now: Timestamp) {
        if let Some((own, _)) = self.split_mut(state) {
            self.method.refund(own, charge, now);
        }
    }

    /// Confirms at `now` that the request of `charge` is still in flight: from then on its charge
    /// has the time `now`. False when it has expired, because the last confirmation is too long
    /// ago: then nothing counts it, and it must not be refunded unless it is
    /// [counted again](Limiter::count_again). False without any effect for a limiter of quotas.
    ///
    /// Confirm a request every third of `max_age`: a charge is counted for three quarters of it, so
    /// two attempts are in time.
    pub fn renew(&self, state: &mut [u8], charge: Charge, now: Timestamp) -> bool {
        let Method::InFlight(in_flight) = &self.method else { return false };
        if state.len() != InFlightState::LEN {
            return false;
        }
        let renewed = in_flight.renew(InFlightState::decode(state), charge, now);
        if let Some(renewed) = renewed {
            renewed.encode(state);
        }
        renewed.is_some()
    }

    /// Counts a request of `cost` that runs at `now` and [was not counted](Limiter::renew) any
    /// more, whether or not it fits: from then on it is a charge with the time `now`. Nothing for a
    /// limiter of quotas.
    pub fn count_again(&self, state: &mut [u8], now: Timestamp, cost: u64) {
        if let (Method::InFlight(in_flight), InFlightState::LEN) = (&self.method, state.len()) {
            in_flight.count_again(InFlightState::decode(state), now, cost).encode(state);
        }
    }

    /// The time after which a request that nothing confirmed is no longer counted; `None` unless it
    /// limits requests in flight.
    #[must_use]
    pub const fn max_age(&self) -> Option<Span> {
        if let Method::InFlight(in_flight) = &self.method {
            Some(in_flight.quota().window())
        } else {
            None
        }
    }

    /// The time from which `state` decides like a state never seen: a store may forget it then,
    /// without loss. [`Timestamp::ZERO`] for bytes that are not a state of this limiter.
    #[must_use]
    pub fn idle_at(&self, state: &[u8]) -> Timestamp {
        let Some((own, rest)) = self.split(state) else { return Timestamp::ZERO };
        let idle_at = self.method.idle_at(own);
        self.penalty
            .map_or(idle_at, |penalty| idle_at.max(penalty.idle_at(PenaltyState::decode(rest))))
    }

    /// A time before which `units` more cannot have been allowed, one after the other, on a key
    /// whose last decision by this limiter is `decision`, provided that nothing is given back: the
    /// least wait of a request with the rest of these units ahead of it.
    ///
    /// GCRA and its kin: the exact time. The fixed window: the exact time, if the costs divide the
    /// limit. For the others only the number of remaining units is known here, not when the used
    /// ones leave: at most one window too early.
    #[must_use]
    pub fn soonest(&self, decision: &Decision, units: u64) -> Span {
        self.method.soonest(decision, units)
    }

    /// The algorithm that decides; for a limit on requests in flight, which is no algorithm of
    /// quotas, [`Algorithm::FixedWindow`]: a count without a burst.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.method.algorithm()
    }

    /// Its name in reports: that of its algorithm, or `concurrency` for requests in flight.
    #[must_use]
    pub const fn counts_by(&self) -> &'static str {
        if self.max_age().is_some() { "concurrency" } else { self.algorithm().name() }
    }

    /// The limiter's quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        self.method.quota()
    }

    /// The calendar whose windows it counts in; `None` where all windows have one length.
    #[must_use]
    pub const fn calendar(&self) -> Option<&Calendar> {
        self.method.calendar()
    }

    /// The quota's limit, in quota units per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.quota().limit()
    }

    /// The quota's window; the longest where a calendar gives them different lengths.
    #[must_use]
    pub const fn window(&self) -> Span {
        self.quota().window()
    }

    /// The length of the window at `now`: in February less than [`Limiter::window`] by a calendar
    /// of months.
    #[must_use]
    pub fn window_at(&self, now: Timestamp) -> Span {
        self.calendar().map_or(self.window(), |calendar| calendar.span_of(now).len())
    }

    /// The greatest cost that can ever be allowed: the burst, which is the limit where there is no
    /// burst. A greater one is denied with no `retry_after`.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.quota().burst()
    }

    /// The documented bound: quota units allowed at most in any half-open interval as long as the
    /// quota's window, wherever it starts, while the clock does not go back. Limit 10 per minute:
    /// 19 by GCRA, 20 by the fixed and the sliding window, 10 by the log. A limit on requests in
    /// flight has no such bound: it is [`u64::MAX`].
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        self.method.max_in_window()
    }

    /// The rest of the penalty that runs at `now`, by its part of a state.
    pub(crate) fn left(&self, rest: &[u8], now: Timestamp) -> Option<Span> {
        let now = now.min(LATEST);
        let until = self.penalty?.seen(PenaltyState::decode(rest), now).until;
        until.checked_since(now).filter(|left| *left > Span::ZERO)
    }

    /// Clears a penalty that another clock has set, as the charge overwrites a foreign debt.
    fn forget_foreign(&self, rest: &mut [u8], now: Timestamp) {
        let state = PenaltyState::decode(rest);
        if self.penalty.is_some_and(|penalty| penalty.seen(state, now.min(LATEST)) != state) {
            rest.fill(0);
        }
    }

    /// The algorithm's part of a state and that of the penalty, which is empty where there is none;
    /// `None` for bytes that are not a state.
    pub(crate) fn split<'s>(&self, state: &'s [u8]) -> Option<(&'s [u8], &'s [u8])> {
        let parts = state.split_at_checked(self.method.state_len())?;
        (state.len() == self.state_len()).then_some(parts)
    }

    /// The same, writable.
    pub(crate) fn split_mut<'s>(
        &self,
        state: &'s mut [u8],
    ) -> Option<(&'s mut [u8], &'s mut [u8])> {
        let is_state = state.len() == self.state_len();
        state.split_at_mut_checked(self.method.state_len()).filter(|_| is_state)
    }
}
