//! The civil calendar: the hour, day, week or month that contains a point in time.
//!
//! Invariant: the windows of a [`Calendar`] follow each other without a gap from 1970 on, and each
//! point in time is in exactly one of them. The window that contains the beginning of 1970 starts
//! there.
//!
//! Days and months are counted from 0000-03-01 of the proleptic Gregorian calendar: a year that
//! begins in March has its leap day at its end, and no number is negative.
//!
//! Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil` and
//! `civil_from_days`.
//!
//! Deliberately not here: time zones whose offset changes (daylight saving) and leap seconds. A
//! table of them changes several times a year, and programs with different tables would decide
//! differently.

use core::fmt;

use crate::quota::QuotaError;
use crate::time::{LATEST, Span, Timestamp};

/// The largest distance of a [`Calendar`] from UTC, in minutes: 14 hours.
pub const MAX_UTC_OFFSET: i16 = 14 * 60;
/// The highest day of a month on which a window can begin.
pub const MAX_ANCHOR_DAY: u8 = 31;

const HOUR: u64 = 3_600;
pub(crate) const DAY: u64 = 24 * HOUR;
/// Days from 0000-03-01, a Wednesday, to 1970-01-01.
pub(crate) const DAYS_TO_1970: u64 = 719_468;

/// A division of time into civil hours, days, weeks or months, at a fixed distance from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: CalendarUnit,
    utc_offset: i16,
}

/// The length of a window of a [`Calendar`], and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight.
    Day,
    /// Seven days.
    Week {
        /// The day on which it begins.
        start: Weekday,
    },
    /// From a day of one month to the same day of the next, 28 to 31 days.
    Month {
        /// The day, 1 to 31; in a month without it the last.
        anchor_day: u8,
    },
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "their names")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// A window of a calendar: from its start to the start of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarSpan {
    /// The first point in it.
    pub start_at: Timestamp,
    /// The first point after it.
    pub end_at: Timestamp,
}

impl Calendar {
    /// The calendar of this unit, `utc_offset` minutes ahead of UTC. Day and 120: midnight is at
    /// 22:00 UTC.
    ///
    /// # Errors
    /// An offset beyond [`MAX_UTC_OFFSET`], or an anchor day outside 1 to [`MAX_ANCHOR_DAY`].
    pub const fn new(unit: CalendarUnit, utc_offset: i16) -> Result<Self, QuotaError> {
        if utc_offset < -MAX_UTC_OFFSET || utc_offset > MAX_UTC_OFFSET {
            return Err(QuotaError::UtcOffset);
        }
        if let CalendarUnit::Month { anchor_day } = unit
            && (anchor_day == 0 || anchor_day > MAX_ANCHOR_DAY)
        {
            return Err(QuotaError::AnchorDay);
        }
        Ok(Self { unit, utc_offset })
    }

    /// Its unit.
    #[must_use]
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The minutes by which it is ahead of UTC.
    #[must_use]
    pub const fn utc_offset(&self) -> i16 {
        self.utc_offset
    }

    /// The calendar as bytes, for a store of parameters: the unit (1 hour, 2 day, 3 week, 4 month),
    /// the day on which it begins ([`Weekday::number`] or the anchor day, else 0), and the offset
    /// (little-endian).
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 4] {
        let (unit, day) = match self.unit {
            CalendarUnit::Hour => (1, 0),
            CalendarUnit::Day => (2, 0),
            CalendarUnit::Week { start } => (3, start.number()),
            CalendarUnit::Month { anchor_day } => (4, anchor_day),
        };
        let [low, high] = self.utc_offset.to_le_bytes();
        [unit, day, low, high]
    }

    /// The calendar of [these bytes](Self::to_bytes); `None` for any others.
    #[must_use]
    pub fn from_bytes([unit, day, low, high]: [u8; 4]) -> Option<Self> {
        let unit = match (unit, day) {
            (1, 0) => CalendarUnit::Hour,
            (2, 0) => CalendarUnit::Day,
            (3, number) => {
                let start = Weekday::ALL.into_iter().find(|day| day.number() == number)?;
                CalendarUnit::Week { start }
            }
            (4, anchor_day) => CalendarUnit::Month { anchor_day },
            _ => return None,
        };
        Self::new(unit, i16::from_le_bytes([low, high])).ok()
    }

    /// The window that contains `at`; after [`LATEST`] the one that contains it. The anchor 31 on
    /// 1 March 2027: from 28 February to 31 March.
    #[must_use]
    pub fn span_of(&self, at: Timestamp) -> CalendarSpan {
        let local_second = self.local_second(at.min(LATEST));
        let (start, end) = match self.unit {
            CalendarUnit::Hour => {
                let start = floor(local_second, HOUR);
                (start, start.saturating_add(HOUR))
            }
            CalendarUnit::Day => days(local_second / DAY, 1),
            CalendarUnit::Week { start } => {
                let day = local_second / DAY;
                days(day.saturating_sub(start.days_until(day)), 7)
            }
            CalendarUnit::Month { anchor_day } => {
                let (start_day, end_day) = month_of(local_second / DAY, anchor_day.into());
                days(start_day, end_day.saturating_sub(start_day))
            }
        };
        CalendarSpan { start_at: self.utc(start), end_at: self.utc(end) }
    }

    /// Seconds from 0000-03-01 to `at` by the clocks of this calendar.
    pub(crate) fn local_second(&self, at: Timestamp) -> u64 {
        at.since(Timestamp::ZERO).as_secs_floor().saturating_add(self.local_second_of_1970())
    }

    /// The point in time of a second by the clocks of this calendar.
    fn utc(&self, local_second: u64) -> Timestamp {
        let second = local_second.saturating_sub(self.local_second_of_1970());
        Timestamp::ZERO.saturating_add(Span::from_secs(second))
    }

    /// Seconds from 0000-03-01 by the clocks of this calendar to 1970 by UTC.
    fn local_second_of_1970(&self) -> u64 {
        let ahead = i64::from(self.utc_offset).saturating_mul(60);
        (DAYS_TO_1970 * DAY).saturating_add_signed(ahead)
    }
}

impl CalendarSpan {
    /// Its length. The window that contains the beginning of 1970 is shorter than the others.
    #[must_use]
    pub const fn len(&self) -> Span {
        self.end_at.since(self.start_at)
    }
}

impl CalendarUnit {
    /// Its name in words and identities: `month`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week { .. } => "week",
            Self::Month { .. } => "month",
        }
    }

    /// The length of its longest window: 31 days for a month.
    #[must_use]
    pub const fn longest(self) -> Span {
        Span::from_secs(match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Week { .. } => 7 * DAY,
            Self::Month { .. } => 31 * DAY,
        })
    }

    /// The length of its shortest window: 28 days for a month.
    #[must_use]
    pub const fn shortest(self) -> Span {
        match self {
            Self::Month { .. } => Span::from_secs(28 * DAY),
            Self::Hour | Self::Day | Self::Week { .. } => self.longest(),
        }
    }
}

impl Weekday {
    /// All of them, from Monday on.
    pub const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];

    /// Its name in policies: `monday`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monday => "monday",
            Self::Tuesday => "tuesday",
            Self::Wednesday => "wednesday",
            Self::Thursday => "thursday",
            Self::Friday => "friday",
            Self::Saturday => "saturday",
            Self::Sunday => "sunday",
        }
    }

    /// Its number in stored bytes and identities: 1 for Monday to 7 for Sunday (ISO 8601).
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Monday => 1,
            Self::Tuesday => 2,
            Self::Wednesday => 3,
            Self::Thursday => 4,
            Self::Friday => 5,
            Self::Saturday => 6,
            Self::Sunday => 7,
        }
    }

    /// The days from the last such day to `day`, which counts from 0000-03-01: 0 to 6.
    fn days_until(self, day: u64) -> u64 {
        // Day 0 is a Wednesday, so Monday is 2 days before it.
        let since_monday_of_week_0 = day.saturating_add(7 + 2);
        since_monday_of_week_0.saturating_sub(u64::from(self.number()).saturating_sub(1)) % 7
    }
}

/// `month`, `month from day 15, UTC+02:00`, `week from monday`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.unit.name())?;
        match self.unit {
            CalendarUnit::Month { anchor_day: 1 } | CalendarUnit::Day | CalendarUnit::Hour => {}
            CalendarUnit::Month { anchor_day } => write!(f, " from day {anchor_day}")?,
            CalendarUnit::Week { start } => write!(f, " from {}", start.name())?,
        }
        if self.utc_offset == 0 {
            return Ok(());
        }
        let sign = if self.utc_offset < 0 { '-' } else { '+' };
        let minutes = self.utc_offset.unsigned_abs();
        write!(f, ", UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// The days on which the window of a month that contains `day` begins and ends.
fn month_of(day: u64, anchor_day: u64) -> (u64, u64) {
    let month = month_index(day);
    let anchor = anchor_of(month, anchor_day);
    if day >= anchor {
        (anchor, anchor_of(month.saturating_add(1), anchor_day))
    } else {
        (anchor_of(month.saturating_sub(1), anchor_day), anchor)
    }
}

/// The anchor day in the month of this index; its last day where it has no such day.
fn anchor_of(month: u64, anchor_day: u64) -> u64 {
    let first = first_day_of(month);
    let next = first_day_of(month.saturating_add(1));
    first.saturating_add(anchor_day).min(next).saturating_sub(1)
}

/// The month that contains `day`, both counted from 0000-03-01.
pub(crate) fn month_index(day: u64) -> u64 {
    // 400 years are 146,097 days, the last year of 4 has a leap day, that of 100 has none.
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let common_days = day_of_era
        .saturating_sub(day_of_era / 1_460)
        .saturating_add(day_of_era / 36_524)
        .saturating_sub(day_of_era / 146_096);
    let year = era.saturating_mul(400).saturating_add(common_days / 365);
    let day_of_year = day.saturating_sub(first_day_of(year.saturating_mul(12)));
    // From March on, five months have 153 days.
    let month = day_of_year.saturating_mul(5).saturating_add(2) / 153;
    year.saturating_mul(12).saturating_add(month)
}

/// The first day of the month of this index, both counted from 0000-03-01.
pub(crate) fn first_day_of(month: u64) -> u64 {
    let (year, month) = (month / 12, month % 12);
    let leap_days = (year / 4).saturating_sub(year / 100).saturating_add(year / 400);
    let days_of_months = month.saturating_mul(153).saturating_add(2) / 5;
    year.saturating_mul(365).saturating_add(leap_days).saturating_add(days_of_months)
}

/// The first second of `day`, and of the day that is `count` days later.
fn days(day: u64, count: u64) -> (u64, u64) {
    (day.saturating_mul(DAY), day.saturating_add(count).saturating_mul(DAY))
}

/// The last multiple of `unit`, which is not 0, up to `second`.
fn floor(second: u64, unit: u64) -> u64 {
    second.saturating_sub(second.checked_rem(unit).unwrap_or(0))
}
