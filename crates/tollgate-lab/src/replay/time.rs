//! Points in time as text.
//!
//! Invariant: UTC and the Gregorian calendar, from 1970 to 2554, the range of a timestamp;
//! truncated to whole milliseconds.

use std::fmt;

use serde::{Serialize, Serializer};
use tollgate_core::Timestamp;
use tollgate_report::rfc3339;

/// A point in time, written as `1995-08-01T06:00:00.000Z` (RFC 3339).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Moment {
    /// Milliseconds since 1970, truncated.
    #[must_use]
    pub fn millis(self) -> i64 {
        i64::try_from(self.0.as_nanos() / 1_000_000).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339(self.millis()))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
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
            assert_eq!(Moment(Timestamp::from_millis(millis)).to_string(), text);
        }
        assert_eq!(Moment(Timestamp::MAX).to_string(), "2554-07-21T23:34:33.709Z");
    }
}
