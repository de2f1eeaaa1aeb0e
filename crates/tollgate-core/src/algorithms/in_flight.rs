//! A limit on requests in flight: how many of one key run at the same time.
//!
//! A request that is allowed is counted until it ends ([`InFlight::release`]). Its process confirms
//! it meanwhile ([`InFlight::renew`]), because one that stops can confirm nothing: a request that
//! was not confirmed for `max_age` is no longer counted. So the state is not one number but four:
//! time is divided into parts of `max_age / 4`, and a request is counted in the part in which it
//! was allowed or last confirmed. A part expires `max_age` after its start, so a request is counted
//! for more than three quarters of `max_age`, and at most all of it.
//!
//! ```text
//! counted      = the sum of the parts that have not expired
//! allowed      when counted + cost <= limit; then counted in the part of now
//! release(at)  lowers the part of `at`; where that is empty, the next later one
//! renew(at)    releases what is counted; then counts it in the part of now, fit or not
//! ```
//!
//! Bound: while every request is confirmed in time and the state is not lost, at most `limit` run
//! at once. The state names no process, and need not: units are alike, so the sum is right when
//! each request is released once. One that is confirmed twice, because the reply was lost, leaves
//! the sum as it is: a request that finds its own part empty takes a unit from a later one.
//!
//! A state that was lost (evicted, or of a server that restarted) begins again at `since`, the time
//! of its first request. A request of an earlier time is not in it: its end releases nothing, so it
//! frees no unit of another, and each confirmation by its old time counts it again. A confirmation
//! that is repeated then counts one request twice, for at most `max_age`.
//!
//! Deliberately not here: who confirms, and when; a list of the requests or of their processes.
//! Such a list has a longest length and costs every key memory; these are 32 bytes.

use crate::algorithms::skew::is_foreign;
use crate::algorithms::step::Step;
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, Span, Timestamp};

/// The most requests of one key in flight that can be allowed.
pub const MAX_IN_FLIGHT: u64 = 1_000_000;
/// The shortest time after which an unconfirmed request is no longer counted: 1 s.
pub const MIN_MAX_AGE: Span = Span::from_secs(1);
/// The longest: 1 day.
pub const MAX_MAX_AGE: Span = Span::from_secs(86_400);

/// The number of parts that are counted.
const PARTS: usize = 4;

/// A limit on requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The limit; its window is `max_age`.
    quota: Quota,
    /// `max_age / 4`, rounded down, in nanoseconds.
    part: u64,
}

/// The requests of one key in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlightState {
    /// The time of the first request that can be counted.
    since: Timestamp,
    /// The number of the newest part since the epoch.
    newest: u64,
    /// The units of the newest part, and of those before it.
    counts: [u32; PARTS],
}

impl InFlight {
    /// At most `limit` at once, each confirmed within `max_age`.
    ///
    /// # Errors
    /// `limit` outside 1 to [`MAX_IN_FLIGHT`], or `max_age` outside [`MIN_MAX_AGE`] to
    /// [`MAX_MAX_AGE`].
    pub const fn new(limit: u64, max_age: Span) -> Result<Self, QuotaError> {
        if limit > MAX_IN_FLIGHT {
            return Err(QuotaError::LimitOfAlgorithm { max_limit: MAX_IN_FLIGHT });
        }
        let age = max_age.as_nanos();
        if age < MIN_MAX_AGE.as_nanos() || age > MAX_MAX_AGE.as_nanos() {
            return Err(QuotaError::MaxAge);
        }
        match Quota::new(limit, max_age) {
            Ok(quota) => Ok(Self { quota, part: age / 4 }),
            Err(error) => Err(error),
        }
    }

    /// The decision on `cost` more at `now`, and the state after it. A denial has no time after
    /// which it ends: a request in flight ends when it does.
    #[must_use]
    pub fn check(
        &self,
        state: InFlightState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, InFlightState) {
        let now = now.min(LATEST);
        let current = self.at(state, now);
        let (limit, counted) = (self.quota.limit(), current.counted());
        let after = counted.saturating_add(cost);
        let (verdict, counted) = if after > limit && cost > 0 {
            (Verdict::Deny, counted)
        } else {
            (Verdict::Allow, after)
        };
        let remaining = limit.saturating_sub(counted);
        let decision =
            Decision { verdict, limit, remaining, retry_after: None, reset_after: Span::ZERO };
        if verdict == Verdict::Deny || cost == 0 {
            return (decision, state);
        }
        (decision, self.counting(current, now, cost))
    }

    /// The state after the end of a request that was allowed, or last confirmed, by `charge`. One
    /// that expired, or was allowed before the state began, releases nothing.
    #[must_use]
    pub fn release(&self, state: InFlightState, charge: Charge, now: Timestamp) -> InFlightState {
        let mut current = self.at(state, now.min(LATEST));
        // A counted charge is never newer than its state: that one is of a clock that was set back.
        if charge.at < current.since || self.part_of(charge.at) > current.newest {
            return current;
        }
        let Some(oldest) = self.index_of(current, charge.at) else { return current };
        let mut left = charge.cost;
        for count in current.counts.iter_mut().take(oldest.saturating_add(1)).rev() {
            let taken = left.min(u64::from(*count));
            *count = count.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
            left = left.saturating_sub(taken);
        }
        current.or_none()
    }

    /// The state after the request of `charge` was confirmed at `now`: from then on it is the
    /// charge with `now` as its time. `None` when it has expired: it is not counted, and must not
    /// be released.
    #[must_use]
    pub fn renew(
        &self,
        state: InFlightState,
        charge: Charge,
        now: Timestamp,
    ) -> Option<InFlightState> {
        let now = now.min(LATEST);
        let age = self.part_of(now).saturating_sub(self.part_of(charge.at));
        let has_expired = age >= PARTS_IN_TIME;
        let released = self.release(state, charge, now);
        let mut next = self.counting(released, now, charge.cost);
        // The only request of a key stays one of the same state: its earlier charge, which is all
        // that its process has when the reply is lost, still releases it.
        let since = self.at(state, now).since;
        if since != Timestamp::ZERO {
            next.since = since;
        }
        (!has_expired).then_some(next)
    }

    /// The state with a request of `cost` that runs and was not counted any more, whether or not it
    /// fits.
    #[must_use]
    pub fn count_again(&self, state: InFlightState, now: Timestamp, cost: u64) -> InFlightState {
        let now = now.min(LATEST);
        self.counting(self.at(state, now), now, cost)
    }

    /// The time from which `state` decides like one never seen: when its newest part expires.
    #[must_use]
    pub fn idle_at(&self, state: InFlightState) -> Timestamp {
        let Some(newest) = state.counts.iter().position(|count| *count > 0) else {
            return Timestamp::ZERO;
        };
        let newest = u64::try_from(newest).unwrap_or(0);
        let end = state.newest.saturating_sub(newest).saturating_add(PARTS_IN_TIME);
        Timestamp::from_nanos(end.saturating_mul(self.part))
    }

    /// The requests that `old` counts, under this limit: all of them, in the part of `now` where
    /// the parts are of another length. No time starts again for longer than one `max_age`.
    #[must_use]
    pub(crate) fn carried(
        &self,
        old: &Self,
        state: InFlightState,
        now: Timestamp,
    ) -> InFlightState {
        let current = old.at(state, now);
        if self.part == old.part || current == InFlightState::default() {
            return current;
        }
        let none = InFlightState { since: current.since, ..InFlightState::default() };
        self.counting(none, now, current.counted())
    }

    /// The requests in flight at `now`: those that were confirmed in time.
    pub(crate) fn counted(&self, state: InFlightState, now: Timestamp) -> u64 {
        self.at(state, now.min(LATEST)).counted()
    }

    /// The limit; its window is `max_age`.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The state as it is at `now`: without what has expired. A clock that is late changes nothing;
    /// a state that no clock can have left counts nothing.
    fn at(&self, state: InFlightState, now: Timestamp) -> InFlightState {
        let newest_at = Timestamp::from_nanos(state.newest.saturating_mul(self.part));
        if is_foreign(newest_at, now) {
            return InFlightState::default();
        }
        let now = self.part_of(now);
        let Some(later) = now.checked_sub(state.newest).filter(|later| *later > 0) else {
            return state;
        };
        let mut counts = [0; PARTS];
        let later = usize::try_from(later).unwrap_or(PARTS);
        for (count, before) in counts.iter_mut().skip(later).zip(state.counts) {
            *count = before;
        }
        InFlightState { newest: now, counts, ..state }.or_none()
    }

    /// `state` with `units` more in the part of `now`; `state` is as it is then.
    fn counting(&self, state: InFlightState, now: Timestamp, units: u64) -> InFlightState {
        let mut next = state;
        if state.counts == [0; PARTS] {
            let is_new = state.since == Timestamp::ZERO;
            next.since = if is_new { now } else { state.since };
            next.newest = self.part_of(now);
        }
        next.since = next.since.min(now);
        // A clock that is late by a whole `max_age` leaves a unit that only expires.
        let index = self.index_of(next, now).unwrap_or(0);
        if let Some(count) = next.counts.get_mut(index) {
            *count = count.saturating_add(u32::try_from(units).unwrap_or(u32::MAX));
        }
        next
    }

    /// The index among the counts of the part of `at`; `None` when it has expired.
    fn index_of(&self, state: InFlightState, at: Timestamp) -> Option<usize> {
        let index = state.newest.saturating_sub(self.part_of(at));
        usize::try_from(index).ok().filter(|index| *index < PARTS)
    }

    /// The number of the part that contains `at`.
    const fn part_of(&self, at: Timestamp) -> u64 {
        match at.as_nanos().checked_div(self.part) {
            Some(part) => part,
            None => 0, // it is at least 250 ms
        }
    }
}

/// [`PARTS`], as a number of parts of time.
const PARTS_IN_TIME: u64 = 4;

impl InFlightState {
    fn counted(self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(u64::from(*count)))
    }

    /// The state of a key without requests in flight is that of one never seen.
    fn or_none(self) -> Self {
        if self.counts == [0; PARTS] { Self::default() } else { self }
    }
}

impl Step for InFlight {
    type State = InFlightState;

    fn limit(&self) -> u64 {
        self.quota.limit()
    }

    fn check_slow(
        &self,
        state: InFlightState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, InFlightState) {
        self.check(state, now, cost)
    }
}

impl Encoded for InFlightState {
    const LEN: usize = 32;

    fn decode(bytes: &[u8]) -> Self {
        let pair = |index| {
            let [a, b, c, d, e, f, g, h] = read_u64(bytes, index).to_le_bytes();
            [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
        };
        let ([first, second], [third, fourth]) = (pair(2), pair(3));
        Self {
            since: Timestamp::from_nanos(read_u64(bytes, 0)),
            newest: read_u64(bytes, 1),
            counts: [first, second, third, fourth],
        }
    }

    fn encode(self, bytes: &mut [u8]) {
        let [first, second, third, fourth] = self.counts.map(u64::from);
        write_u64(bytes, 0, self.since.as_nanos());
        write_u64(bytes, 1, self.newest);
        write_u64(bytes, 2, first | (second << 32));
        write_u64(bytes, 3, third | (fourth << 32));
    }
}
