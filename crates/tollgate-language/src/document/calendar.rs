//! The fields of a quota whose windows are those of a calendar.
//!
//! Invariant: each is valid on its own. Deliberately not here: whether they fit together, which
//! `compile/calendar.rs` checks.

use alloc::format;

use tollgate_core::{MAX_ANCHOR_DAY, MAX_UTC_OFFSET, QuotaError, Weekday};

use crate::json::node::{Node, quoted};
use crate::json::place::At;
use crate::json::reader::{FromNode, choice, names, schema};

choice! {
    /// The alignment of the windows of a quota.
    Align ("alignment") {
        /// The civil calendar: hours, days, weeks or months.
        "calendar" => Calendar,
    }
}

names! {
    Weekday ("day of the week") {
        /// Monday.
        "monday" => Monday,
        /// Tuesday.
        "tuesday" => Tuesday,
        /// Wednesday.
        "wednesday" => Wednesday,
        /// Thursday.
        "thursday" => Thursday,
        /// Friday.
        "friday" => Friday,
        /// Saturday.
        "saturday" => Saturday,
        /// Sunday.
        "sunday" => Sunday,
    }
}

/// A distance from UTC in minutes, -14:00 to +14:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UtcOffset(pub(crate) i16);

impl FromNode for UtcOffset {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let minutes = match node {
            Node::Text(text) => minutes(text),
            _ => None,
        };
        let Some(minutes) = minutes else {
            return at.not_text(node, "an offset from UTC; use \"-14:00\" to \"+14:00\"");
        };
        if minutes.unsigned_abs() > MAX_UTC_OFFSET.unsigned_abs() {
            at.problem(format!("{} is not valid: {}", quoted(node), QuotaError::UtcOffset));
            return None;
        }
        Some(Self(minutes))
    }

    schema!({"type": "string", "pattern": "^[+-](0[0-9]|1[0-3]):[0-5][0-9]$|^[+-]14:00$"});
}

/// A day of a month, 1 to 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnchorDay(pub(crate) u8);

impl FromNode for AnchorDay {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let day = u64::read(node, at)?;
        let anchor_day = u8::try_from(day).ok().filter(|day| (1..=MAX_ANCHOR_DAY).contains(day));
        if anchor_day.is_none() {
            at.problem(format!("{day} is not valid: {}", QuotaError::AnchorDay));
        }
        anchor_day.map(Self)
    }

    schema!({"type": "integer", "minimum": 1, "maximum": MAX_ANCHOR_DAY});
}

/// `+02:00` or `-05:30` in minutes; `None` for anything else.
fn minutes(text: &str) -> Option<i16> {
    let [sign, hours @ .., b':', tens, ones] = text.as_bytes() else { return None };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i16::from(byte.wrapping_sub(b'0')));
    let two =
        |tens: u8, ones: u8| Some(digit(tens)?.saturating_mul(10).saturating_add(digit(ones)?));
    let [hour_tens, hour_ones] = hours else { return None };
    let (hours, minutes) = (two(*hour_tens, *hour_ones)?, two(*tens, *ones)?);
    let total = hours.saturating_mul(60).saturating_add(minutes);
    match sign {
        _ if minutes >= 60 => None,
        b'+' => Some(total),
        b'-' => Some(total.saturating_neg()),
        _ => None,
    }
}
