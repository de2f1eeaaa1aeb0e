//! An operator's actions on one key, as requests to the process that counts it.

use alloc::vec::Vec;

use tollgate_storage::{KeyOperation, KeyState, QuotaUse, StoredSet};

use crate::pipeline::key_hashes::pk;
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::request::given_key::GivenKey;
use crate::stable_hash::stable_hash;

impl GivenKey {
    /// Appends to `out` the request to the process that counts this key:
    /// [`Counts::operate`](tollgate_storage::Counts::operate).
    pub fn request(&self, policy: &Policy, operation: KeyOperation, out: &mut Vec<u8>) {
        let group = policy.groups.get(self.group).map_or(0, Group::identity);
        let rule = policy.stable_id_of(u16::try_from(self.rule).unwrap_or(u16::MAX));
        let counted_by = policy.rules.get(self.rule);
        let sets = counted_by.into_iter().flat_map(|rule| rule.quota_sets(policy));
        let sets = sets.map(QuotaSet::stable_id);
        let tenants = tenants_id(counted_by.map_or("", |rule| rule.name()));
        operation.request(group, rule, sets.chain([tenants]), out);
    }

    /// The hash of the key that is reported to clients as `pk`; [`pk_text`](crate::pk_text) formats
    /// it.
    #[must_use]
    pub fn pk(&self, policy: &Policy) -> u64 {
        pk(self.bytes(), &policy.response)
    }

    /// The quotas that the key has used under its rule and that are in no set of `policy`, if any:
    /// a tenant's own.
    #[must_use]
    pub fn tenants_quotas(&self, policy: &Policy, state: &KeyState) -> Vec<QuotaUse> {
        state.stored(tenants_id(policy.rules.get(self.rule).map_or("", |rule| rule.name())))
    }

    /// The same quotas as they are stored.
    #[must_use]
    pub fn tenants_set<'s>(&self, policy: &Policy, state: &'s KeyState) -> Option<&'s StoredSet> {
        state.stored_set(tenants_id(policy.rules.get(self.rule).map_or("", |rule| rule.name())))
    }
}

/// The identity of a tenant's own quotas in a rule.
pub(crate) fn tenants_id(rule: &str) -> u64 {
    // Three names: neither a rule's own quotas nor a tier have this identity, whatever their names.
    stable_hash(&[rule.as_bytes(), b"", b"tenant"])
}
