//! One request's decision, and what its response brings about.
//!
//! Invariant: whoever has to wait has waited when the decision is returned, and what failed is
//! counted. Deliberately absent: which objects are asked for it, and when; that is `objects`' and
//! `wait`'s.

use tollgate_core::Span;
use tollgate_policy::{Facts, Plan, Policy};
use tollgate_service::check::Decided;
use tollgate_service::metrics::Event;

use crate::events;
use crate::objects::Objects;
use crate::{js, wait};

/// Decides a request, letting it wait as long as its rules allow. Whoever only asks (`holds` is
/// false) waits for a place in a `leaky-queue` itself.
pub(crate) async fn decide(
    objects: &Objects,
    policy: &Policy,
    facts: &impl Facts,
    holds: bool,
) -> Decided {
    let mut plan = Plan::new();
    policy.plan(facts, &mut plan);
    let is_remembered = objects.denials.refuses(policy, &mut plan);
    let waited = if is_remembered {
        objects.counters.add(Event::RememberedDenial);
        Span::ZERO
    } else {
        wait::decide(objects, policy, &mut plan, holds).await
    };
    let outcome = plan.outcome(policy);
    if objects.counters.count(policy, &outcome, waited) {
        events::log(objects, policy, &outcome);
    }
    objects.report_failures(policy, &plan);
    Decided { plan, waited }
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
