//! A tenant's entry: other quotas for one tenant, kept in a store and not in the policy.
//!
//! Invariant: a value of these types is valid on its own; `compile::tenant` checks everything that
//! depends on the policy (whether it has such a rule or tier).

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::document::lists::within;
use crate::document::rule::QuotaDoc;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, Lenient, record, schema};
use tollgate_policy::SlabMap;
use tollgate_policy::spec::{Bounded, Name};

/// The most rules that an entry has quotas for: more than a person writes by hand. Each of them is
/// a record of the tenant.
const MAX_RULES: usize = 64;
/// The longest note, in characters: two lines on a page.
const MAX_NOTE: usize = 256;

record! {
    /// The settings of one tenant.
    EntryDoc {
        /// The tier whose quotas apply, in every rule that has a tier of this name.
        tier: Option<Name>,
        /// The tenant's own quotas, by the names of rules; they have precedence over `tier`.
        quotas: Option<QuotasByRule>,
        /// The entry's priority; a matching tier with a higher priority has precedence. 0 by
        /// default.
        priority: Option<Bounded<0, 1_000_000>>,
        /// The time from which the entry has no effect.
        expires: Option<Expiry>,
        /// One line of text for people; never read.
        note: Option<Note>,
    }
}

/// The tenant's own quotas for each of some rules.
#[derive(Clone, Debug)]
pub(crate) struct QuotasByRule(pub(crate) Vec<(String, Vec<Lenient<QuotaDoc>>)>);

impl FromNode for QuotasByRule {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Object(fields) = node else {
            return at.wrong(node, "an object of names of rules and their quotas");
        };
        within(MAX_RULES, fields.len(), at)?;
        if fields.is_empty() {
            at.problem("is empty; give at least one, or leave it out".into());
        }
        let (mut quotas, mut seen) = (Vec::new(), SlabMap::new());
        for (rule, node) in fields {
            let at = at.user_field(rule);
            if !seen.insert_new(rule, ()) {
                at.problem("is given twice; give it once".into());
            }
            quotas.push((rule.clone(), Vec::read(node, &at).unwrap_or_default()));
        }
        Some(Self(quotas))
    }

    schema!({
        "type": "object", "minProperties": 1, "maxProperties": MAX_RULES,
        "additionalProperties": Vec::<Lenient<QuotaDoc>>::schema()
    });
}

/// A point in time: RFC 3339, 5.6 in UTC, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry(pub(crate) Timestamp);

impl FromNode for Expiry {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let seconds = match node {
            Node::Text(text) => seconds_since_1970(text.as_bytes()),
            _ => None,
        };
        let expiry =
            seconds.map(|seconds| Self(Timestamp::from_millis(seconds.saturating_mul(1000))));
        expiry.or_else(|| {
            at.not_text(node, "a time; use UTC to the second, such as \"2027-01-31T00:00:00Z\"")
        })
    }

    schema!({"type": "string", "format": "date-time", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"});
}

/// The seconds from 1970 to a time such as `2027-01-31T00:00:00Z`; `None` for any other text, and
/// for a date that does not exist.
fn seconds_since_1970(text: &[u8]) -> Option<u64> {
    const SHAPE: &[u8; 20] = b"0000-00-00T00:00:00Z";
    let fits = |(given, wanted): (&u8, &u8)| match wanted {
        b'0' => given.is_ascii_digit(),
        _ => given == wanted,
    };
    if text.len() != SHAPE.len() || !text.iter().zip(SHAPE).all(fits) {
        return None;
    }
    let number =
        |from: usize, to: usize| core::str::from_utf8(text.get(from..to)?).ok()?.parse().ok();
    let (year, month, day): (u64, u64, u64) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second): (u64, u64, u64) =
        (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months_before = usize::try_from(month.checked_sub(1)?).ok()?;
    let is_in_calendar = year >= 1970
        && (1..=*lengths.get(months_before)?).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !is_in_calendar {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let months: u64 = lengths.iter().take(months_before).sum();
    let days = years.checked_add(months)?.checked_add(day.checked_sub(1)?)?;
    let hours = days.checked_mul(24)?.checked_add(hour)?;
    hours.checked_mul(60)?.checked_add(minute)?.checked_mul(60)?.checked_add(second)
}

/// A line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note(pub(crate) String);

impl FromNode for Note {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Text(text) = node else { return at.not_text(node, "a string") };
        if text.chars().count() > MAX_NOTE {
            at.problem(alloc::format!("is too long; use at most {MAX_NOTE} characters"));
        } else if text.chars().any(is_invisible) {
            at.problem(
                "contains an invisible or bidirectional control character; use one line of text"
                    .into(),
            );
        } else {
            return Some(Self(text.clone()));
        }
        None
    }

    schema!({"type": "string", "maxLength": MAX_NOTE});
}

/// Controls, line breaks, and characters that change the direction of writing: a person who reads a
/// line with one of these may see a different line.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the day numbers of a calendar: the last second before the first of each month, and
    /// the second after it, which is one more.
    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2026-11-22T10:44:11Z", 1_795_344_251),
            ("2100-02-28T23:59:59Z", 4_107_542_399),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(seconds_since_1970(text.as_bytes()), Some(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_of_this_form_is_none() {
        for text in [
            "",
            "2027-01-31",
            "2027-01-31T00:00:00",
            "2027-01-31t00:00:00z",
            "2027-01-31 00:00:00Z",
            "2027-01-31T00:00:00.5Z",
            "2027-01-31T00:00:00+01:00",
            "2027-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2027-00-01T00:00:00Z",
            "2027-13-01T00:00:00Z",
            "2027-01-00T00:00:00Z",
            "2027-01-32T00:00:00Z",
            "2027-01-31T24:00:00Z",
            "2027-01-31T23:60:00Z",
            "2016-12-31T23:59:60Z",
            "1969-12-31T23:59:59Z",
            "+027-01-31T00:00:00Z",
        ] {
            assert_eq!(seconds_since_1970(text.as_bytes()), None, "{text}");
        }
    }
}
