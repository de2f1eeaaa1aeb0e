//! Planning a request with the entry of its tenant, as far as that is known.
//!
//! Invariant: the quotas of a tenant apply while its entry is in force. If nothing is known of the
//! entry, the rules of the policy decide, except where one of them denies when its state cannot be
//! read (`on_failure`): then the plan has failed, and no count is to be asked. An entry is compiled
//! once per policy. Deliberately absent: fetching an entry, and how long it is used
//! ([`TenantSet`](crate::TenantSet)).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tollgate_core::Timestamp;
use tollgate_policy::{Facts, Failure, Plan, Policy, Tenant, TenantEntry};

use crate::tenant_set::Found;

/// An entry in a cache, and its compiled form under the policy that it was last needed for.
#[derive(Debug)]
pub struct TenantCacheEntry {
    entry: TenantEntry,
    /// With the fingerprint of that policy.
    compiled: Option<(u64, Arc<Tenant>)>,
}

impl TenantCacheEntry {
    /// An entry that is not yet compiled.
    #[must_use]
    pub const fn new(entry: TenantEntry) -> Self {
        Self { entry, compiled: None }
    }

    /// The entry of the tenant `id` under `policy`.
    pub fn under(&mut self, policy: &Policy, id: &[u8]) -> Arc<Tenant> {
        if let Some((_, tenant)) =
            self.compiled.as_ref().filter(|(of, _)| *of == policy.fingerprint())
        {
            return Arc::clone(tenant);
        }
        let tenant = Arc::new(Tenant::new(policy, id, &self.entry));
        self.compiled = Some((policy.fingerprint(), Arc::clone(&tenant)));
        tenant
    }
}

/// The tenant of a planned request.
#[derive(Debug)]
pub struct TenantLookup<'p> {
    /// The policy.
    pub policy: &'p Policy,
    /// The tenant, as the policy identifies it.
    pub id: Vec<u8>,
    /// Its name in the store.
    pub name: String,
}

impl<'p> TenantLookup<'p> {
    /// The tenant of a request that was planned under `policy` without its entry; `None` where no
    /// entry can apply.
    #[must_use]
    pub fn of(policy: &'p Policy, plan: &Plan) -> Option<Self> {
        let id = plan.tenant()?.id().to_vec();
        let name = policy.tenants()?.name_of(&id)?;
        Some(Self { policy, id, name })
    }

    /// Plans the request again with the tenant's entry, where it has one that is in force now.
    /// `known` is `None` when it could not be found out: false is returned, which is to be counted.
    pub fn plan(
        &self,
        facts: &impl Facts,
        plan: &mut Plan,
        known: Option<Found<Arc<Tenant>>>,
        now: impl FnOnce() -> Timestamp,
    ) -> bool {
        let Some(entry) = known else {
            if plan.tenant().is_some_and(|tenant| tenant.fails_closed(self.policy)) {
                plan.each_partition(|partition| partition.fail(Failure::Unreachable));
            }
            return false;
        };
        if let Some(tenant) = entry.filter(|tenant| tenant.is_in_force(now())) {
            self.policy.plan_for(facts, &tenant, plan);
        }
        true
    }
}
