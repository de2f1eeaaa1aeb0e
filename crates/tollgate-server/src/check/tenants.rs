//! Planning a request with its tenant's entry.
//!
//! Invariant: a request is planned with the entry that its tenant had at most five seconds ago.
//! When the store does not respond, the last known entry is used, for ten minutes at most. For a
//! tenant without a known entry the rules of the policy then decide, except the rules that deny
//! when their state cannot be read (`on_failure`), because the tenant's quotas are unknown. Either
//! case is counted. A change by this server applies to the next request.

use std::sync::Arc;

use tollgate_policy::{Facts, Plan, Policy};
use tollgate_service::metrics::Event;
use tollgate_service::{StoreCall, StoreReply, TenantCall, TenantLookup, TenantReply};

use crate::gate::Gate;
use crate::gate::tenant_cache::{Entry, Found};

/// Plans a request. Rules whose state cannot be known have failed in the plan, and nothing is to be
/// asked then.
pub(crate) async fn plan(gate: &Gate, policy: &Policy, facts: &impl Facts, plan: &mut Plan) {
    policy.plan(facts, plan);
    let Some(lookup) = TenantLookup::of(policy, plan) else { return };
    let now = gate.clock.now();
    let found = match gate.tenants.fresh(&lookup.id, now) {
        Some(found) => Some(found),
        None => ask(gate, &lookup.id, &lookup.name).await,
    };
    let known = found.map(|found| found.map(|entry| entry.under(policy, &lookup.id)));
    if !lookup.plan(facts, plan, known, || now) {
        gate.note(Event::UnknownTenant, "the quotas of a tenant are unknown");
    }
}

/// Asks the store for a tenant's entry.
async fn ask(gate: &Gate, id: &[u8], name: &str) -> Option<Found> {
    let asked_at = gate.clock.now();
    gate.counting.add(Event::ReadTenant);
    let call = StoreCall::Tenants(TenantCall::Get { id: name.to_owned() });
    let found = match gate.store.rules(&call).await {
        StoreReply::Tenants(TenantReply::Entry(found)) => found,
        StoreReply::Failed(why) => {
            gate.note(Event::Failed, &why);
            return gate.tenants.stale(id, asked_at);
        }
        _ => {
            gate.note(Event::Misread, "the store gave no entry of a tenant");
            return gate.tenants.stale(id, asked_at);
        }
    };
    let read = found.map(|stored| tollgate_language::tenant_entry(stored.entry.as_bytes()));
    if matches!(read, Some(Err(_))) {
        gate.note(Event::Misread, "a tenant's entry cannot be read");
        return gate.tenants.stale(id, asked_at);
    }
    let entry = read.and_then(Result::ok).map(|entry| Arc::new(Entry::new(entry)));
    gate.tenants.put(id, asked_at, entry.clone());
    Some(entry)
}
