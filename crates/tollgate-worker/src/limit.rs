//! One request's decision: its plan, the objects that decide it, and giving back what a refusal took.
//!
//! Invariant: all or nothing. A request of several keys is first looked at by every key's object and charged only if all
//! of them would admit it; each then decides for itself, at once and at the same time; when a race was lost and the request is
//! refused after all, the charges of those that admitted it are taken back before the refusal is answered. An object that
//! does not answer is a failure, and `on_failure` decides.

use tollgate_core::Span;
use tollgate_policy::{Answer, Facts, Failure, Plan, Policy};
use wasm_bindgen::JsValue;

use crate::js::{self, Call};
use crate::naming::object_name;

/// The objects, and how they are named.
pub(crate) struct Objects {
    pub(crate) namespace: JsValue,
    pub(crate) hash_key: Vec<u8>,
}

/// What one object was asked.
struct Asked {
    partition: usize,
    name: String,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// A decided request.
pub(crate) struct Decided {
    pub(crate) plan: Plan,
    /// What it waited for already; its outcome's answer is the one after that.
    pub(crate) waited: Span,
}

/// Decides a request, letting it wait as long as its rules allow.
pub(crate) async fn decide(objects: &Objects, policy: &Policy, facts: &impl Facts) -> Decided {
    let mut waited = Span::ZERO;
    loop {
        let plan = decide_once(objects, policy, facts, waited).await;
        let Answer::Retry(wait) = plan.outcome(policy).answer_after(waited) else {
            return Decided { plan, waited };
        };
        js::wait(wait.as_millis_ceil()).await;
        waited = waited.saturating_add(wait);
    }
}

/// Charges what a response's `status` brings about; false when nothing. Once this is over it is durable,
/// so a client that is told of a failed attempt is told after the attempt was counted.
pub(crate) async fn settle(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    status: u16,
) -> bool {
    if !plan.settle(policy, status) {
        return false;
    }
    let due = (0..plan.len()).filter(|i| plan.applies(*i));
    let calls: Vec<_> = due.map(|i| (i, objects.ask(policy, plan, i).1)).collect();
    let mut charged = false;
    for (i, call) in calls {
        let reply = call.reply().await.unwrap_or_default();
        charged |= plan.accept(policy, i, &reply).is_ok() && plan.changed(i);
    }
    charged
}

async fn decide_once(objects: &Objects, policy: &Policy, facts: &impl Facts, waited: Span) -> Plan {
    let mut plan = Plan::new();
    policy.plan(facts, &mut plan);
    if plan.len() > 1 && !is_admitted_everywhere(objects, policy, &mut plan, waited).await {
        return plan;
    }
    // What did not answer the inquiry is not waited for once more.
    let there = (0..plan.len()).filter(|i| !plan.has_failed(*i));
    let (mut asked, calls): (Vec<_>, Vec<_>) = there.map(|i| objects.ask(policy, &plan, i)).unzip();
    for (asked, call) in asked.iter_mut().zip(calls) {
        asked.reply = call.reply().await.unwrap_or_default();
        accept(policy, &mut plan, asked.partition, &asked.reply);
    }
    if is_refused(policy, &plan, waited) {
        objects.give_back(policy, &mut plan, &asked).await;
    }
    plan
}

/// Asks what every object would decide, before any of them charges: what one key refuses never holds a place in the
/// counts of the others, which a flood would fill.
async fn is_admitted_everywhere(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    waited: Span,
) -> bool {
    let calls: Vec<_> = (0..plan.len()).map(|i| objects.inquire(policy, plan, i)).collect();
    for (i, call) in calls.into_iter().enumerate() {
        let reply = call.reply().await.unwrap_or_default();
        accept(policy, plan, i, &reply);
    }
    !is_refused(policy, plan, waited)
}

fn accept(policy: &Policy, plan: &mut Plan, i: usize, reply: &[u8]) {
    if plan.accept(policy, i, reply).is_err() {
        plan.fail(i, Failure::Unreachable);
    }
}

fn is_refused(policy: &Policy, plan: &Plan, waited: Span) -> bool {
    let answer = plan.outcome(policy).answer_after(waited);
    matches!(answer, Answer::Refuse { .. } | Answer::Retry(_))
}

impl Objects {
    fn ask(&self, policy: &Policy, plan: &Plan, i: usize) -> (Asked, Call) {
        let name = object_name(&self.hash_key, plan.key(i));
        let mut request = Vec::new();
        plan.request(policy, i, &mut request);
        let call = Call::check(&self.namespace, &name, &request);
        (Asked { partition: i, name, request, reply: Vec::new() }, call)
    }

    fn inquire(&self, policy: &Policy, plan: &Plan, i: usize) -> Call {
        let mut inquiry = Vec::new();
        plan.inquiry(policy, i, &mut inquiry);
        Call::check(&self.namespace, &object_name(&self.hash_key, plan.key(i)), &inquiry)
    }

    /// Takes back every charge of a refused request. The new replies say what is left without it.
    async fn give_back(&self, policy: &Policy, plan: &mut Plan, asked: &[Asked]) {
        let charged = asked.iter().filter(|asked| plan.changed(asked.partition));
        let refund = |asked: &Asked| {
            Call::refund(&self.namespace, &asked.name, &asked.request, &asked.reply)
        };
        let calls: Vec<_> = charged.map(|asked| (asked.partition, refund(asked))).collect();
        for (i, call) in calls {
            if let Some(reply) = call.reply().await {
                // What cannot be read changes nothing: the request is refused in any case.
                let _ = plan.accept(policy, i, &reply);
            }
        }
    }
}
