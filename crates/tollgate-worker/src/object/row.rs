//! Where an object stores its row, and when an alarm may delete it.
//!
//! Invariant: the format of a row is part of its table's name, so a new format is a new table.
//! [`Counts`](tollgate_storage::Counts) defines the bytes of a row.

use tollgate_core::{Span, Timestamp};

/// Creates the table; only an object that allowed a request has one.
pub(crate) const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS state_v2 (id INTEGER PRIMARY KEY, row BLOB NOT NULL)";

/// Finds the table, without an error when there is none.
pub(crate) const FIND: &str = "SELECT name FROM sqlite_master WHERE name = 'state_v2'";

/// Reads the row.
pub(crate) const LOAD: &str = "SELECT row FROM state_v2 WHERE id = 0";

/// Writes the row: one row written, whether it was there or not.
pub(crate) const SAVE: &str = "INSERT INTO state_v2 (id, row) VALUES (0, ?) ON CONFLICT (id) DO UPDATE SET row = excluded.row";

/// The shortest time from a commit to the alarm it sets, and so the longest time that idle storage
/// stays. Deleting and creating an object again costs four rows, and storing it costs as much in
/// some fifty days, so the object of a client that comes at least once a day stays. Ten seconds
/// would cost a client with one request per second two rows in five requests.
const MIN_ALARM_AFTER: Span = Span::from_secs(86_400);

/// The longest: a window of 366 days twice, because the platform requires a date.
const MAX_ALARM_AFTER: Span = Span::from_secs(2 * 366 * 86_400);

/// Removes the table.
pub(crate) const FORGET: &str = "DROP TABLE IF EXISTS state_v2";

/// When the alarm must ring for a row that is idle at `idle_at`, while one is set for `set_at`.
///
/// An alarm that has not rung yet stays: setting one costs a row, and when it finds the row live it
/// is set again. So there is at most one per window.
pub(crate) fn alarm_at(set_at: Timestamp, idle_at: Timestamp, now: Timestamp) -> Timestamp {
    let latest = now.saturating_add(MAX_ALARM_AFTER);
    if set_at > now && set_at <= latest {
        return set_at;
    }
    idle_at.max(now.saturating_add(MIN_ALARM_AFTER)).min(latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Span::from_secs(seconds))
    }

    // `set_at`, `idle_at`, `now` and the expected alarm, in seconds.
    #[test]
    fn alarms_are_set_once_per_window_and_not_for_less_than_a_day() {
        const DAY: u64 = 86_400;
        for (set, idle, now, expected) in [
            (0, 1_000 + 3 * DAY, 1_000, 1_000 + 3 * DAY), // the first commit
            (1_000 + DAY, 5_000 + DAY, 5_000, 1_000 + DAY), // one is to come: kept
            (1_000, 1_060, 1_000, 1_000 + DAY),           // it rang and the row is live
            (0, 1_000, 1_000, 1_000 + DAY),               // idle at once: not before a day
            (9 * 365 * DAY, 1_120, 1_000, 1_000 + DAY),   // set by a clock that ran ahead for years
        ] {
            assert_eq!(alarm_at(at(set), at(idle), at(now)), at(expected), "{set} {idle} {now}");
        }
        let never = alarm_at(Timestamp::ZERO, Timestamp::MAX, at(1_000));
        assert_eq!(never, at(1_000).saturating_add(MAX_ALARM_AFTER));
    }
}
