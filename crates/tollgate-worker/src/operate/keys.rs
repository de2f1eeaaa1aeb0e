//! The store side of an operator's request for one client: calls the client's object, and logs a
//! change.
//!
//! Invariant: a key goes no further than the hash that names its object. Each operation that
//! changes something is a line of the log, with the `pk` hash. Deliberately absent: permissions,
//! the order in which objects are called, and the format of the responses; those are in the
//! service.

use tollgate_language::DescribedRequest;
use tollgate_policy::{Group, Plan, Policy};
use tollgate_service::key_work::{self, OperatorRequest};
use tollgate_service::usage_work;
use tollgate_service::{KeyCall, StoreReply, TenantCall, TenantReply, UsageCall};
use tollgate_storage::KeyOperation;

use crate::counts::objects::Objects;
use crate::deployment::Gate;
use crate::object::shard;
use crate::request::facts::with_claims;
use crate::request::planning;
use crate::runtime::js;

/// How long an operator waits for a key's object, in milliseconds.
const OPERATOR_MS: u32 = 10_000;

/// Carries out `call` for an operator, under the policy in force.
pub(crate) async fn ask(gate: &Gate, policy: &Policy, call: &KeyCall) -> StoreReply {
    let look = async |facts| look(gate, policy, facts).await;
    let count = |asked| count(&gate.objects, policy, asked);
    let (reply, event) = key_work::carry_out(policy, call, look, count).await;
    if let Some(event) = event {
        js::warn(&format!(
            "an operator's change: {} rule={:?} pk={} blocked_until_ms={}",
            event.operation,
            event.rule,
            event.pk,
            event.blocked_until_ms.unwrap_or(0)
        ));
    }
    reply
}

/// Makes the report that `call` requests, under the policy in force.
pub(crate) async fn report(gate: &Gate, policy: &Policy, call: &UsageCall) -> StoreReply {
    let entry = |name| entry_of(gate, policy, name);
    usage_work::carry_out(policy, call, entry, |asked| count(&gate.objects, policy, asked)).await
}

/// The entry of the tenant with this name, as its object has it; none without `TENANTS`.
async fn entry_of(gate: &Gate, policy: &Policy, name: String) -> Result<Option<String>, String> {
    let Some(tenants) = &gate.tenants else { return Ok(None) };
    match tenants.carry_out(&TenantCall::Get { id: name }, Some(policy), OPERATOR_MS).await {
        StoreReply::Tenants(TenantReply::Entry(found)) => Ok(found.map(|stored| stored.entry)),
        StoreReply::Failed(why) => Err(why),
        _ => Err("a tenant's object gave no entry".to_owned()),
    }
}

/// The decision that a request would get, with its tenant's entry; nothing is charged, and the
/// cached denials are not used.
async fn look(gate: &Gate, policy: &Policy, facts: DescribedRequest) -> Plan {
    let facts = with_claims(policy, facts).await;
    let mut plan = Plan::new();
    planning::plan(gate.tenants.as_ref(), &gate.objects, policy, &facts, &mut plan).await;
    // Otherwise the tenant's quotas are unknown, and `on_failure` has decided.
    if !plan.has_failed() {
        gate.objects.look(policy, &mut plan).await;
    }
    plan
}

/// Calls the key's object. Before that its shards report their spending to it, and after a change
/// they hold nothing from before it.
async fn count(
    objects: &Objects,
    policy: &Policy,
    asked: OperatorRequest,
) -> Result<Vec<u8>, String> {
    let name = objects.name_of(policy, asked.key.bytes());
    let shards = policy.groups().get(asked.key.group).and_then(Group::shards);
    if let Err(why) = close_shards(objects, &name, shards).await {
        // A failure here is not a reason to leave the key unchanged.
        js::warn(&why);
    }
    let call = js::Call::operate(&objects.namespace, &name, &asked.request, OPERATOR_MS);
    let reply = call.reply().await.map_err(|why| failed("the key's object", why))?;
    if asked.operation != KeyOperation::Describe {
        // The units that they leased meanwhile, and the denials that they remember.
        close_shards(objects, &name, shards).await?;
    }
    Ok(reply)
}

/// Makes the shards of a key, if it has any, give back their units.
async fn close_shards(objects: &Objects, name: &str, shards: Option<u32>) -> Result<(), String> {
    let Some(shards) = shards else { return Ok(()) };
    let call = shard::close(&objects.namespace, name, shards, OPERATOR_MS);
    let held = "what a shard of the key holds is spent for at most 3 s, as";
    call.reply().await.map(drop).map_err(|why| format!("{held} {}", failed("it", why)))
}

fn failed(who: &str, why: js::NoReply) -> String {
    match why {
        js::NoReply::Late => format!("{who} does not respond in time"),
        js::NoReply::Failed(why) => why,
    }
}
