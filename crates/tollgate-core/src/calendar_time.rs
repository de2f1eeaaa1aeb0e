//! A point in time as the clocks of a calendar show it.
//!
//! Invariant: the text is a date-time of RFC 3339, section 5.6, with the offset of the calendar. It
//! is the same point in time, rounded down to the second.

use core::fmt;

use crate::calendar::{Calendar, DAY, DAYS_TO_1970, first_day_of, month_index};
use crate::time::{LATEST, Timestamp};

/// A point in time by the clocks of a [`Calendar`]: `2026-12-01T00:00:00+02:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarTime {
    /// Seconds from 0000-03-01 by these clocks.
    local_second: u64,
    utc_offset: i16,
}

impl CalendarTime {
    /// `at` in UTC: `2026-11-30T22:00:00Z`.
    #[must_use]
    pub const fn utc(at: Timestamp) -> Self {
        let since_1970 = at.as_nanos() / 1_000_000_000;
        Self { local_second: (DAYS_TO_1970 * DAY).saturating_add(since_1970), utc_offset: 0 }
    }
}

impl Calendar {
    /// `at` by the clocks of this calendar; after [`LATEST`] that time.
    #[must_use]
    pub fn time_of(&self, at: Timestamp) -> CalendarTime {
        let local_second = self.local_second(at.min(LATEST));
        CalendarTime { local_second, utc_offset: self.utc_offset() }
    }
}

impl fmt::Display for CalendarTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, second) = (self.local_second / DAY, self.local_second % DAY);
        // Months from March of year 0 on; two later from January of it.
        let month = month_index(day);
        let day = day.saturating_sub(first_day_of(month)).saturating_add(1);
        let civil = month.saturating_add(2);
        let (year, month) = (civil / 12, (civil % 12).saturating_add(1));
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.utc_offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.utc_offset < 0 { '-' } else { '+' };
        let minutes = self.utc_offset.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}
