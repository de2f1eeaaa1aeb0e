//! Lines of the log: one for each denial, shadow denial, failure and wrong token, as JSON, and the
//! choice of the lines to write.
//!
//! Invariant: a line contains names of the policy and the keyed hash of the partition key, never
//! data that a client sent: no key, path, query or address. A flood causes a bounded number of
//! lines: each kind is sampled separately, evenly and beginning with the first, and at most
//! [`MAX_PER_SECOND`] of a kind are written in a second. A line contains the number of unwritten
//! lines of its kind since the last one, so lines and `dropped` together are all of them.
//! Deliberately absent: the clock, and the destination of lines.

use alloc::string::String;

use serde::Serialize;
use tollgate_policy::RuleResult;

/// The most lines of one kind in one second, of one isolate or worker.
pub const MAX_PER_SECOND: u32 = 10;

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rule denied a request.
    Refused,
    /// A rule in shadow mode would have denied it.
    ShadowRefused,
    /// The stored state of a rule could not be read or written; `on_failure` decided.
    Failed,
    /// A token was missing or wrong, or lacks the permission; its line is
    /// [`Unauthorized`](crate::Unauthorized)'s.
    Unauthorized,
}

impl Kind {
    const COUNT: usize = 4;

    /// The kind of line for a rule's `result`, if it has one; `is_binding` when a denial of the
    /// rule stops the request.
    #[must_use]
    pub const fn of(result: RuleResult, is_binding: bool) -> Option<Self> {
        match result {
            RuleResult::Denied | RuleResult::Blocked | RuleResult::Penalised => Some(Self::Refused),
            RuleResult::Malformed if is_binding => Some(Self::Refused),
            RuleResult::Shadowed => Some(Self::ShadowRefused),
            RuleResult::Failed => Some(Self::Failed),
            RuleResult::Malformed
            | RuleResult::Allowed
            | RuleResult::Delayed
            | RuleResult::Marked => None,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Refused => 0,
            Self::ShadowRefused => 1,
            Self::Failed => 2,
            Self::Unauthorized => 3,
        }
    }
}

/// One line, without absent fields.
#[derive(Clone, Debug, Serialize)]
pub struct Line<'a> {
    /// The event.
    pub event: Kind,
    /// The rule's name.
    pub rule: &'a str,
    /// The tier, when the quotas are not the rule's own.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub tier: &'a str,
    /// The quota that denies, if one does.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub quota: &'a str,
    /// The metrics' name of the result: `denied`.
    pub result: &'a str,
    /// The status of our response; `None` when the request was allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// When the quota would allow the request, in milliseconds, rounded up; `None` when no wait can
    /// help, or nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The version of the policy.
    pub policy_version: u64,
    /// The keyed hash of the partition key, as clients get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pk: Option<String>,
    /// The number of unwritten lines of this kind since the last one.
    pub dropped: u64,
}

impl Line<'_> {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // It contains neither maps nor floats, so nothing can fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The share of the events of a kind that is written: `written` of `of`, evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    written: u32,
    of: u32,
}

impl Share {
    /// One in a hundred.
    pub const DEFAULT: Self = Self { written: 1, of: 100 };

    /// The allowed values, in words.
    pub const WANTED: &'static str =
        "is not a share of all lines; use a number from 0 to 1 such as 0.01, or 1/100";

    const MILLION: u32 = 1_000_000;

    /// True for this share of all numbers, where they are spread evenly.
    #[must_use]
    pub fn takes(&self, number: u64) -> bool {
        number.checked_rem(u64::from(self.of)).is_some_and(|rest| rest < u64::from(self.written))
    }

    /// The share in `text`: `0`, `1`, a decimal between them with at most six digits, or `1/n` with
    /// `n` from 1 to 1,000,000.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_number = |digits: &str| {
            (1..=7).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        if let Some(of) = text.strip_prefix("1/") {
            let of = Some(of).filter(|of| is_number(of))?.parse().ok()?;
            return (1..=Self::MILLION).contains(&of).then_some(Self { written: 1, of });
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        if !is_number(fraction) {
            return None;
        }
        let zeros = u32::try_from(6_usize.checked_sub(fraction.len())?).ok()?;
        let millionths = fraction.parse::<u32>().ok()?.checked_mul(10_u32.pow(zeros))?;
        match (whole, millionths) {
            ("0", written) => Some(Self { written, of: Self::MILLION }),
            ("1", 0) => Some(Self { written: 1, of: 1 }),
            _ => None,
        }
    }
}

/// Decides for which events a line is written.
#[derive(Debug)]
pub struct Sampler {
    share: Share,
    kinds: [SampledKind; Kind::COUNT],
}

/// The lines of one kind that were written and dropped.
#[derive(Clone, Copy, Debug)]
struct SampledKind {
    /// The part of a line that is due, in units of 1/`of`.
    due: u32,
    second: u64,
    written_in_second: u32,
    dropped: u64,
}

impl Sampler {
    /// Writes this share of each kind.
    #[must_use]
    pub const fn new(share: Share) -> Self {
        // The first of a kind is written.
        let due = share.of.saturating_sub(share.written);
        let state = SampledKind { due, second: 0, written_in_second: 0, dropped: 0 };
        Self { share, kinds: [state; Kind::COUNT] }
    }

    /// True when lines are written at all.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.share.written > 0
    }

    /// One event at `now_ms`, milliseconds since 1970. Returns the number of events that were
    /// dropped before it, if its line is to be written.
    pub fn take(&mut self, kind: Kind, now_ms: u64) -> Option<u64> {
        let state = self.kinds.get_mut(kind.index())?;
        let second = now_ms / 1000;
        if state.second != second {
            (state.second, state.written_in_second) = (second, 0);
        }
        let due = state.due.saturating_add(self.share.written);
        let is_due = self.share.written > 0 && due >= self.share.of;
        state.due = if is_due { due.saturating_sub(self.share.of) } else { due };
        if !is_due || state.written_in_second >= MAX_PER_SECOND {
            state.dropped = state.dropped.saturating_add(1);
            return None;
        }
        state.written_in_second = state.written_in_second.saturating_add(1);
        Some(core::mem::take(&mut state.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_one() {
        let share = |written, of| Some(Share { written, of });
        for (text, expected) in [
            ("0", share(0, 1_000_000)),
            ("1", share(1, 1)),
            ("1.0", share(1, 1)),
            ("0.01", share(10_000, 1_000_000)),
            ("0.000001", share(1, 1_000_000)),
            ("1/3", share(1, 3)),
            ("1/1000000", share(1, 1_000_000)),
        ] {
            assert_eq!(Share::parse(text), expected, "{text}");
        }
        for wrong in [
            "",
            "2",
            "1.1",
            "-0.1",
            ".5",
            "0.",
            "0.0000001",
            "1/0",
            "1/1000001",
            "1/",
            "2/3",
            "1e-2",
            " 1",
            "50%",
            "0.+1",
            "1/+3",
            "01",
            "nan",
            "0x1",
        ] {
            assert_eq!(Share::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_and_what_they_say_was_dropped_are_all_events() {
        for text in ["1", "0.3", "1/3", "0.01", "0.000001"] {
            let share = Share::parse(text).expect("a share");
            let mut sampler = Sampler::new(share);
            let (mut lines, mut dropped) = (0_u64, 0);
            let events = 10_000;
            for event in 0..events {
                // One event per second: nothing is over the bound.
                if let Some(before) = sampler.take(Kind::Refused, event * 1000) {
                    lines += 1;
                    dropped += before;
                    assert_eq!(lines + dropped, event + 1, "{text}");
                }
                assert_eq!(lines > 0, event < events, "{text}: the first is written");
            }
            let expected = (events * u64::from(share.written)).div_ceil(u64::from(share.of));
            assert_eq!(lines, expected, "{text}");
        }
    }

    #[test]
    fn a_flood_is_ten_lines_a_second_of_each_kind() {
        let mut sampler = Sampler::new(Share { written: 1, of: 1 });
        let kinds = [Kind::Refused, Kind::ShadowRefused, Kind::Failed, Kind::Unauthorized];
        for kind in kinds {
            let mut lines = 0;
            for event in 0..30_000_u64 {
                lines += u32::from(sampler.take(kind, 500 + event / 10).is_some());
            }
            // From 0.5 s to 3.5 s: in four different seconds.
            assert_eq!(lines, 4 * MAX_PER_SECOND, "{kind:?}");
        }
        let next = sampler.take(Kind::Refused, 9_000);
        assert_eq!(next, Some(30_000 / 3 / 2 - 10), "what came in the last half second");
        let mut off = Sampler::new(Share { written: 0, of: 1_000_000 });
        assert!(!off.is_on() && (0..100).all(|i| off.take(Kind::Failed, i).is_none()));
    }

    #[test]
    fn a_line_is_json_without_what_is_absent() {
        let mut line = Line {
            event: Kind::Refused,
            rule: "a \"b\"",
            tier: "gold",
            quota: "minute",
            result: "denied",
            status: Some(429),
            retry_after_ms: Some(1200),
            policy_version: 3,
            pk: Some("AAAAAAAAAAA=".into()),
            dropped: 99,
        };
        let expected = r#"{"event":"refused","rule":"a \"b\"","tier":"gold","quota":"minute","result":"denied","status":429,"retry_after_ms":1200,"policy_version":3,"pk":"AAAAAAAAAAA=","dropped":99}"#;
        assert_eq!(line.to_json(), expected);
        (line.tier, line.quota, line.pk) = ("", "", None);
        (line.status, line.retry_after_ms) = (None, None);
        line.event = Kind::ShadowRefused;
        let expected = r#"{"event":"shadow_refused","rule":"a \"b\"","result":"denied","policy_version":3,"dropped":99}"#;
        assert_eq!(line.to_json(), expected);
    }
}
