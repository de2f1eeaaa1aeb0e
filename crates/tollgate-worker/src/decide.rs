//! One request's decision, and what its response brings about.
//!
//! Invariant: whoever has to wait has waited when the decision is returned, and what failed is
//! counted. A request is decided under one policy: when a count is found to be of a newer one, what
//! the others charged was given back, and all of it is planned anew under that. Deliberately
//! absent: which objects are asked for it, and when; that is `objects`' and `wait`'s.

use std::rc::Rc;

use tollgate_core::Span;
use tollgate_policy::{Facts, Plan, Policy};
use tollgate_service::check::Decided;
use tollgate_service::metrics::Event;

use crate::active::Active;
use crate::deployment::Visit;
use crate::events;
use crate::facts::{WithClaims, with_claims};
use crate::follow::policy_of;
use crate::objects::Objects;
use crate::tenants;
use crate::{js, wait};

/// How often a request is planned anew. A policy that is replaced again meanwhile is seldom; after
/// that `on_failure` decides.
const MAX_REPLANS: u32 = 2;

/// A decided request, and what it was decided by.
pub(crate) struct Decision<F> {
    pub(crate) decided: Decided,
    pub(crate) active: Rc<Active>,
    pub(crate) facts: WithClaims<F>,
}

/// Decides a request under `active`, or under what replaced it, letting it wait as long as its
/// rules allow. Whoever only asks (`holds` is false) waits for a place in a `leaky-queue` itself.
pub(crate) async fn decide<F: Facts>(
    visit: &Visit<'_>,
    mut active: Rc<Active>,
    facts: F,
    holds: bool,
) -> Decision<F> {
    let objects = &visit.gate.objects;
    let mut facts = with_claims(&active.policy, facts).await;
    let since = js::now();
    let mut replans = 0;
    loop {
        let policy = &*active.policy;
        let mut plan = Plan::new();
        tenants::plan(visit.gate.tenants.as_ref(), objects, policy, &facts, &mut plan).await;
        let is_remembered = objects.denials.refuses(policy, &mut plan);
        let waited = if is_remembered {
            objects.counters.add(Event::RememberedDenial);
            Span::ZERO
        } else if plan.has_failed() {
            Span::ZERO // nobody knows its tenant's quotas
        } else {
            wait::decide(objects, policy, &mut plan, holds, since).await
        };
        if let Some(generation) = plan.newer()
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
        return Decision { decided: Decided { plan, waited }, active, facts };
    }
}

/// Charges and gives back what a response's `status`, or none, brings about; false when nothing was
/// charged or given back. Once this is over it is durable, so a client that learns of a failed
/// attempt learns it after the attempt was counted.
pub(crate) async fn settle(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    status: Option<u16>,
) -> bool {
    if !plan.settle(policy, status) {
        return false;
    }
    let settle = |partition| objects.settle(policy, partition);
    let calls: Vec<_> = plan.partitions().map(settle).collect();
    let asked_at = js::now();
    let mut charged = false;
    for (i, call) in calls {
        objects.accept(policy, plan, i, asked_at, call.reply().await);
        charged |= plan.partition(i).is_some_and(|partition| partition.changed());
    }
    objects.denials.close(policy, plan);
    objects.report();
    charged
}
