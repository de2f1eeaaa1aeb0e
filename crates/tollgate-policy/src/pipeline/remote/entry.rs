//! A tenant's entry that lies beside the count of the key that is the tenant alone: the request
//! says which one it was planned with, and is decided only under that.
//!
//! Invariant: what was planned with another entry charges nothing where the entry lies, so whoever
//! plans may guess: with what it knew last, or with none. Deliberately absent: what an entry means,
//! who keeps it, and how it got there.

use alloc::vec::Vec;

use crate::pipeline::partition::Partition;
use crate::pipeline::partitions::{Failure, Status};
use crate::pipeline::plan::Plan;
use crate::pipeline::remote::asked::entry_of;
use crate::pipeline::remote::counts::{Answered, Counts};
use crate::pipeline::remote::wire::OTHER_ENTRY;
use crate::policy::compiled::Policy;
use crate::policy::group::Group;
use crate::request::key::write_text;
use crate::sort::sort_by;
use crate::stable_hash::stable_hash;

/// The most groups of rules whose key is the tenant alone: only segments of a path have several.
const MAX_KEYS: usize = 8;

impl Policy {
    /// The keys under which the tenant `id` ([`Policy::tenant_id`]) is counted where a rule's key
    /// is the tenant alone; its entry may lie beside these counts. None where no rule has such a
    /// key, or more than eight groups of rules do. Hash them, never store or log them.
    #[must_use]
    pub fn keys_of_tenant(&self, id: &[u8]) -> Vec<Vec<u8>> {
        let key = |group: &Group| {
            let mut key = group.identity().to_le_bytes().to_vec();
            write_text(id, &mut key);
            key
        };
        self.tenant_groups().iter().map(|group| key(group)).collect()
    }

    /// What says under which keys tenants are counted alone: two policies that agree in it put the
    /// entry of a tenant beside the same counts. 0 where there are no such keys.
    #[must_use]
    pub fn tenancy(&self) -> u64 {
        let groups = self.tenant_groups();
        let identities: Vec<_> =
            groups.iter().map(|group| group.identity().to_le_bytes()).collect();
        if identities.is_empty() { 0 } else { stable_hash(&[identities.as_flattened()]).max(1) }
    }

    /// The groups whose key is the tenant alone, in an order that does not depend on the policy.
    fn tenant_groups(&self) -> Vec<&Group> {
        let Some(tenant) = &self.tenant else { return Vec::new() };
        let is_alone = |group: &&Group| matches!(&*group.key, [part] if *part == tenant.part);
        let mut groups: Vec<_> = self.groups.iter().filter(is_alone).collect();
        if groups.len() > 1 {
            sort_by(&mut groups, |one, other| one.identity().cmp(&other.identity()));
        }
        if groups.len() > MAX_KEYS { Vec::new() } else { groups }
    }
}

impl Plan {
    /// Lets the count of the request's tenant alone, if it is asked, decide only while the tenant
    /// has the entry of `revision`, or none where that is 0. False where no count of the request is
    /// the tenant's alone, and where it may have to wait: then ask for the entry first.
    pub fn ask_under(&mut self, policy: &Policy, revision: u64) -> bool {
        if self.tenant.is_empty() || self.may_wait(policy) {
            return false;
        }
        let keys = policy.keys_of_tenant(&self.tenant);
        let is_its = |partition: &Partition<'_>| keys.iter().any(|key| key == partition.key());
        let Some(index) = self.partitions().find(is_its).map(|partition| partition.index()) else {
            return false;
        };
        if let Some((stored, _)) = self.partitions.get_mut(index) {
            stored.under = Some(revision);
        }
        true
    }

    /// True when the tenant is known to have the entry that the request was
    /// [asked under](Plan::ask_under): its count has decided.
    #[must_use]
    pub fn is_under_its_entry(&self) -> bool {
        let mut under = self.partitions.live().iter().filter(|stored| stored.under.is_some());
        under.any(|stored| stored.status.is_decided())
    }

    /// The entry that the tenant has instead of the one that the request was planned with, as the
    /// store gave it to [`Counts::other_entry`]: plan the request anew with it, after everything
    /// that other counts charged was refunded.
    #[must_use]
    pub fn other_entry(&self) -> Option<&[u8]> {
        let is_other = |status| status == Status::Failed(Failure::OtherEntry);
        let mut stored = self.partitions.live().iter();
        stored.find(|stored| is_other(stored.status)).map(|stored| &*stored.value)
    }

    /// True when nothing of it is decided, because it is to be planned anew:
    /// [`Plan::newer`] or [`Plan::other_entry`].
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.newer().is_some() || self.other_entry().is_some()
    }
}

impl Counts {
    /// The revision of the tenant's entry that `request` was planned with, or 0 for none; `None`
    /// where it says nothing of one, or is no request.
    #[must_use]
    pub fn entry_of(request: &[u8]) -> Option<u64> {
        entry_of(request)
    }

    /// The answer to a request that was planned with another entry than `entry`, in bytes of the
    /// store's own; nothing is charged.
    #[must_use]
    pub fn other_entry(entry: &[u8]) -> Answered {
        let mut reply = Vec::with_capacity(entry.len().saturating_add(1));
        reply.push(OTHER_ENTRY);
        reply.extend_from_slice(entry);
        Answered { reply, is_changed: false }
    }
}
