//! Bounds that a replay must keep: `--fail-if denied-clients>0.1%`.
//!
//! Invariant: comparisons are exact, in whole numbers, and as written: `>` is not `>=`, and a share
//! is multiplied out and never rounded. Of zero there is no share above 0 %. A number of which only
//! a lower bound is known fails wherever the true one may fail.

use crate::replay::summary::{ConditionResult, Summary};

/// Digits after the point of a share.
const MOST_DIGITS: usize = 9;

/// A condition under which a replay fails.
#[derive(Clone, Debug)]
pub struct FailIf {
    text: String,
    metric: Metric,
    comparison: Comparison,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// A number, or a share of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Count(u64),
    /// `parts` parts of `of`.
    Share {
        parts: u64,
        of: u64,
    },
}

/// A metric that can be bounded.
#[derive(Clone, Copy, Debug)]
struct Metric {
    name: &'static str,
    /// The count and its total; `None` where there is no other policy.
    of: fn(&Summary) -> Option<(u64, u64)>,
}

const fn metric(name: &'static str, of: fn(&Summary) -> Option<(u64, u64)>) -> Metric {
    Metric { name, of }
}

/// The metrics that are not a part of another one.
const WHOLES: [&str; 3] = ["requests", "clients", KEYS];
/// The metric that is counted up to a bound only.
const KEYS: &str = "limited-keys";

/// All metrics.
const METRICS: [Metric; 20] = [
    metric("requests", |s| Some((s.requests.total, s.requests.total))),
    metric("denied-requests", |s| Some((s.requests.denied, s.requests.total))),
    metric("delayed-requests", |s| Some((s.requests.delayed, s.requests.total))),
    metric("unreadable-requests", |s| Some((s.requests.unreadable, s.requests.total))),
    metric("marked-requests", |s| Some((s.requests.marked, s.requests.total))),
    metric("shadowed-requests", |s| Some((s.requests.shadowed, s.requests.total))),
    metric("clients", |s| Some((s.clients.total, s.clients.total))),
    metric("denied-clients", |s| Some((s.clients.denied, s.clients.total))),
    metric("delayed-clients", |s| Some((s.clients.delayed, s.clients.total))),
    metric("unreadable-clients", |s| Some((s.clients.unreadable, s.clients.total))),
    metric("marked-clients", |s| Some((s.clients.marked, s.clients.total))),
    metric("shadowed-clients", |s| Some((s.clients.shadowed, s.clients.total))),
    metric("unparsable-lines", |s| Some((s.log.unparsable, s.log.lines))),
    metric("late-lines", |s| Some((s.log.late, s.log.lines))),
    metric("already-refused-lines", |s| Some((s.log.already_refused, s.log.lines))),
    metric("newly-limited-requests", |s| {
        Some((s.against.as_ref()?.changed_requests.newly_limited, s.requests.total))
    }),
    metric("no-longer-limited-requests", |s| {
        Some((s.against.as_ref()?.changed_requests.no_longer_limited, s.requests.total))
    }),
    metric("newly-limited-clients", |s| {
        Some((s.against.as_ref()?.changed_clients.newly_limited, s.clients.total))
    }),
    metric("no-longer-limited-clients", |s| {
        Some((s.against.as_ref()?.changed_clients.no_longer_limited, s.clients.total))
    }),
    metric(KEYS, |s| {
        let keys = s.rules.iter().map(|rule| rule.limited_keys).fold(0, u64::saturating_add);
        Some((keys, keys))
    }),
];

impl FailIf {
    /// Parses `denied-clients>0.1%`: a metric, `>`, `>=`, `<` or `<=`, and a number or a share with
    /// at most nine digits after its point.
    ///
    /// # Errors
    /// The mistake, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>']).ok_or("use METRIC>NUMBER, as in denied-clients>0.1%")?;
        let (name, rest) = text.split_at(at);
        let metric = METRICS.into_iter().find(|metric| metric.name == name.trim());
        let metric = metric.ok_or_else(|| {
            let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
            format!("\"{}\" is not a metric; use {}", name.escape_debug(), names.join(", "))
        })?;
        let (comparison, bound) = match rest.split_at_checked(2) {
            Some((">=", bound)) => (Comparison::AtLeast, bound),
            Some(("<=", bound)) => (Comparison::AtMost, bound),
            _ => match rest.split_at_checked(1) {
                Some((">", bound)) => (Comparison::Above, bound),
                Some((_, bound)) => (Comparison::Below, bound),
                None => return Err("has no number".to_owned()),
            },
        };
        let bound = read_bound(bound.trim())?;
        if matches!(bound, Bound::Share { .. }) && WHOLES.contains(&metric.name) {
            return Err(format!("{} is not a share of anything; use a number", metric.name));
        }
        Ok(Self { text: text.to_owned(), metric, comparison, bound })
    }

    /// True when it needs another policy to compare with.
    #[must_use]
    pub fn is_about_a_change(&self) -> bool {
        self.metric.name.contains("-limited-")
    }

    /// Whether the condition is met.
    #[must_use]
    pub fn check(&self, summary: &Summary) -> ConditionResult {
        let (found, of) = (self.metric.of)(summary).unwrap_or((0, 0));
        let (left, right) = match self.bound {
            Bound::Count(bound) => (u128::from(found), u128::from(bound)),
            // A product of two numbers of 64 bits has at most 128.
            Bound::Share { parts, of: whole } => (
                u128::from(found).saturating_mul(u128::from(whole)),
                u128::from(of).saturating_mul(u128::from(parts)),
            ),
        };
        // There may be any number of further keys that were not counted.
        let is_open = self.metric.name == KEYS && summary.keys.error > 0;
        let fails = match self.comparison {
            Comparison::Above => left > right || is_open,
            Comparison::AtLeast => left >= right || is_open,
            Comparison::Below => left < right,
            Comparison::AtMost => left <= right,
        };
        ConditionResult { condition: self.text.clone(), fails, found, of }
    }
}

fn read_bound(text: &str) -> Result<Bound, String> {
    let wrong = || format!("\"{}\" is not a number; use 5 or 0.1%", text.escape_debug());
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let Some(percent) = text.strip_suffix('%').map(str::trim_end) else {
        let number = Some(text).filter(|text| is_number(text)).and_then(|text| text.parse().ok());
        return number.map(Bound::Count).ok_or_else(wrong);
    };
    let (whole, digits) = percent.split_once('.').unwrap_or((percent, "0"));
    if !is_number(whole) || !is_number(digits) || digits.len() > MOST_DIGITS {
        return Err(wrong());
    }
    let scale = digits.bytes().try_fold(100_u64, |scale, _| scale.checked_mul(10));
    let parts = format!("{whole}{digits}").parse().ok();
    match (parts, scale) {
        (Some(parts), Some(of)) if parts <= of => Ok(Bound::Share { parts, of }),
        _ => Err(format!("\"{}\" is more than 100%", text.escape_debug())),
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::replay::summary::{
        ChangeCounts, Clients, LogSummary, PolicyComparison, RuleSummary, Tally, TopKeys,
    };

    fn summary(denied: u64, clients: u64) -> Summary {
        Summary {
            clients: Clients { total: clients, denied, ..Clients::default() },
            ..Summary::default()
        }
    }

    /// Both sides of each bound, and the bound itself.
    #[test]
    fn bounds_are_met_exactly() {
        for (text, clients, denied, fails) in [
            ("denied-clients>0.1%", 1000, 1, false),
            ("denied-clients>0.1%", 1000, 2, true),
            ("denied-clients>0.1%", 999, 1, true),
            ("denied-clients>=0.1%", 1000, 1, true),
            ("denied-clients>=0.1%", 1001, 1, false),
            ("denied-clients>0%", 1000, 0, false),
            ("denied-clients>0%", 1000, 1, true),
            ("denied-clients>=0%", 0, 0, true),
            ("denied-clients>0%", 0, 0, false),
            ("denied-clients>100%", 5, 5, false),
            ("denied-clients>=100%", 5, 5, true),
            ("denied-clients>3", 9, 3, false),
            ("denied-clients>3", 9, 4, true),
            ("denied-clients >= 3", 9, 3, true),
            ("denied-clients<3", 9, 3, false),
            ("denied-clients<3", 9, 2, true),
            ("denied-clients<=3", 9, 3, true),
            ("denied-clients<50%", 9, 5, false),
            ("denied-clients<50%", 9, 4, true),
            ("clients<1000", 999, 0, true),
            // As a float this share equals a third.
            ("denied-clients>33.333333333%", 3_000_000_000_000_000, 999_999_999_990_000, false),
            ("denied-clients>33.333333333%", 3_000_000_000_000_000, 999_999_999_990_001, true),
            ("denied-clients>99.999999999%", u64::MAX, u64::MAX, true),
        ] {
            let checked = FailIf::parse(text).unwrap().check(&summary(denied, clients));
            assert_eq!(checked.fails, fails, "{text}: {checked}");
        }
    }

    /// Each metric reads its own number: all numbers differ.
    #[test]
    fn every_metric_reads_its_own_number() {
        let tally = |n: u64| Tally {
            total: 1000 + n,
            admitted: 0,
            delayed: n + 2,
            denied: n + 1,
            unreadable: n + 3,
            marked: n + 4,
            shadowed: n + 5,
        };
        let clients = Clients {
            total: 2000,
            denied: 11,
            delayed: 12,
            unreadable: 13,
            marked: 14,
            shadowed: 15,
            one_of: 1,
            requests_without: 0,
        };
        let changed =
            |n: u64| ChangeCounts { newly_limited: n, no_longer_limited: n + 1, both: n + 2 };
        let found = Summary {
            log: LogSummary {
                lines: 3000,
                unparsable: 21,
                late: 22,
                already_refused: 23,
                ..LogSummary::default()
            },
            requests: tally(0),
            clients,
            rules: vec![RuleSummary { limited_keys: 41, ..RuleSummary::default() }],
            against: Some(PolicyComparison {
                requests: tally(100),
                changed_requests: changed(31),
                changed_clients: changed(35),
                ..PolicyComparison::default()
            }),
            ..Summary::default()
        };
        let told: Vec<u64> = METRICS.iter().map(|m| (m.of)(&found).unwrap().0).collect();
        let wanted =
            [1000, 1, 2, 3, 4, 5, 2000, 11, 12, 13, 14, 15, 21, 22, 23, 31, 32, 35, 36, 41];
        assert_eq!(told, wanted);
        for metric in METRICS {
            let is_change = FailIf::parse(&format!("{}>1", metric.name)).unwrap();
            let alone = Summary::default();
            assert_eq!(is_change.is_about_a_change(), (metric.of)(&alone).is_none());
        }
    }

    /// More keys were limited than are counted separately: no upper bound is certain to hold.
    #[test]
    fn what_is_not_known_to_hold_fails() {
        let counted = |error| Summary {
            rules: vec![RuleSummary { limited_keys: 40_000, ..RuleSummary::default() }],
            keys: TopKeys { error, ..TopKeys::default() },
            ..Summary::default()
        };
        for (text, exact, at_least) in [
            ("limited-keys>70000", false, true),
            ("limited-keys>=40001", false, true),
            ("limited-keys>39999", true, true),
            ("limited-keys<40000", false, false),
            ("limited-keys<70000", true, true),
        ] {
            let condition = FailIf::parse(text).unwrap();
            let fails = [0, 1].map(|error| condition.check(&counted(error)).fails);
            assert_eq!(fails, [exact, at_least], "{text}");
        }
    }

    #[test]
    fn what_is_no_bound_is_refused() {
        for (text, message) in [
            ("denied-clients", "use METRIC>NUMBER"),
            ("denied>5", "\"denied\" is not a metric; use requests, denied-requests,"),
            ("denied-clients>", "\"\" is not a number"),
            ("denied-clients>=", "\"\" is not a number"),
            ("denied-clients>%", "\"%\" is not a number"),
            ("denied-clients>-1", "\"-1\" is not a number"),
            ("denied-clients>+1", "\"+1\" is not a number"),
            ("denied-clients>1.5", "\"1.5\" is not a number"),
            ("denied-clients>1e3", "\"1e3\" is not a number"),
            ("denied-clients>.1%", "\".1%\" is not a number"),
            ("denied-clients>0.0000000001%", "\"0.0000000001%\" is not a number"),
            ("limited-keys>5%", "limited-keys is not a share of anything; use a number"),
            ("requests<50%", "requests is not a share"),
            ("clients>=0%", "clients is not a share"),
            ("denied-clients>100.1%", "\"100.1%\" is more than 100%"),
            ("denied-clients>99999999999999999999", "\"99999999999999999999\" is not a number"),
        ] {
            let error = FailIf::parse(text).unwrap_err();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }
}
