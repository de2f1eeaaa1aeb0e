//! The operator's requests about one key: its count is asked, and a change is logged.
//!
//! Invariant: a key goes no further than the store's hash of it. Each operation that changes
//! something is a line of the log, with the `pk` hash. Deliberately absent: the permissions, the
//! order in which a count is asked, and the form of the responses; those are in the service.

use serde_json::Value;
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Policy};
use tollgate_service::key_work::{self, KeyAsk};
use tollgate_service::{KeyCall, StoreReply};

use crate::check::tenants;
use crate::gate::Gate;
use crate::log::Level;
use crate::store::{Ask, NoReply};

/// Carries out `call` for an operator, under the policy in force.
pub(crate) async fn ask(gate: &Gate, policy: &Policy, call: &KeyCall) -> StoreReply {
    let look = async |facts| look(gate, policy, facts).await;
    let count = |asked| count(gate, policy, asked);
    let (reply, event) = key_work::carry_out(policy, call, look, count).await;
    if let Some(event) = event {
        let fields = [
            ("operation", Value::from(event.operation)),
            ("rule", event.rule.into()),
            ("pk", event.pk.into()),
            ("blocked_until_ms", event.blocked_until_ms.into()),
        ];
        gate.log.event(Level::Warning, "key_changed", &fields);
    }
    reply
}

/// The decision that a request would get, with its tenant's entry; nothing is charged.
async fn look(gate: &Gate, policy: &Policy, facts: DescribedRequest) -> Plan {
    let mut plan = Plan::new();
    tenants::plan(gate, policy, &facts, &mut plan).await;
    // Else the tenant's quotas are unknown, and `on_failure` has decided.
    if !plan.has_failed() {
        gate.look(policy, &mut plan).await;
    }
    plan
}

/// Asks the key's count.
async fn count(gate: &Gate, policy: &Policy, asked: KeyAsk) -> Result<Vec<u8>, String> {
    let reply = gate
        .store
        .ask(&gate.name_of(policy, asked.key.bytes()), Ask::Operate(&asked.request))
        .await;
    reply.map_err(|why| match why {
        NoReply::Late => "the store does not answer in time".to_owned(),
        NoReply::Failed(why) | NoReply::Unreadable(why) => why,
        NoReply::Overloaded => "too many ask the store".to_owned(),
    })
}
