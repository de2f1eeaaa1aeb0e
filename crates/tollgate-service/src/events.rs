//! The log line of one decision, as [`log`](crate::log) samples it.
//!
//! Invariant: it contains no data of the client. Only the caller knows the hash of its partition
//! key and the number of omitted lines. Deliberately absent: failures of calls of a store.

use tollgate_policy::{Disposition, Outcome, Policy, RuleDecision};

use crate::log::{Kind, Line};
use crate::metrics::TENANT;

/// The line without the values that only the caller knows.
#[must_use]
pub fn line<'a>(
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
    let status = match outcome.final_disposition() {
        Disposition::Deny { status } if event != Kind::ShadowRefused => Some(status),
        Disposition::Deny { .. }
        | Disposition::Allow
        | Disposition::Delay(_)
        | Disposition::Retry(_) => None,
    };
    Line {
        event,
        rule: policy.rules().get(decision.rule).map_or("", |rule| rule.name()),
        tier: if is_tenants { TENANT } else { set.tier().unwrap_or_default() },
        quota: name.map_or("", |quota| quota.name()),
        result: decision.result.label(),
        status,
        retry_after_ms: said.and_then(|said| Some(said.retry_after?.as_millis_ceil())),
        policy_version: policy.version(),
        pk: None,
        dropped: 0,
    }
}
