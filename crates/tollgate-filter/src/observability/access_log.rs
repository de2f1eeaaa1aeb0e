//! Access-log fields of a request that a rule denied, delayed or marked, would have denied, or
//! could not decide.
//!
//! They are filter state, `%FILTER_STATE(wasm.tollgate:PLAIN)%`: for each such rule its fields
//! separated by blanks, and a comma before the next rule: `rule=login quota=minute result=denied
//! remaining=0 pk=q1GkUGuSzIA= version=3`. Invariant: it contains names as the metrics have them
//! and the keyed hash of a key, never anything that a client sent; at most [`MOST_RULES`] rules. A
//! request that all rules allow costs nothing here.

use tollgate_core::{Span, Verdict};
use tollgate_policy::{DenyMatch, Outcome, RuleDecision, RuleResult, SettledCharge, push_pk_text};

use crate::observability::labels::Labels;

/// The fields of a request that was denied before any rule was checked.
pub const UNDECIDED: &str = "result=failed";

/// The most rules whose fields are written.
const MOST_RULES: usize = 8;

/// A decided request, and what its fields need to know.
pub struct Decided<'a> {
    /// The decisions.
    pub outcome: &'a Outcome<'a>,
    /// How long it has waited.
    pub waited: Span,
    /// The partition by which a rule denies it, and the hash of its key, if that is known already.
    pub denied_by: Option<(usize, u64)>,
    pub labels: &'a Labels,
    /// The version of the policy.
    pub version: u64,
}

/// Appends the fields of a request; nothing when all rules allow it.
pub fn push_fields(decided: &Decided<'_>, text: &mut String) {
    let Decided { outcome, waited, denied_by, labels, version } = *decided;
    let mut left = MOST_RULES;
    let pk_of = |partition: usize| {
        let known = denied_by.filter(|(known, _)| *known == partition);
        known.map(|(_, pk)| pk).or_else(|| outcome.partition_pk(partition))
    };
    let push_deny = |matched: DenyMatch<'_>, text: &mut String| {
        begin(text);
        push(text, "rule=", labels.deny_rule(matched.index));
        push(text, " result=", matched.result.label());
        push_number(text, " version=", version);
    };
    // First what decides, so that shadow rules hide nothing.
    if let Some(matched) = outcome.denied_by() {
        left = left.saturating_sub(1);
        push_deny(matched, text);
    }
    let notable = outcome.decisions_after(waited);
    let notable = notable.filter(|decision| decision.result != RuleResult::Allowed);
    for decision in notable.take(left) {
        left = left.saturating_sub(1);
        begin(text);
        push_rule(&decision, waited, labels, text);
        if let Some(pk) = decision.partition.and_then(pk_of) {
            text.push_str(" pk=");
            push_pk_text(pk, text);
        }
        push_number(text, " version=", version);
    }
    let shadows = outcome.deny_matches().filter(|matched| !matched.rule.is_enforced);
    shadows.take(left).for_each(|matched| push_deny(matched, text));
}

/// The fields of the costs that a response settled.
pub fn costs(costs: &[SettledCharge], labels: &Labels) -> String {
    let mut text = String::new();
    for cost in costs.iter().take(MOST_RULES) {
        begin(&mut text);
        push(&mut text, "rule=", labels.rule(cost.rule));
        push_number(&mut text, " estimate=", cost.estimate);
        match cost.actual {
            Ok(actual) => {
                push_number(&mut text, " actual=", actual);
                text.push_str(" difference=");
                if actual < cost.estimate {
                    text.push('-');
                }
                push_digits(&mut text, actual.abs_diff(cost.estimate));
            }
            Err(reason) => push(&mut text, " actual=", reason.label()),
        }
    }
    text
}

fn push_rule(decision: &RuleDecision<'_>, waited: Span, labels: &Labels, text: &mut String) {
    push(text, "rule=", labels.rule(decision.rule));
    let set = labels.set(decision.quota_set);
    if let Some(tier) = set.and_then(|set| set.tier.as_deref()) {
        push(text, " tier=", tier);
    }
    let quota = decision.said_by();
    if let Some(label) = quota.and_then(|quota| set?.quotas.get(quota)) {
        push(text, " quota=", label);
    }
    push(text, " result=", decision.result.label());
    // When no quota is named: the remaining units of the quota that is nearest to its end.
    let remaining = |quota: usize| decision.quotas.get(quota).map(|quota| quota.remaining);
    let least = || decision.quotas.iter().map(|quota| quota.remaining).min();
    if let Some(remaining) = quota.map_or_else(least, remaining) {
        push_number(text, " remaining=", remaining);
    }
    if decision.result == RuleResult::Delayed {
        let verdict = quota.and_then(|quota| decision.quotas.get(quota)).map(|it| it.verdict);
        let wait = if let Some(Verdict::Delay(wait)) = verdict { wait } else { Span::ZERO };
        push_number(text, " wait_ms=", waited.saturating_add(wait).as_millis_ceil());
    }
}

/// Separates the fields of two rules.
fn begin(text: &mut String) {
    if !text.is_empty() {
        text.push_str(", ");
    }
}

fn push(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str(value);
}

fn push_number(text: &mut String, name: &str, number: u64) {
    text.push_str(name);
    push_digits(text, number);
}

/// `number` in decimal; `core::fmt` takes ten times as long.
fn push_digits(text: &mut String, number: u64) {
    if let Some(rest) = number.checked_div(10).filter(|rest| *rest > 0) {
        push_digits(text, rest);
    }
    let last = u32::try_from(number % 10).ok().and_then(|digit| char::from_digit(digit, 10));
    text.extend(last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::{Surface, UnknownCost};

    #[test]
    fn costs_have_their_difference_from_the_estimate() {
        let rule = |name| {
            format!(
                r#"{{"name": "{name}", "key": [], "quotas": [{{"limit": 1, "window": "1s"}}]}}"#
            )
        };
        let names = ["a", "b", "c", "d"].map(rule).join(",");
        let document = format!(r#"{{"version": 1, "rules": [{names}]}}"#);
        let policy = tollgate_language::compile(&document, Surface::Envoy).unwrap();
        let actual = [Ok(350), Ok(u64::MAX), Ok(500), Err(UnknownCost::Absent)];
        let settled = actual.into_iter().enumerate();
        let settled = settled.map(|(rule, actual)| SettledCharge { rule, estimate: 500, actual });
        assert_eq!(
            costs(&settled.collect::<Vec<_>>(), &Labels::new(&policy)),
            "rule=a estimate=500 actual=350 difference=-150, \
             rule=b estimate=500 actual=18446744073709551615 difference=18446744073709551115, \
             rule=c estimate=500 actual=500 difference=0, \
             rule=d estimate=500 actual=absent"
        );
    }
}
