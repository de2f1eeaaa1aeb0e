//! What an object keeps: one row of bytes, and when an alarm may delete it.
//!
//! Invariant: any bytes decode to something or to `None`, never to a panic. What the value means is
//! the policy's business. The layout is part of the table's name: a new layout is a new table.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | identity of the key's group of rules, little-endian |
//! | 8 | the alarm that is set, nanoseconds since 1970, little-endian |
//! | n | the group's value |

use tollgate_core::{Span, Timestamp};
use tollgate_policy::is_value;

/// Creates the table; only an object that admitted something has one.
pub(crate) const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS state_v1 (id INTEGER PRIMARY KEY, row BLOB NOT NULL)";

/// Finds out whether there is one, without an error when not.
pub(crate) const FIND: &str = "SELECT 1 FROM sqlite_master WHERE name = 'state_v1'";

/// Reads the row.
pub(crate) const LOAD: &str = "SELECT row FROM state_v1 WHERE id = 0";

/// Removes a row that is none.
pub(crate) const CLEAR: &str = "DELETE FROM state_v1";

/// Writes the row: one row written, whether it was there or not.
pub(crate) const SAVE: &str = "INSERT INTO state_v1 (id, row) VALUES (0, ?) ON CONFLICT (id) DO UPDATE SET row = excluded.row";

/// The shortest time from a commit to the alarm it sets. Short windows are idle at once; without
/// this every request would set an alarm and every alarm would delete what the next request writes.
const MIN_ALARM_AFTER: Span = Span::from_secs(10);

/// The longest: a window of 366 days twice, as the platform wants a date.
const MAX_ALARM_AFTER: Span = Span::from_secs(2 * 366 * 86_400);

/// How long storage is kept before looking again while the policy cannot be read.
pub(crate) const RETRY_ALARM_AFTER: Span = Span::from_secs(3_600);

/// The row of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Which rules' state it is; `Group::identity`.
    pub(crate) group: u64,
    /// The alarm that is set.
    pub(crate) alarm_at: Timestamp,
    /// The state.
    pub(crate) value: Vec<u8>,
}

impl Row {
    /// The bytes to write.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.value.len().saturating_add(16));
        bytes.extend_from_slice(&self.group.to_le_bytes());
        bytes.extend_from_slice(&self.alarm_at.as_nanos().to_le_bytes());
        bytes.extend_from_slice(&self.value);
        bytes
    }

    /// The row in `bytes`; `None` when no policy wrote them.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (group, rest) = bytes.split_first_chunk()?;
        let (alarm_at, value) = rest.split_first_chunk()?;
        is_value(value).then(|| Self {
            group: u64::from_le_bytes(*group),
            alarm_at: Timestamp::from_nanos(u64::from_le_bytes(*alarm_at)),
            value: value.to_vec(),
        })
    }
}

/// When the alarm must ring for a value that is idle at `idle_at`, while one is set for `set_at`.
///
/// An alarm that is still to come stays: setting one costs a row, and when it finds the value live
/// it is set again. So there is at most one per window.
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
    use tollgate_policy::{Plan, Policy, Surface};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Span::from_secs(seconds))
    }

    #[test]
    fn a_row_comes_back() {
        // One record: its identity, the length of its states, the states.
        let value = [[3, 0, 0, 0], [4, 0, 0, 0], [9, 8, 7, 6]].concat();
        let row = Row { group: 7, alarm_at: at(9), value: value.clone() };
        let bytes = row.encode();
        assert_eq!(bytes.len(), 28);
        assert_eq!(Row::decode(&bytes), Some(row));
        let with = |value: &[u8]| Row::decode(&[&bytes[..16], value].concat());
        assert!(with(&[value.as_slice(), &value].concat()).is_some(), "two records");
        for (what, value) in [
            ("nothing", &[][..]),
            ("half a head", &value[..5]),
            ("half a record", &value[..10]),
            ("a byte too many", &[&value[..], &[1]].concat()),
            ("zeros", &[0; 40]),
            ("a length without end", &[255; 40]),
        ] {
            assert_eq!(with(value), None, "{what}");
        }
        for length in 0..16 {
            assert_eq!(Row::decode(&bytes[..length]), None, "{length}");
        }
    }

    /// What an object of commit 7a4de38 decided and stored: sliding buckets in layout 1, four of
    /// five used.
    const LAYOUT_1: [u8; 44] = [
        0x7b, 0xfd, 0x12, 0x8c, 0x24, 0, 0, 0, // the rule's identity, and 36 bytes
        0xb3, 0x2d, 0x1e, 0, 0, 0, 0, 0, // the newest quarter of an hour
        0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, // units in each of five
        0, 0x75, 0x04, 0x49, 0xe4, 0xb3, 0x18, 0x9b, // the quota of a day
    ];

    /// An object of today over such a row: it goes on counting, and only a charge writes.
    #[test]
    fn a_row_of_layout_1_counts_on() {
        let policy = r#"{"version": 1, "rules": [{"name": "api", "key": ["client_ip"], "quotas": [
            {"name": "hour", "limit": 5, "window": "1h", "algorithm": "sliding-buckets", "buckets": 4},
            {"name": "day", "limit": 20, "window": "1d"}]}]}"#;
        let policy = Policy::compile(policy, Surface::Worker).expect("a policy");
        let group = &policy.groups()[0];
        let stored = Row { group: group.identity(), alarm_at: at(9), value: LAYOUT_1.to_vec() };
        let mut row = Row::decode(&stored.encode()).expect("a row of layout 1 is one");
        let last = at(1_780_001_900);
        assert!(group.idle_at(&policy, &row.value) > last, "no alarm may delete it yet");

        // What a front of either version asks: the group, the rule, binding, a cost of one.
        let cost = 1_u64.to_le_bytes();
        let request = [&group.identity().to_le_bytes()[..], &LAYOUT_1[..4], &[1], &cost].concat();
        for is_last in [true, false] {
            let mut plan = Plan::from_request(&policy, &request).expect("a request");
            plan.each_partition(|partition| partition.load(&policy, Some(&row.value)));
            plan.decide(&policy, last);
            let partition = plan.partition(0).expect("the one asked for");
            assert_eq!(partition.changed(), is_last, "one of five was left");
            let value = partition.value().to_vec();
            let kept = Row { value, ..row.clone() };
            row = Row::decode(&kept.encode()).expect("a row of today");
            assert_eq!(row.value.len(), group.value_len());
        }
    }

    // `set_at`, `idle_at`, `now` and the expected alarm, in seconds.
    #[test]
    fn alarms_are_set_once_per_window_and_not_for_less_than_ten_seconds() {
        for (set, idle, now, expected) in [
            (0, 1_120, 1_000, 1_120),          // the first commit
            (1_120, 1_180, 1_060, 1_120),      // one is to come: kept
            (1_120, 1_240, 1_120, 1_240),      // it rang and the value is live
            (0, 1_000, 1_000, 1_010),          // idle at once: not before ten seconds
            (99_999_999, 1_120, 1_000, 1_120), // set by a clock that ran ahead for years
        ] {
            assert_eq!(alarm_at(at(set), at(idle), at(now)), at(expected), "{set} {idle} {now}");
        }
        let never = alarm_at(Timestamp::ZERO, Timestamp::MAX, at(1_000));
        assert_eq!(never, at(1_000).saturating_add(MAX_ALARM_AFTER));
    }
}
