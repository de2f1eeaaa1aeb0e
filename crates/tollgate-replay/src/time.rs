//! Points in time as text.
//!
//! Invariant: UTC and the Gregorian calendar, from 1970 to 2554, which is all a timestamp can say;
//! cut off to whole milliseconds.

use std::fmt;

use serde::{Serialize, Serializer};
use tollgate_core::Timestamp;

const DAY: u64 = 86_400;

/// A point in time, written as `1995-08-01T06:00:00.000Z` (RFC 3339).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Moment {
    /// Milliseconds since 1970, cut off.
    #[must_use]
    pub fn millis(self) -> i64 {
        i64::try_from(self.0.as_nanos() / 1_000_000).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339(self.0))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn rfc3339(at: Timestamp) -> String {
    let millis = at.as_nanos() / 1_000_000;
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (days, second) = (seconds / DAY, seconds % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970 (H. Hinnant, "chrono-compatible low-level date
/// algorithms", civil_from_days, for days that are not negative).
fn civil(days: u64) -> (u64, u64, u64) {
    // From the first of March of year 0, so that a leap day is the last one of its year.
    let days = days.saturating_add(719_468);
    let (era, day) = (days / 146_097, days % 146_097);
    let leap_days = (day / 1460).saturating_sub(day / 36_524).saturating_add(day / 146_096);
    let year = day.saturating_sub(leap_days) / 365;
    let before = year.saturating_mul(365).saturating_add(year / 4).saturating_sub(year / 100);
    let day = day.saturating_sub(before);
    let month = day.saturating_mul(5).saturating_add(2) / 153;
    let first = month.saturating_mul(153).saturating_add(2) / 5;
    let day = day.saturating_sub(first).saturating_add(1);
    let (month, next) = match month {
        0..10 => (month.saturating_add(3), 0),
        _ => (month.saturating_sub(9), 1),
    };
    let year = era.saturating_mul(400).saturating_add(year).saturating_add(next);
    (year, month, day)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (807_256_800_999, "1995-08-01T06:00:00.999Z"),
            (951_782_399_000, "2000-02-28T23:59:59.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_millis(millis)), text);
        }
        assert_eq!(rfc3339(Timestamp::MAX), "2554-07-21T23:34:33.709Z");
    }

    /// Every day after the one before, over two cycles of the calendar.
    #[test]
    fn no_day_is_left_out() {
        let mut last = civil(0);
        for day in 1..213_000 {
            let next = civil(day);
            let (y, m, d) = last;
            let leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
            let length = match m {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let wanted = match (d < length, m < 12) {
                (true, _) => (y, m, d + 1),
                (false, true) => (y, m + 1, 1),
                (false, false) => (y + 1, 1, 1),
            };
            assert_eq!(next, wanted);
            last = next;
        }
    }
}
