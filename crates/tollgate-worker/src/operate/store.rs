//! Carries the service's calls on its store to the objects that can execute them.
//!
//! Invariant: an object that does not reply in time is a failed reply, never a wait without end,
//! and a change is sent once: whether one that failed was made is not known.

use tollgate_policy::Policy;
use tollgate_service::{MetricsCall, PolicyCall, StoreCall, StoreReply};

use crate::deployment::Gate;
use crate::object::policy_wire::Question;
use crate::operate::flush;
use crate::runtime::js::{Call, NoReply};

const LATE: &str = "it does not respond in time";

/// The name of the only policy object.
const POLICY: &str = "policy";

/// How long an operator waits for an object, in milliseconds.
const OPERATOR_MS: u32 = 10_000;

/// Carries out `call` for an operator, under the policy in force.
pub(crate) async fn ask(gate: &Gate, in_force: Option<&Policy>, call: &StoreCall) -> StoreReply {
    match call {
        StoreCall::Policy(_) => policy(gate, call, OPERATOR_MS).await,
        StoreCall::Metrics(MetricsCall::Read(format)) => flush::read(&gate.flush, *format).await,
        StoreCall::Tenants(call) => match &gate.tenants {
            Some(tenants) => tenants.carry_out(call, in_force, OPERATOR_MS).await,
            None => StoreReply::Failed("TENANTS is bound to nothing".to_owned()),
        },
        StoreCall::Keys(_) | StoreCall::Usage(_) => {
            StoreReply::Failed("this deployment has no store for it".to_owned())
        }
    }
}

/// The policy object's reply to the question of an isolate that follows, in bytes.
pub(crate) async fn follow(
    gate: &Gate,
    question: Question,
    timeout_ms: u32,
) -> Result<Vec<u8>, String> {
    let objects = gate.policies.as_ref().ok_or("POLICIES is bound to nothing")?;
    let call = Call::object(objects, POLICY, &question.to_bytes(), timeout_ms, true);
    call.reply().await.map_err(|why| match why {
        NoReply::Late => LATE.to_owned(),
        NoReply::Failed(why) => why,
    })
}

/// Carries out a call on the policy.
pub(crate) async fn policy(gate: &Gate, call: &StoreCall, timeout_ms: u32) -> StoreReply {
    let Some(objects) = &gate.policies else {
        return StoreReply::Failed("POLICIES is bound to nothing".to_owned());
    };
    let is_write =
        |call: &PolicyCall| matches!(call, PolicyCall::Change(_) | PolicyCall::NoteKey(_));
    let is_idempotent = !matches!(call, StoreCall::Policy(call) if is_write(call));
    let request = call.to_json();
    let call = Call::object(objects, POLICY, request.as_bytes(), timeout_ms, is_idempotent);
    match call.reply().await {
        Ok(reply) => StoreReply::from_json(&reply),
        Err(NoReply::Late) => StoreReply::Failed(LATE.to_owned()),
        Err(NoReply::Failed(why)) => StoreReply::Failed(why),
    }
}
