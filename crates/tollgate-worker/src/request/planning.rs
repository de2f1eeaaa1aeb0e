//! Planning a request in an isolate, with the entry that its tenant has.
//!
//! Invariant: a request is decided with the entry that its tenant had at most five seconds ago.
//! When the tenant's object does not reply, the last known entry is used, for at most ten minutes.
//! If nothing is known of the tenant then, the rules of the policy decide, counted as usual.
//! Exception: if a rule is set to deny when its state cannot be read (`on_failure`), the request is
//! denied, because it is not known which quotas apply. Either is counted and logged.
//!
//! Where the entry is stored next to a count that the request is charged to, it is not requested
//! separately. The request is planned with the last known entry, or with none, and that count
//! decides it only if this entry is right ([`EntryLookup`]). No request is planned with entries
//! where the policy has no tenants, and none is requested where no rule applies.

use std::rc::Rc;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_policy::{Facts, Outdated, Plan, Policy, Tenant};
use tollgate_service::TenantLookup;

use crate::counts::objects::Objects;
use crate::deployment::RequestContext;
use crate::operate::tally::FailureKind;
use crate::runtime::js;
use crate::tenants::Tenants;
use crate::tenants::tenant_cache::{Entry, Look};

/// The question about its tenant's entry that a request sends together with its charge.
pub(crate) struct EntryLookup<'a> {
    tenants: &'a Tenants,
    id: Vec<u8>,
    asked_at: Timestamp,
    /// The revision of the entry that it was planned with; 0 for none.
    revision: u64,
}

impl EntryLookup<'_> {
    /// Records the reply about the entry. True when there is another entry, and the request must be
    /// planned again.
    pub(crate) fn record_reply(self, plan: &Plan, objects: &Objects) -> bool {
        let Self { tenants, id, asked_at, revision } = self;
        let outdated = plan.outdated();
        if let Some(Outdated::Entry(kept)) = outdated {
            tenants.hear(&id, asked_at, kept, objects);
        } else {
            let mut cache = tenants.cache.borrow_mut();
            let set = cache.set(&id);
            if plan.tenant().is_some_and(|tenant| tenant.has_confirmed_entry()) {
                set.confirm(&id, asked_at, |entry| revision_of(entry) == revision);
            } else if plan.has_failed() && outdated.is_none() {
                set.fail(&id, js::now());
            } else {
                set.release(&id, js::now());
            }
        }
        tenants.bell.ring();
        matches!(outdated, Some(Outdated::Entry(_)))
    }
}

/// Plans a request that is to be decided, as [`plan`] does. Where the count that decides it knows
/// the tenant's entry, plans with a guess of the entry instead: then there is a question.
pub(crate) async fn plan_to_decide<'a>(
    visit: &RequestContext<'a>,
    policy: &Policy,
    facts: &impl Facts,
    plan: &mut Plan,
) -> Option<EntryLookup<'a>> {
    policy.plan(facts, plan);
    let tenants = visit.gate.tenants.as_ref()?;
    let lookup = TenantLookup::of(policy, plan)?;
    let objects = &visit.gate.objects;
    let mut look = tenants.look(&lookup.id).await;
    if matches!(look, Look::Ask) {
        if is_beside(tenants, visit, policy) {
            let asked_at = js::now();
            let guess = tenants.cache.borrow_mut().set(&lookup.id).guess(&lookup.id, asked_at);
            let revision = revision_of(guess.as_ref());
            lookup.plan(facts, plan, Some(under(guess, &lookup)), js::now);
            if policy.tenants()?.ask_under(plan, revision) {
                return Some(EntryLookup { tenants, id: lookup.id, asked_at, revision });
            }
            policy.plan(facts, plan);
        }
        tenants.ask(&lookup.id, &lookup.name, objects).await;
        tenants.bell.ring();
        look = tenants.find(&lookup.id, &lookup.name, objects).await;
    }
    plan_with(look, objects, &lookup, facts, plan);
    None
}

/// True when every entry is stored next to the counts of this policy. The list is asked that
/// outside the requests, rarely; until the reply is known, false is assumed.
fn is_beside(tenants: &Tenants, visit: &RequestContext<'_>, policy: &Policy) -> bool {
    let tenancy = policy.tenants().map_or(0, |tenants| tenants.identity());
    if tenancy == 0 {
        return false;
    }
    let mut entry_location = tenants.entry_location.borrow_mut();
    if entry_location.is_to_be_asked(tenancy, policy.version(), js::now()) {
        let deployment = Rc::clone(visit.deployment);
        visit.context.wait_until(async move {
            let tenants = deployment.gate().and_then(|gate| gate.tenants.as_ref());
            if let Some(tenants) = tenants {
                tenants.learn_beside(tenancy).await;
            }
        });
    }
    entry_location.is_known(tenancy, policy.version(), js::now())
}

/// The revision of an entry; 0 for none.
fn revision_of(entry: Option<&Rc<Entry>>) -> u64 {
    entry.map_or(0, |entry| entry.revision)
}

fn under(entry: Option<Rc<Entry>>, lookup: &TenantLookup<'_>) -> Option<Arc<Tenant>> {
    entry.map(|entry| entry.under(lookup.policy, &lookup.id))
}

/// Plans a request with its tenant's entry, where it has one. An entry that cannot be found out has
/// failed in the plan: the `on_failure` of its rules denies the request, and no object must be
/// called.
pub(crate) async fn plan(
    tenants: Option<&Tenants>,
    objects: &Objects,
    policy: &Policy,
    facts: &impl Facts,
    plan: &mut Plan,
) {
    policy.plan(facts, plan);
    let Some(tenants) = tenants else { return };
    let Some(lookup) = TenantLookup::of(policy, plan) else { return };
    let look = tenants.find(&lookup.id, &lookup.name, objects).await;
    plan_with(look, objects, &lookup, facts, plan);
}

fn plan_with(
    look: Look,
    objects: &Objects,
    lookup: &TenantLookup<'_>,
    facts: &impl Facts,
    plan: &mut Plan,
) {
    let known = look.known().map(|found| under(found, lookup));
    if !lookup.plan(facts, plan, known, js::now) {
        objects.note(FailureKind::Tenant, "");
    }
}
