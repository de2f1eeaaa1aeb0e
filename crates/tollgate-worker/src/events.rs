//! A line of the log for each rule that refuses, would refuse or fails, as `tollgate_service::log`
//! samples them.
//!
//! Invariant: nothing of the client is in a line but the hash of its partition key, and that only
//! with the secret `HASH_KEY`: without it the hash could be guessed. Deliberately absent: failures
//! of calls, which `tally` reports.

use tollgate_policy::{Answer, Outcome, Policy, RuleDecision};
use tollgate_service::log::{Kind, Line};
use tollgate_service::metrics::{Event, TENANT};

use crate::counters::said_by;
use crate::js;
use crate::objects::Objects;

/// Logs what is notable of one decided request.
pub(crate) fn log(objects: &Objects, policy: &Policy, outcome: &Outcome<'_>) {
    let Ok(mut sampler) = objects.sampler.try_borrow_mut() else { return };
    if !sampler.is_on() {
        return;
    }
    let now_ms = js::now().since(tollgate_core::Timestamp::ZERO).as_millis_ceil();
    for decision in outcome.decisions() {
        let Some(kind) = Kind::of(decision.result, decision.is_binding) else { continue };
        match sampler.take(kind, now_ms) {
            None => objects.counters.add(Event::LogDropped),
            Some(dropped) => {
                let mut line = line(kind, policy, outcome, &decision);
                line.dropped = dropped;
                if !objects.hash_key.is_empty() {
                    line.pk = decision.partition.and_then(|i| outcome.partition_key_hash(i));
                }
                js::event(&line.to_json());
            }
        }
    }
}

/// The line without what only the caller knows.
fn line<'a>(
    event: Kind,
    policy: &'a Policy,
    outcome: &Outcome<'_>,
    decision: &RuleDecision<'a>,
) -> Line<'a> {
    let set = decision.set;
    let is_tenants = decision.quota_set >= policy.quota_sets().len();
    let quota = said_by(decision, decision.result);
    let name = quota.and_then(|quota| set.quotas().get(quota));
    let said = quota.and_then(|quota| decision.quotas.get(quota));
    let answer = outcome.final_answer();
    let status = match answer {
        Answer::Refuse { status } if event != Kind::ShadowRefused => Some(status),
        Answer::Refuse { .. } | Answer::Pass | Answer::Delay(_) | Answer::Retry(_) => None,
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
