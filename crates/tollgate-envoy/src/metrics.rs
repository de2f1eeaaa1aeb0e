//! What is counted, and under which names.
//!
//! Invariant: every counter is defined once, when the policy is configured; a request only adds. Names:
//! `tollgate.decisions.rule=<rule>.result=<result>`, which two `stats_tags` of the bootstrap turn into
//! labels, `tollgate.cas_retries`, `tollgate.evictions`, `tollgate.failures`.

use tollgate_core::Span;
use tollgate_policy::{Outcome, Policy, RuleResult};

use crate::enforce::Tally;

/// The host's counters.
pub trait Counters {
    /// The number of the counter `name`, the same for the same name; `None` if the host has none.
    fn define(&self, name: &str) -> Option<u32>;
    /// Adds to it.
    fn add(&self, counter: u32, by: i64);
}

/// The counters of one policy.
#[derive(Default)]
pub struct Metrics {
    rules: Vec<[Option<u32>; RuleResult::ALL.len()]>,
    retries: Option<u32>,
    evictions: Option<u32>,
    failures: Option<u32>,
}

impl Metrics {
    /// Defines the counters of every rule.
    pub fn define(policy: &Policy, counters: &impl Counters) -> Self {
        let name = |rule: &str, result| format!("tollgate.decisions.rule={rule}.result={result}");
        let define_rule =
            |rule: &str| RuleResult::ALL.map(|result| counters.define(&name(rule, result.label())));
        Self {
            rules: policy.rules().iter().map(|rule| define_rule(&label(rule.name()))).collect(),
            retries: counters.define("tollgate.cas_retries"),
            evictions: counters.define("tollgate.evictions"),
            failures: counters.define("tollgate.failures"),
        }
    }

    /// Counts the last decisions on one request, which has waited this long to be decided again.
    pub fn count(&self, outcome: &Outcome<'_>, waited: Span, counters: &impl Counters) {
        for (rule, result) in outcome.rules_after(waited) {
            let counter = self.rules.get(rule).and_then(|row| *row.get(result.index())?);
            add(counters, counter, 1);
        }
    }

    /// Counts what happened besides.
    pub fn add(&self, tally: &Tally, counters: &impl Counters) {
        add(counters, self.retries, tally.retries);
        add(counters, self.evictions, tally.evictions);
        add(counters, self.failures, tally.failures);
    }
}

fn add(counters: &impl Counters, counter: Option<u32>, by: i64) {
    if let (Some(counter), true) = (counter, by > 0) {
        counters.add(counter, by);
    }
}

/// A rule's name as it stands in a metric's: a dot would end it, other signs confuse exporters.
fn label(rule: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    rule.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn labels_have_no_dots_nor_blanks() {
        assert_eq!(label("api v1.2/x=\"y\""), "api_v1_2_x__y_");
    }
}
