//! A tenant's entry that is stored next to the count of the key with only the tenant: the request
//! contains the revision of the entry with which it was planned, and is decided only if that is the
//! current one.
//!
//! Invariant: a request planned with another entry charges nothing at the store of the entry, so
//! the planner may use the entry it knew last, or none. Deliberately absent: the meaning, the store
//! and the distribution of an entry.

use alloc::vec::Vec;

use crate::pipeline::partition::Partition;
use crate::pipeline::plan::Plan;
use crate::policy::group::Group;
use crate::policy::tenant_name::Tenants;
use crate::request::key::write_text;
use crate::stable_hash::stable_hash;
use tollgate_http_syntax::sort::sort_by;

/// The most groups of rules whose key is only the tenant: only tenants from path segments have
/// several.
const MAX_KEYS: usize = 8;

impl Tenants<'_> {
    /// The keys under which the tenant `id` ([`Tenants::id`]) is counted by rules whose key
    /// is only the tenant; its entry may be stored next to these counts. Empty when no rule has
    /// such a key, or when more than eight groups of rules do. Hash the keys, never store or log
    /// them.
    #[must_use]
    pub fn keys_of(&self, id: &[u8]) -> Vec<Vec<u8>> {
        let key = |group: &Group| {
            let mut key = group.identity().to_le_bytes().to_vec();
            write_text(id, &mut key);
            key
        };
        self.groups().iter().map(|group| key(group)).collect()
    }

    /// The identity of the keys that consist of only the tenant: two policies with the same value
    /// store the entry of a tenant next to the same counts. 0 when there are no such keys.
    #[must_use]
    pub fn identity(&self) -> u64 {
        let groups = self.groups();
        let identities: Vec<_> =
            groups.iter().map(|group| group.identity().to_le_bytes()).collect();
        if identities.is_empty() { 0 } else { stable_hash(&[identities.as_flattened()]).max(1) }
    }

    /// Makes the count with only the tenant of `plan` as its key, if it is asked, decide only while
    /// the tenant has the entry of `revision`, or none if that is 0. False when no count of the
    /// request has only the tenant as its key, and when the request may have to wait: then request
    /// the entry first. The plan is one of the policy that has these tenants.
    pub fn ask_under(&self, plan: &mut Plan, revision: u64) -> bool {
        if plan.tenant.is_empty() || plan.may_wait(self.policy) {
            return false;
        }
        let keys = self.keys_of(&plan.tenant);
        let is_its = |partition: &Partition<'_>| keys.iter().any(|key| key == partition.key());
        let Some(index) = plan.partitions().find(is_its).map(|partition| partition.index()) else {
            return false;
        };
        if let Some((stored, _)) = plan.partitions.get_mut(index) {
            stored.under = Some(revision);
        }
        true
    }

    /// The groups whose key is only the tenant, in an order that does not depend on the policy.
    fn groups(&self) -> Vec<&Group> {
        let is_alone =
            |group: &&Group| matches!(&*group.spec.key, [part] if *part == self.key.part);
        let mut groups: Vec<_> = self.policy.groups.iter().filter(is_alone).collect();
        if groups.len() > 1 {
            sort_by(&mut groups, |one, other| one.identity().cmp(&other.identity()));
        }
        if groups.len() > MAX_KEYS { Vec::new() } else { groups }
    }
}
