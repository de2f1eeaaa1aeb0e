//! One request's decision, and the charges and refunds that its response causes.
//!
//! Invariant: a request that has to wait has waited when the decision is returned, and failures are
//! counted. A request is decided under one policy. When a count turns out to have a newer one, the
//! charges of the others were refunded, and the whole request is planned again under that.
//! Deliberately absent: which objects are called for it, and when; that is in `objects` and `wait`.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Ending, Facts, Outdated, Plan, Policy, Problems, ResponseFacts};
use tollgate_service::check::{Decided, KeyBudget};
use tollgate_service::drive::MAX_REPLANS;
use tollgate_service::metrics::Event;

use crate::active::Active;
use crate::counts::objects::Objects;
use crate::counts::wait;
use crate::deployment::RequestContext;
use crate::follow::policy_of;
use crate::request::events;
use crate::request::facts::{WithClaims, with_claims};
use crate::request::planning;
use crate::runtime::js;

/// A decided request, and the plan and policy that decided it.
pub(crate) struct Decision<F> {
    pub(crate) decided: Decided,
    pub(crate) active: Rc<Active>,
    pub(crate) facts: WithClaims<F>,
    /// When the request came.
    pub(crate) came_at: Timestamp,
}

/// The caller that wants a request decided.
#[derive(Clone, Copy)]
pub(crate) enum Caller<'a> {
    /// It is held here until its place in a `leaky-queue` comes up.
    Holds,
    /// The caller itself waits for such a place, and is one of several that share a budget of
    /// calls.
    Asks(Option<&'a KeyBudget>),
}

/// Decides a request under `active`, or under the policy that replaced it, letting it wait
/// as long as its rules allow.
///
/// # Errors
/// The shared budget of calls is used up; no object was called then.
pub(crate) async fn decide<F: Facts>(
    visit: &RequestContext<'_>,
    mut active: Rc<Active>,
    facts: F,
    caller: Caller<'_>,
) -> Result<Decision<F>, Problems> {
    let objects = &visit.gate.objects;
    let mut facts = with_claims(&active.policy, facts).await;
    let since = js::now();
    let mut replans = 0;
    loop {
        let policy = &*active.policy;
        let mut plan = Plan::new();
        let question = planning::plan_to_decide(visit, policy, &facts, &mut plan).await;
        // The cached denials are of quotas that the tenant may no longer have.
        let is_remembered = question.is_none()
            && objects.denials.refuses(policy, &mut plan, |now| visit.gate.relieved(now));
        let waited = if is_remembered {
            objects.counters.add(Event::RememberedDenial);
            Span::ZERO
        } else if plan.has_failed() {
            Span::ZERO // the tenant's quotas are unknown
        } else if let Caller::Asks(Some(budget)) = caller
            && let Err(problems) = budget.take(plan.len())
        {
            question.map(|question| question.record_reply(&plan, objects));
            return Err(problems);
        } else {
            let holds = matches!(caller, Caller::Holds);
            wait::decide(objects, policy, &mut plan, holds, since).await
        };
        let has_other_entry =
            question.is_some_and(|question| question.record_reply(&plan, objects));
        if has_other_entry && replans < MAX_REPLANS {
            replans = replans.saturating_add(1);
            continue;
        }
        if let Some(Outdated::Policy(generation)) = plan.outdated()
            && replans < MAX_REPLANS
            && let Some(next) = policy_of(visit, generation).await
        {
            objects.counters.add(Event::PolicyRetry);
            replans = replans.saturating_add(1);
            facts = with_claims(&next.policy, facts.facts).await;
            active = next;
            continue;
        }
        let outcome = plan.outcome(policy);
        if objects.counters.count(policy, &outcome, waited) {
            events::log(objects, policy, &outcome);
        }
        objects.report_failures(policy, &plan);
        let decided = Decided { plan, waited, id: None, in_flight: None };
        return Ok(Decision { decided, active, facts, came_at: since });
    }
}

/// Carries out the charges and refunds that the `ending` of a request causes; false when there were
/// none. When this returns they are durable, so a client that learns of a failed attempt learns it
/// after the attempt was counted.
pub(crate) async fn settle(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    ending: Ending,
    response: &dyn ResponseFacts,
) -> bool {
    let is_due = plan.settle(policy, ending, response);
    objects.counters.count_costs(plan.settlement(policy).costs());
    if !is_due {
        return false;
    }
    let charged = objects.settle(policy, plan).await;
    objects.report();
    charged
}
