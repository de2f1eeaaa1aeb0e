//! The tenant entries that a node knows: which requests have other quotas.
//!
//! Invariant: a request is planned as on a surface with a store of entries: first by the policy,
//! then again with the entry of its tenant, where that is in force at the time of the decision. The
//! policy crate interprets the entries. Deliberately absent: a store that is slow or does not
//! respond; entries are known at once.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use tollgate_core::Timestamp;
use tollgate_policy::{Facts, Plan, Policy, QuotaSet, Tenant, TenantEntry};

/// Entries under one policy.
#[derive(Debug, Default)]
pub struct Tenants {
    by_id: BTreeMap<Vec<u8>, Arc<Tenant>>,
}

impl Tenants {
    /// `entries` with the names of their tenants, under `policy`. Entries that match no request are
    /// left out ([`tollgate_policy::Tenants::id`]); of two with one name the last one is used.
    #[must_use]
    pub fn under(policy: &Policy, entries: &[(String, TenantEntry)]) -> Self {
        let of = |(name, entry): &(String, TenantEntry)| {
            let id = policy.tenants()?.id(name)?;
            let tenant = Arc::new(Tenant::new(policy, &id, entry));
            Some((id, tenant))
        };
        Self { by_id: entries.iter().filter_map(of).collect() }
    }

    /// The number of tenants with an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True when no tenant has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The entry of the tenant in `plan`, if it is in force at `now`.
    #[must_use]
    pub fn of(&self, plan: &Plan, now: Timestamp) -> Option<&Arc<Tenant>> {
        self.by_id.get(plan.tenant()?.id()).filter(|tenant| tenant.is_in_force(now))
    }

    /// Plans a request that comes at `now`, with the entry of its tenant.
    pub fn plan(&self, policy: &Policy, facts: &impl Facts, now: Timestamp, plan: &mut Plan) {
        policy.plan(facts, plan);
        if let Some(tenant) = self.of(plan, now) {
            policy.plan_for(facts, tenant, plan);
        }
    }
}

/// Numbers for the quotas that decide requests: first the policy's in their order, then tenants'
/// own in the order of first use. Tenants with the same quotas in a rule share a number, so there
/// are as many numbers as plans for sale, not as many as customers.
#[derive(Debug)]
pub struct SetNumbers {
    of_policy: usize,
    own: Vec<QuotaSet>,
    by_quotas: HashTable<usize>,
}

impl SetNumbers {
    /// Those of `policy`.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let of_policy = policy.quota_sets().len();
        Self { of_policy, own: Vec::new(), by_quotas: HashTable::new() }
    }

    /// The number of `set`, whose index is `index` in the policy or beyond it.
    pub fn number(&mut self, index: usize, set: &QuotaSet) -> usize {
        if index < self.of_policy {
            return index;
        }
        let Self { of_policy, own, by_quotas } = self;
        let is_it = |i: &usize| own.get(*i).is_some_and(|other| are_alike(other, set));
        if let Some(i) = by_quotas.find(hash(set), is_it) {
            return of_policy.saturating_add(*i);
        }
        let next = own.len();
        own.push(set.clone());
        by_quotas.insert_unique(hash(set), next, |i| own.get(*i).map_or(0, hash));
        of_policy.saturating_add(next)
    }

    /// The quotas with this number.
    #[must_use]
    pub fn set<'s>(&'s self, policy: &'s Policy, number: usize) -> Option<&'s QuotaSet> {
        match number.checked_sub(self.of_policy) {
            None => policy.quota_sets().get(number),
            Some(own) => self.own.get(own),
        }
    }

    /// The tenants' own quotas, in the order of their numbers.
    #[must_use]
    pub fn own(&self) -> &[QuotaSet] {
        &self.own
    }
}

/// True when both have the same quotas under the same names in the same rule.
fn are_alike(one: &QuotaSet, other: &QuotaSet) -> bool {
    let quotas = || one.quotas().iter().zip(other.quotas());
    one.rule() == other.rule()
        && one.quotas().len() == other.quotas().len()
        && quotas().all(|(a, b)| a.name() == b.name() && a.limiter() == b.limiter())
}

fn hash(set: &QuotaSet) -> u64 {
    let mut hasher = SipHasher13::new();
    set.rule().hash(&mut hasher);
    for quota in set.quotas() {
        quota.name().hash(&mut hasher);
        quota.limiter().limit().hash(&mut hasher);
        quota.window().as_nanos().hash(&mut hasher);
    }
    hasher.finish()
}
