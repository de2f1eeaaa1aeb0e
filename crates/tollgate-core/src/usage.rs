//! The units that a key has used in a period of a calendar: the current one, and the one before.
//!
//! Invariant: a report reads a state and changes nothing. The current period is the window in which
//! a decision at this time counts, and its units are those with which the decision compares.
//! Deliberately not here: units that are held until a response ends. A calendar window counts them
//! as used, and does not know which ones they are.

use crate::algorithms::calendar_window::{CalendarWindow, CalendarWindowState};
use crate::calendar::CalendarSpan;
use crate::encoding::Encoded;
use crate::limiter::Limiter;
use crate::method::Method;
use crate::time::{ALLOWED_SKEW, Span, Timestamp};

/// The units used in two periods of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarUsage {
    /// The period in which a decision counts now.
    pub current: PeriodUsage,
    /// The period before it; `None` before the first one, which contains the beginning of 1970.
    pub previous: Option<PeriodUsage>,
}

/// The units used in one period of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodUsage {
    /// The period.
    pub span: CalendarSpan,
    /// The units charged in it, less those given back. More than the limit after a
    /// [debit](Limiter::debit).
    pub used: u64,
}

impl Limiter {
    /// The units that `state` has used at `now` in the current period of the limiter's calendar and
    /// in the one before; `None` without a calendar, and for bytes that are not a state. Limit
    /// 1,000 per month, 400 used in November and 7 in December: on 24 December 7 and 400.
    ///
    /// A late clock is treated as by [`Limiter::check`]: the current period is then the newest one
    /// that the key was counted in. An earlier period than the previous one is not known.
    #[must_use]
    pub fn usage(&self, state: &[u8], now: Timestamp) -> Option<CalendarUsage> {
        let (window, own) = self.calendar_state(state)?;
        Some(window.usage(own, now))
    }

    /// The time until which `state` has units for [`Limiter::usage`], or decides unlike a state
    /// never seen: the end of the period after the last one with units. At least
    /// [`Limiter::idle_at`], and the same without a calendar.
    #[must_use]
    pub fn reported_until(&self, state: &[u8]) -> Timestamp {
        let reported = self.calendar_state(state).map(|(window, own)| window.reported_until(own));
        self.idle_at(state).max(reported.unwrap_or_default())
    }

    fn calendar_state(&self, state: &[u8]) -> Option<(&CalendarWindow, CalendarWindowState)> {
        let (Method::CalendarWindow(window), (own, _)) = (&self.method, self.split(state)?) else {
            return None;
        };
        Some((window, Encoded::decode(own)))
    }
}

impl CalendarWindow {
    fn usage(&self, state: CalendarWindowState, now: Timestamp) -> CalendarUsage {
        let counted = self.counted(state, now);
        let span = self.calendar().span_of(counted.start_at);
        let current = PeriodUsage { span, used: counted.count };
        let is_first = span.start_at == Timestamp::ZERO;
        let before = span.start_at.saturating_sub(Span::from_nanos(1));
        let previous = (!is_first).then(|| self.calendar().span_of(before));
        let previous = previous.map(|span| {
            let known = self.calendar().span_of(counted.previous_start_at);
            let used = if known == span { counted.previous_count } else { 0 };
            PeriodUsage { span, used }
        });
        CalendarUsage { current, previous }
    }

    fn reported_until(&self, state: CalendarWindowState) -> Timestamp {
        let until = |start_at, count| {
            let end_at = self.calendar().span_of(start_at).end_at;
            let until = self.calendar().span_of(end_at).end_at.saturating_add(ALLOWED_SKEW);
            if count > 0 { until } else { Timestamp::ZERO }
        };
        let newest = until(state.start_at, state.count);
        newest.max(until(state.previous_start_at, state.previous_count))
    }
}
