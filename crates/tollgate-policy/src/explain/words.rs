//! Times, quotas, bounds and decisions in words.
//!
//! Invariant: a bound is `Limiter::max_in_window`, never calculated here.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Decision, Limiter, Span, Verdict};

use crate::explain::rules::Applicability;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;
use crate::spec::limit_from::LimitFrom;

/// `minute`, `10 seconds`, `500 milliseconds`.
#[must_use]
pub fn window(span: Span) -> String {
    let millis = span.as_millis_ceil();
    let units = [("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)];
    let unit = units.into_iter().find(|(_, length)| millis.checked_rem(*length) == Some(0));
    let (name, length) = unit.unwrap_or(("millisecond", 1));
    match millis.checked_div(length) {
        Some(1) => name.to_owned(),
        count => format!("{} {name}s", count.unwrap_or(0)),
    }
}

/// A wait: `2 s`, `1.5 s`, `250 ms`; rounded up to a millisecond.
#[must_use]
pub fn wait(span: Span) -> String {
    let millis = span.as_millis_ceil();
    let (whole, rest) = (millis.div_euclid(1000), millis.rem_euclid(1000));
    match (whole, rest) {
        (0, rest) if rest > 0 => format!("{rest} ms"),
        (whole, 0) => format!("{whole} s"),
        (whole, rest) => format!("{whole}.{} s", format!("{rest:03}").trim_end_matches('0')),
    }
}

/// `at most 199 in any minute`, or `at most 10 at the same time`
#[must_use]
pub fn bound(limiter: &Limiter) -> String {
    if limiter.max_age().is_some() {
        return format!("at most {} at the same time", limiter.limit());
    }
    if limiter.is_closed() {
        return "no requests".to_owned();
    }
    let most = limiter.max_in_window();
    match limiter.calendar() {
        Some(calendar) => {
            let days = limiter.window();
            let name = calendar.unit().name();
            format!(
                "at most {} in any calendar {name}, {most} in any {}",
                limiter.limit(),
                window(days)
            )
        }
        None => format!("at most {most} in any {}", window(limiter.window())),
    }
}

/// The same for a quota of `rule`: where responses settle the cost, the bound is of estimates.
#[must_use]
pub fn bound_under(rule: Option<&Rule>, limiter: &Limiter) -> String {
    let bound = bound(limiter);
    match rule.and_then(Rule::settled_cost) {
        Some(cost) => format!("{bound} by estimates, of which each may use up to {}", cost.max),
        None => bound,
    }
}

/// `100 per minute, burst 20, gcra`, or `10 in flight, max_age 60 s`
#[must_use]
pub fn quota(limiter: &Limiter) -> String {
    if let Some(max_age) = limiter.max_age() {
        let (limit, age) = (limiter.limit(), wait(max_age));
        return format!("{limit} in flight, max_age {age}");
    }
    if limiter.is_closed() {
        return "0, which denies every request".to_owned();
    }
    let mut text = match limiter.calendar() {
        Some(calendar) => format!("{} per calendar {calendar}", limiter.limit()),
        None => format!("{} per {}", limiter.limit(), window(limiter.window())),
    };
    if limiter.capacity() != limiter.limit() {
        text.push_str(&format!(", burst {}", limiter.capacity()));
    }
    text.push_str(&format!(", {}", limiter.algorithm().name()));
    if let Some(buckets) = limiter.algorithm().buckets() {
        text.push_str(&format!(" of {buckets}"));
    }
    if limiter.algorithm().is_weighted() {
        text.push_str(", weighted");
    }
    if limiter.quota().is_strict() {
        text.push_str(", strict");
    }
    if let Some(penalty) = limiter.penalty() {
        let steps: Vec<String> = penalty.steps().map(wait).collect();
        text.push_str(&format!(", penalty of {}", steps.join(", then ")));
    }
    text
}

/// The same, and where requests have limits of their own: `50 per minute, fixed-window, at most:
/// each request has the limit in claim plan, or 5`.
#[must_use]
pub fn quota_with_source(of: &CompiledQuota) -> String {
    let text = quota(of.limiter());
    match of.limit_from() {
        Some(from) => {
            let LimitFrom { source, default } = from;
            format!("{text}, at most: each request has the limit in {source}, or {default}")
        }
        None => text,
    }
}

/// Where the limit of a request is from, which has `requested` one or none: `8, by claim plan`, or
/// `5, because claim plan has no number`. `None` for a quota that takes none.
#[must_use]
pub fn limit(of: &CompiledQuota, requested: Option<u64>) -> Option<String> {
    let from = of.limit_from()?;
    Some(match requested {
        Some(limit) => format!("{limit}, by {}", from.source),
        None => format!("{}, because {} has no number", from.default, from.source),
    })
}

/// `+02:00`: a distance from UTC in minutes, as policies write it.
#[must_use]
pub fn utc_offset(minutes: i16) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.unsigned_abs();
    format!("{sign}{:02}:{:02}", minutes.div_euclid(60), minutes.rem_euclid(60))
}

/// The decision of a limiter: `allows it; 4 of 20 left`, `denies, would allow it in 1.5 s; 0 of 20
/// left`.
#[must_use]
pub fn decision(decision: &Decision, limiter: &Limiter) -> String {
    let burst = limiter.capacity();
    let Decision { remaining, retry_after, .. } = *decision;
    if decision.limit == 0 {
        return "denies every request".to_owned();
    }
    match (decision.verdict, retry_after) {
        (Verdict::Allow, _) => format!("allows it; {remaining} of {burst} left"),
        (Verdict::Delay(after), _) => {
            format!("allows it after {}; {remaining} of {burst} left", wait(after))
        }
        (Verdict::Deny, Some(after)) => {
            format!("denies, would allow it in {}; {remaining} of {burst} left", wait(after))
        }
        (Verdict::Penalty, Some(after)) => {
            format!("denies by its penalty, which ends in {}", wait(after))
        }
        (Verdict::Deny, None) if limiter.max_age().is_some() => {
            format!("denies until a request in flight ends; {remaining} of {burst} left")
        }
        (Verdict::Deny | Verdict::Penalty, None) => {
            "never allows it: the cost exceeds the capacity".to_owned()
        }
    }
}

/// Why a rule does not apply: `it is for method POST`; `None` when it does.
#[must_use]
pub fn reason(applicability: &Applicability) -> Option<String> {
    Some(match applicability {
        Applicability::Applies => return None,
        Applicability::Exempt(i) => format!("the request is exempt by exempt[{i}]"),
        Applicability::DeniedBy(rule) => format!("the request is denied by \"{rule}\""),
        Applicability::WhenFails(condition) => format!("it is for {condition}"),
        Applicability::UnlessHolds(condition) => format!("it is not for {condition}"),
        Applicability::KeyMissing(part) => {
            format!("the request has no {part}, and on_missing is skip")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_their_largest_whole_unit() {
        for (millis, expected) in [
            (1, "millisecond"),
            (500, "500 milliseconds"),
            (1_000, "second"),
            (90_000, "90 seconds"),
            (60_000, "minute"),
            (7_200_000, "2 hours"),
            (86_400_000, "day"),
        ] {
            assert_eq!(window(Span::from_millis(millis)), expected);
        }
    }

    #[test]
    fn waits_round_up() {
        for (nanos, expected) in [
            (0, "0 s"),
            (1, "1 ms"),
            (1_500_000_000, "1.5 s"),
            (2_000_000_000, "2 s"),
            (2_000_000_001, "2.001 s"),
        ] {
            assert_eq!(wait(Span::from_nanos(nanos)), expected);
        }
    }
}
