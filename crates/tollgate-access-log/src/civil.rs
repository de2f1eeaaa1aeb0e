//! From a date and a time of day to nanoseconds since 1970.
//!
//! Invariant: a day that no calendar has is an error, and so is a time that does not fit 64 bits:
//! nothing is clamped. Years are 0 to 9999 of the Gregorian calendar. No clock that counts from
//! 1970 shows leap seconds, so the second 60 is the one after 59.

use crate::counts::Cause;
use crate::record::Time;

/// The parts of a time in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: u32,
    /// 1 to 12.
    pub(crate) month: u32,
    pub(crate) day: u32,
    pub(crate) hour: u32,
    pub(crate) minute: u32,
    pub(crate) second: u32,
    /// Nanoseconds within the second; `None` where the text has no fraction.
    pub(crate) fraction_ns: Option<u32>,
    /// How far the text's clock is ahead of UTC.
    pub(crate) zone_seconds: i64,
}

const DAY_SECONDS: i64 = 86_400;
const SECOND_NS: u64 = 1_000_000_000;
/// Days from the first of March of the year 0 to the first of January 1970.
const TO_1970: i64 = 719_468;

impl Civil {
    /// The time; an error when the calendar has no such day, or 64 bits no such time.
    pub(crate) fn time(self) -> Result<Time, Cause> {
        let is_time = self.hour < 24 && self.minute < 60 && self.second <= 60;
        if !is_time || self.day == 0 || self.day > days_of(self.year, self.month) {
            return Err(Cause::Time);
        }
        let of_day = i64::from(self.hour)
            .wrapping_mul(3600)
            .wrapping_add(i64::from(self.minute).wrapping_mul(60))
            .wrapping_add(i64::from(self.second));
        let seconds = days_since_1970(self.year, self.month, self.day)
            .wrapping_mul(DAY_SECONDS)
            .wrapping_add(of_day)
            .wrapping_sub(self.zone_seconds);
        let seconds = u64::try_from(seconds).map_err(|_| Cause::TimeOutOfRange)?;
        let fraction_ns = u64::from(self.fraction_ns.unwrap_or(0));
        let unix_ns = seconds
            .checked_mul(SECOND_NS)
            .and_then(|ns| ns.checked_add(fraction_ns))
            .ok_or(Cause::TimeOutOfRange)?;
        Ok(Time { unix_ns, is_whole_second: self.fraction_ns.is_none() })
    }
}

/// How many days a month has; 0 for a month that does not exist.
const fn days_of(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => 0,
    }
}

/// Days since 1970-01-01, negative before. Years begin in March here, so that the leap day is the
/// last one. A year has 365 days plus one in every fourth year, and any five months in a row have
/// 153 days.
fn days_since_1970(year: u32, month: u32, day: u32) -> i64 {
    let in_old_year = month <= 2;
    let year = i64::from(year).wrapping_sub(i64::from(in_old_year));
    let month = i64::from(month).wrapping_add(if in_old_year { 9 } else { -3 });
    let day_of_year = month
        .wrapping_mul(153)
        .wrapping_add(2)
        .div_euclid(5)
        .wrapping_add(i64::from(day))
        .wrapping_sub(1);
    year.wrapping_mul(365)
        .wrapping_add(year.div_euclid(4))
        .wrapping_sub(year.div_euclid(100))
        .wrapping_add(year.div_euclid(400))
        .wrapping_add(day_of_year)
        .wrapping_sub(TO_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_follows_the_day_before() {
        let mut expected = days_since_1970(0, 1, 1);
        for year in 0..=9999 {
            for month in 1..=12 {
                for day in 1..=days_of(year, month) {
                    assert_eq!(days_since_1970(year, month, day), expected, "{year}-{month}-{day}");
                    expected += 1;
                }
            }
        }
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 3, 1), 11_017);
        assert_eq!(days_of(2000, 13), 0);
    }
}
