//! From the fields of a quota to the calendar whose windows it counts in.
//!
//! Invariant: a field that has no effect is a problem at its place.

use alloc::format;
use alloc::string::String;

use tollgate_core::{Algorithm, Calendar, CalendarUnit, QuotaError, Span, Weekday};

use crate::document::rule::QuotaDoc;
use crate::document::scalar::Window;
use crate::json::place::At;

/// The windows of a quota.
pub(super) enum Windows {
    /// Of one length.
    Length(Span),
    /// Those of a calendar.
    Calendar(Calendar),
}

/// The windows of a quota with `window`; `None` after a problem was noted.
pub(super) fn windows(doc: &QuotaDoc, window: Window, at: &At<'_>) -> Option<Windows> {
    let before = at.problem_count();
    let problem = |field: &'static str, message: String| at.field(field).problem(message);
    let fields = [
        ("utc_offset", doc.utc_offset.is_some(), None),
        ("week_start", doc.week_start.is_some(), Some(("1w", Window::Week))),
        ("anchor_day", doc.anchor_day.is_some(), Some(("1mo", Window::Month))),
    ];
    for (field, _, of) in fields.into_iter().filter(|(_, is_given, _)| *is_given) {
        match of {
            _ if doc.align.is_none() => problem(field, ONLY_CALENDAR.into()),
            Some((name, of)) if of != window => {
                problem(field, format!("is for the window \"{name}\" only; leave it out"));
            }
            _ => {}
        }
    }
    if doc.align.is_none() {
        let message = match window {
            Window::Length(length) => {
                return (at.problem_count() == before).then_some(Windows::Length(length));
            }
            Window::Week => {
                "\"1w\" is a week of a calendar; give \"align\": \"calendar\", or use \"7d\""
            }
            Window::Month => {
                "\"1mo\" is a month of a calendar; give \"align\": \"calendar\", or use \"30d\""
            }
        };
        problem("window", message.into());
        return None;
    }
    if doc.algorithm != Some(Algorithm::FixedWindow) {
        problem("align", NO_FIXED_WINDOW.into());
    }
    if doc.burst.is_some() {
        problem("burst", format!("{}", QuotaError::NoBurst));
    }
    if doc.strict == Some(true) {
        problem("strict", format!("{}", QuotaError::NoStrict));
    }
    let unit = unit(doc, window);
    if unit.is_none() {
        problem("window", NO_UNIT.into());
    }
    let offset = doc.utc_offset.map_or(0, |offset| offset.0);
    // The fields have the bounds of the core.
    let calendar = unit.and_then(|unit| Calendar::new(unit, offset).ok());
    calendar.filter(|_| at.problem_count() == before).map(Windows::Calendar)
}

const ONLY_CALENDAR: &str = "is for \"align\": \"calendar\" only; leave it out";
const NO_FIXED_WINDOW: &str =
    "is for the algorithm \"fixed-window\" only; give it, or leave \"align\" out";
const NO_UNIT: &str = "is not a window of a calendar; use \"1h\", \"1d\", \"1w\" or \"1mo\"";

fn unit(doc: &QuotaDoc, window: Window) -> Option<CalendarUnit> {
    let named = [CalendarUnit::Hour, CalendarUnit::Day];
    match window {
        Window::Length(length) => named.into_iter().find(|unit| unit.longest() == length),
        Window::Week => {
            Some(CalendarUnit::Week { start: doc.week_start.unwrap_or(Weekday::Monday) })
        }
        Window::Month => {
            Some(CalendarUnit::Month { anchor_day: doc.anchor_day.map_or(1, |day| day.0) })
        }
    }
}
