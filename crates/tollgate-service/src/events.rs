//! The log lines of one decision, as [`log`](crate::log) samples them.
//!
//! Invariant: they contain no data of the client. Only the caller knows the hash of the partition
//! key and the number of omitted lines. Deliberately absent: failures of calls of a store.

use tollgate_policy::{DenyMatch, Disposition, Outcome, Policy, RuleDecision};

use crate::log::{Kind, Line};
use crate::metrics::TENANT;

/// A result that may be logged.
#[derive(Debug)]
pub struct NotableResult<'a> {
    /// The line without the values that only the caller knows.
    pub line: Line<'a>,
    /// The partition whose key the line is about.
    pub partition: Option<usize>,
}

/// The results of a decided request that may be logged.
pub fn notable_results<'a>(
    policy: &'a Policy,
    outcome: Outcome<'a>,
) -> impl Iterator<Item = NotableResult<'a>> {
    let of_deny = outcome.deny_matches().filter_map(move |matched| {
        let kind = Kind::of(matched.result, matched.rule.is_enforced)?;
        let line = deny_line(kind, policy, &outcome, &matched);
        Some(NotableResult { line, partition: None })
    });
    let of_rules = outcome.decisions().filter_map(move |decision| {
        let kind = Kind::of(decision.result, decision.is_binding)?;
        let line = line(kind, policy, &outcome, &decision);
        Some(NotableResult { line, partition: decision.partition })
    });
    of_deny.chain(of_rules)
}

fn line<'a>(
    event: Kind,
    policy: &'a Policy,
    outcome: &Outcome<'_>,
    decision: &RuleDecision<'a>,
) -> Line<'a> {
    let set = decision.set;
    let is_tenants = decision.quota_set >= policy.quota_sets().len();
    let quota = decision.said_by();
    let name = quota.and_then(|quota| set.quotas().get(quota));
    let said = quota.and_then(|quota| decision.quotas.get(quota));
    Line {
        event,
        rule: policy.rules().get(decision.rule).map_or("", |rule| rule.name()),
        tier: if is_tenants { TENANT } else { set.tier().unwrap_or_default() },
        quota: name.map_or("", |quota| quota.name()),
        result: decision.result.label(),
        status: status(event, outcome),
        retry_after_ms: said.and_then(|said| Some(said.retry_after?.as_millis_ceil())),
        policy_version: policy.version(),
        pk: None,
        dropped: 0,
    }
}

fn deny_line<'a>(
    event: Kind,
    policy: &Policy,
    outcome: &Outcome<'_>,
    matched: &DenyMatch<'a>,
) -> Line<'a> {
    Line {
        event,
        rule: matched.rule.name(),
        tier: "",
        quota: "",
        result: matched.result.label(),
        status: status(event, outcome),
        retry_after_ms: None,
        policy_version: policy.version(),
        pk: None,
        dropped: 0,
    }
}

/// The status of our response.
fn status(event: Kind, outcome: &Outcome<'_>) -> Option<u16> {
    match outcome.final_disposition() {
        Disposition::Deny { status } if event != Kind::ShadowRefused => Some(status),
        Disposition::Deny { .. }
        | Disposition::Allow
        | Disposition::Delay(_)
        | Disposition::Retry(_) => None,
    }
}
