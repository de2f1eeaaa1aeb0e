//! One tenant's entry, compiled for one policy: the quotas that the tenant has in each rule.
//!
//! Invariant: an entry is used only for the tenant and the policy that it was compiled for. Parts
//! of it that the policy does not know have no effect.

use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::policy::group::QuotaSet;
use crate::spec::key_item::KeyPart;

/// The key part that identifies a tenant.
#[derive(Clone, Debug)]
pub(crate) struct TenantKey {
    pub(crate) part: KeyPart,
}

/// A tenant's compiled entry, for [`Policy::plan_for`](crate::Policy::plan_for).
#[derive(Debug)]
pub struct Tenant {
    /// The tenant, as in [`RequestTenant::id`](crate::RequestTenant::id).
    pub(crate) id: Vec<u8>,
    /// The fingerprint of the policy that it was compiled for.
    pub(crate) policy: u64,
    pub(crate) priority: u32,
    pub(crate) expires_at: Option<Timestamp>,
    /// Index of the rule and the tenant's quotas, sorted by index.
    pub(crate) rules: Vec<(u16, TenantSet)>,
    /// The tenant's own quotas. Their records come after those of the policy in a stored value.
    pub(crate) sets: Vec<QuotaSet>,
}

/// The source of the tenant's quotas in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TenantSet {
    /// A tier's quotas: the set of the policy with this index.
    Tier(u16),
    /// The tenant's own quotas: its set with this index.
    Own(u16),
}

impl Tenant {
    /// The tenant, as in [`RequestTenant::id`](crate::RequestTenant::id).
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// False from the time at which the entry expires: from then on, plan without it.
    #[must_use]
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| now < at)
    }

    /// The tenant's own quotas in the rule with this index in
    /// [`Policy::rules`](crate::Policy::rules), if its entry has any for it.
    #[must_use]
    pub fn own_quotas(&self, rule: usize) -> Option<&QuotaSet> {
        match self.in_rule(u16::try_from(rule).ok()?)? {
            TenantSet::Own(set) => self.sets.get(usize::from(set)),
            TenantSet::Tier(_) => None,
        }
    }

    /// The quotas of the tenant in `rule`.
    pub(crate) fn in_rule(&self, rule: u16) -> Option<TenantSet> {
        let at = self.rules.binary_search_by_key(&rule, |(rule, _)| *rule).ok()?;
        self.rules.get(at).map(|(_, set)| *set)
    }
}
