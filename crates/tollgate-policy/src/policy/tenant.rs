//! One tenant's entry as compiled for one policy: which quotas it has in which rule.
//!
//! Invariant: an entry is never of another tenant than the one it was compiled for, nor of another
//! policy. What the policy does not know of it has no effect.

use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::document::key::KeyPart;
use crate::policy::group::QuotaSet;

/// Who a tenant is.
#[derive(Clone, Debug)]
pub(crate) struct TenantKey {
    pub(crate) part: KeyPart,
}

/// A tenant's entry, compiled: what [`Policy::plan_for`](crate::Policy::plan_for) plans with.
#[derive(Debug)]
pub struct Tenant {
    /// The tenant, as [`Plan::tenant`](crate::Plan::tenant) says it.
    pub(crate) id: Vec<u8>,
    /// The fingerprint of the policy that it was compiled for.
    pub(crate) policy: u64,
    pub(crate) priority: u32,
    pub(crate) expires_at: Option<Timestamp>,
    /// By the index of the rule, in its order.
    pub(crate) rules: Vec<(u16, TenantSet)>,
    /// The tenant's own quotas. Their records come after those of the policy in a stored value.
    pub(crate) sets: Vec<QuotaSet>,
}

/// Which quotas the tenant has in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TenantSet {
    /// Those of the policy with this index: a tier's.
    Tier(u16),
    /// Its own with this index.
    Own(u16),
}

impl Tenant {
    /// The tenant, as [`Plan::tenant`](crate::Plan::tenant) says it.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// False from the time on at which it expires: then plan without it.
    #[must_use]
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| now < at)
    }

    /// The quotas that it has in `rule`.
    pub(crate) fn in_rule(&self, rule: u16) -> Option<TenantSet> {
        let at = self.rules.binary_search_by_key(&rule, |(rule, _)| *rule).ok()?;
        self.rules.get(at).map(|(_, set)| *set)
    }
}
