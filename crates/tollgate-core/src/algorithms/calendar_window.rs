//! Calendar window: a counter per civil hour, day, week or month.
//!
//! State: the start of the window and the units counted in it, then the same of the window that was
//! counted before it. The start is a point in time and not an index, so that it means the same
//! under every calendar. With `start(now)` the start of the window that contains `now`
//! ([`Calendar`]), a cost is allowed when `count + cost <= limit`.
//!
//! Bound: `2 x limit` across a boundary, as by the fixed window. A quota's window is the longest of
//! its calendar, and 31 days can contain the 28 of a February with a part of either neighbour:
//! `3 x limit` for months.
//!
//! Source: common practice of billing periods; `calendar.rs` names the source of its arithmetic.
//!
//! Deliberately not here: a fast way for the usual case, because finding the civil window takes
//! most of a decision. The earlier window decides nothing; it is there for a report of what was
//! used.

use crate::algorithms::skew::{is_foreign, kept, most_counted};
use crate::algorithms::step::Step;
use crate::calendar::{Calendar, CalendarUnit};
use crate::decision::{Charge, Decision};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{ALLOWED_SKEW, LATEST, Timestamp};

/// The parameters of the calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    pub(super) quota: Quota,
    calendar: Calendar,
}

/// The state of the calendar window. All zero is "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalendarWindowState {
    /// The start of the window.
    pub start_at: Timestamp,
    /// The units allowed in that window.
    pub count: u64,
    /// The start of the window that was counted before.
    pub previous_start_at: Timestamp,
    /// The units allowed in that one.
    pub previous_count: u64,
}

impl CalendarWindow {
    /// The parameters for `limit` units in each window of `calendar`.
    ///
    /// # Errors
    /// An impossible limit.
    pub const fn new(limit: u64, calendar: Calendar) -> Result<Self, QuotaError> {
        match Quota::new(limit, calendar.unit().longest()) {
            Ok(quota) => Ok(Self { quota, calendar }),
            Err(error) => Err(error),
        }
    }

    /// The decision on `cost` at `now` and the state after it; the same state when denied or when
    /// `cost` is 0. Never fails.
    #[must_use]
    pub fn check(
        &self,
        state: CalendarWindowState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, CalendarWindowState) {
        let now = now.min(LATEST);
        let allowed = self.quota.burst();
        let (window, end_at) = self.bring_to(state, now, cost, allowed);
        let decision = Decision::of_count(allowed, window.count, cost, end_at.since(now));
        if !decision.is_admitted() || cost == 0 {
            return (decision, state);
        }
        let window = match self.quota.limit() {
            limit if limit == allowed => window,
            limit => self.bring_to(state, now, cost, limit).0,
        };
        (decision, CalendarWindowState { count: window.count.saturating_add(cost), ..window })
    }

    /// The state with `charge` taken back at `now`: exact in the window that is counted and in the
    /// one before. Units that a late clock charged to the next window stay charged.
    #[must_use]
    pub fn refund(
        &self,
        state: CalendarWindowState,
        charge: Charge,
        now: Timestamp,
    ) -> CalendarWindowState {
        if is_foreign(charge.at.min(LATEST), now) {
            return state;
        }
        let charged_in = self.calendar.span_of(charge.at).start_at;
        if charged_in == state.start_at {
            CalendarWindowState { count: state.count.saturating_sub(charge.cost), ..state }
        } else if charged_in == state.previous_start_at {
            let previous_count = state.previous_count.saturating_sub(charge.cost);
            CalendarWindowState { previous_count, ..state }
        } else {
            state
        }
    }

    /// The state after a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    #[must_use]
    pub fn debit(
        &self,
        state: CalendarWindowState,
        units: u64,
        now: Timestamp,
    ) -> CalendarWindowState {
        let limit = self.quota.limit();
        let (window, _) = self.bring_to(state, now.min(LATEST), units.min(limit), limit);
        let most = most_counted(limit).max(window.count);
        CalendarWindowState { count: window.count.saturating_add(units).min(most), ..window }
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten: the end
    /// of its window, or its start when nothing is counted in it, and [`ALLOWED_SKEW`] later,
    /// because a wall clock may be set back by that much.
    #[must_use]
    pub fn idle_at(&self, state: CalendarWindowState) -> Timestamp {
        if state == CalendarWindowState::default() {
            return Timestamp::ZERO;
        }
        let window = self.calendar.span_of(state.start_at);
        // Before the start, a late clock still gets the end of this window.
        let idle_at = if state.count == 0 { window.start_at } else { window.end_at };
        idle_at.saturating_add(ALLOWED_SKEW)
    }

    /// The algorithm's quota; its window is the longest of the calendar.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The algorithm's calendar.
    #[must_use]
    pub const fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// Units allowed at most in any half-open window as long as the quota's: 2 x limit, or 3 x
    /// limit for months.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        self.quota.limit().saturating_mul(match self.calendar.unit() {
            CalendarUnit::Month { .. } => 3,
            CalendarUnit::Hour | CalendarUnit::Day | CalendarUnit::Week { .. } => 2,
        })
    }

    /// The state of the window that a decision at `now` counts in.
    pub(crate) fn counted(
        &self,
        state: CalendarWindowState,
        now: Timestamp,
    ) -> CalendarWindowState {
        self.bring_to(state, now.min(LATEST), 0, self.quota.limit()).0
    }

    /// The window that `now` counts in, and its end. Any start is a state: it belongs to the window
    /// that contains it. A foreign count is kept as far as `cost` fits in `limit`.
    fn bring_to(
        &self,
        state: CalendarWindowState,
        now: Timestamp,
        cost: u64,
        limit: u64,
    ) -> (CalendarWindowState, Timestamp) {
        let current = self.calendar.span_of(now);
        let counted_at = state.start_at.min(LATEST);
        if counted_at < current.start_at {
            let next = CalendarWindowState {
                start_at: current.start_at,
                count: 0,
                previous_start_at: state.start_at,
                previous_count: state.count,
            };
            return (next, current.end_at);
        }
        let in_current = CalendarWindowState { start_at: current.start_at, ..state };
        if counted_at < current.end_at {
            return (in_current, current.end_at);
        }
        let counted = self.calendar.span_of(counted_at);
        if !is_foreign(counted.start_at, now) {
            return (CalendarWindowState { start_at: counted.start_at, ..state }, counted.end_at);
        }
        let count = kept(state.count, limit, cost);
        let foreign =
            CalendarWindowState { start_at: current.start_at, count, ..Default::default() };
        (foreign, current.end_at)
    }
}

impl Step for CalendarWindow {
    type State = CalendarWindowState;

    fn limit(&self) -> u64 {
        self.quota().burst()
    }

    fn check_slow(
        &self,
        state: CalendarWindowState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, CalendarWindowState) {
        self.check(state, now, cost)
    }
}

impl Encoded for CalendarWindowState {
    const LEN: usize = 32;

    fn decode(bytes: &[u8]) -> Self {
        let time = |index| Timestamp::from_nanos(read_u64(bytes, index));
        Self {
            start_at: time(0),
            count: read_u64(bytes, 1),
            previous_start_at: time(2),
            previous_count: read_u64(bytes, 3),
        }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.start_at.as_nanos());
        write_u64(bytes, 1, self.count);
        write_u64(bytes, 2, self.previous_start_at.as_nanos());
        write_u64(bytes, 3, self.previous_count);
    }
}
