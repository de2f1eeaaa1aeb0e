//! What an operator asks of one client: explained, looked at, reset, blocked.
//!
//! Invariant: a key is named by its value and goes no further than the hash that names its object:
//! no answer and no line of the log holds it. Every operation may be repeated. Each that changes
//! something is a line of the log, with the `pk` hash. Deliberately absent: who may ask, and what
//! the answers look like; that is the service's.

use tollgate_core::Timestamp;
use tollgate_policy::{DescribedRequest, GivenKey, KeyOperation, KeyState, NoKey, Plan, Policy};
use tollgate_service::{KeyCall, KeyReply, RuleKey, StoreReply, key_report};

use crate::deployment::Gate;
use crate::facts::with_claims;
use crate::js;
use crate::object_name::object_name;
use crate::objects::Objects;
use crate::tenants;

/// How long an operator waits for a key's object, in milliseconds.
const OPERATOR_MS: u32 = 10_000;

/// Carries out `call` for an operator, under the policy in force.
pub(crate) async fn ask(gate: &Gate, policy: &Policy, call: &KeyCall) -> StoreReply {
    let objects = &gate.objects;
    let done = match call {
        KeyCall::Explain { request } => Ok(explain(gate, policy, request).await),
        KeyCall::State(key) => state(objects, policy, key).await,
        KeyCall::Reset(key) => change(objects, policy, key, KeyOperation::Reset).await,
        KeyCall::Unblock(key) => change(objects, policy, key, KeyOperation::Unblock).await,
        KeyCall::Block { key, until_ms } => {
            let until = KeyOperation::Block(Timestamp::from_millis(*until_ms));
            change(objects, policy, key, until).await
        }
    };
    done.map_or_else(StoreReply::Failed, StoreReply::Keys)
}

/// What would be decided, with the entry that the request's tenant has; nothing is charged, and
/// nothing that is remembered of counts is asked.
async fn explain(gate: &Gate, policy: &Policy, request: &str) -> KeyReply {
    let Ok(facts) = DescribedRequest::parse(request.as_bytes()) else {
        return KeyReply::NoKey("is no request".to_owned());
    };
    let facts = with_claims(policy, facts).await;
    let mut plan = Plan::new();
    tenants::plan(gate.tenants.as_ref(), &gate.objects, policy, &facts, &mut plan).await;
    // Else nobody knows its tenant's quotas, and `on_failure` has decided.
    if !plan.has_failed() {
        gate.objects.look_at(policy, &mut plan).await;
    }
    KeyReply::Explained(key_report::explained(policy, &plan.outcome(policy)))
}

async fn state(objects: &Objects, policy: &Policy, key: &RuleKey) -> Result<KeyReply, String> {
    let key = match given(policy, key) {
        Ok(key) => key,
        Err(none) => return Ok(none),
    };
    let state = operate(objects, policy, &key, KeyOperation::Describe).await?;
    Ok(KeyReply::State(key_report::state(policy, &key, &state)))
}

async fn change(
    objects: &Objects,
    policy: &Policy,
    key: &RuleKey,
    operation: KeyOperation,
) -> Result<KeyReply, String> {
    let rule = &key.rule;
    let key = match given(policy, key) {
        Ok(key) => key,
        Err(none) => return Ok(none),
    };
    let state = operate(objects, policy, &key, operation).await?;
    let (what, pk) = (word(operation), key.pk(policy));
    let until = state.blocked_until.map(|until| until.since(Timestamp::ZERO).as_millis_ceil());
    js::warn(&format!(
        "an operator's change: {what} rule={rule:?} pk={pk:016x} blocked_until_ms={}",
        until.unwrap_or(0)
    ));
    Ok(KeyReply::Done)
}

const fn word(operation: KeyOperation) -> &'static str {
    match operation {
        KeyOperation::Describe => "describe",
        KeyOperation::Reset => "reset",
        KeyOperation::Block(_) => "block",
        KeyOperation::Unblock => "unblock",
    }
}

fn given(policy: &Policy, key: &RuleKey) -> Result<GivenKey, KeyReply> {
    let found = policy.key_of(&key.rule, &key.key).and_then(|found| match &key.tenant {
        Some(tenant) => found.of_tenant(policy, tenant),
        None => Ok(found),
    });
    found.map_err(|none| match none {
        NoKey::NoRule => KeyReply::NoRule,
        NoKey::Wrong(why) => KeyReply::NoKey(why),
    })
}

async fn operate(
    objects: &Objects,
    policy: &Policy,
    key: &GivenKey,
    operation: KeyOperation,
) -> Result<KeyState, String> {
    let name = object_name(&objects.hash_key, key.bytes());
    let mut request = Vec::new();
    key.request(policy, operation, &mut request);
    let call = js::Call::operate(&objects.namespace, &name, &request, OPERATOR_MS);
    let reply = call.reply().await.map_err(|why| match why {
        js::NoReply::Late => "the key's object does not answer in time".to_owned(),
        js::NoReply::Failed(why) => why,
    })?;
    KeyState::read(&reply).map_err(|why| why.to_string())
}
