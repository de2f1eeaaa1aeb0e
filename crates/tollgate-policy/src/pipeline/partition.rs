//! One partition of a plan, for surfaces: a stored value, and the part of the request that is
//! counted in it.
//!
//! Invariant: a handle exists only for a partition of the plan, so an index out of range never
//! becomes a valid group or an empty key.

use alloc::vec::Vec;

use tollgate_core::{Decision, Timestamp};

use crate::pipeline::applied::AppliedRule;
use crate::pipeline::key_hashes::pk;
use crate::pipeline::partitions::{Failure, Status, Stored};
use crate::pipeline::plan::{Plan, decisions_of};
use crate::policy::carried;
use crate::policy::compiled::Policy;
use crate::policy::directory::Directory;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::policy::record;
use crate::policy::records::records;
use crate::policy::settings::Response;
use crate::stable_hash::stable_hash;
use tollgate_storage::{Counted, Due};

/// One partition of a [`Plan`], for reading.
#[derive(Clone, Copy, Debug)]
pub struct Partition<'p> {
    pub(crate) index: usize,
    pub(crate) stored: &'p Stored,
    keys: &'p [u8],
    applied: &'p [AppliedRule],
    decisions: &'p [Decision],
}

/// One partition of a [`Plan`], to be loaded, decided and charged.
#[derive(Debug)]
pub struct PartitionMut<'p> {
    pub(crate) index: usize,
    pub(crate) stored: &'p mut Stored,
    keys: &'p [u8],
    pub(crate) applied: &'p mut [AppliedRule],
    pub(crate) decisions: &'p mut Vec<Decision>,
}

impl Plan {
    /// How many partitions (stored values) the request is charged to.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Partition `i` of [`Plan::len`].
    #[must_use]
    pub fn partition(&self, i: usize) -> Option<Partition<'_>> {
        let stored = self.partitions.get(i)?;
        let (keys, applied, decisions) = (&self.partitions.keys, &self.applied, &self.decisions);
        Some(Partition { index: i, stored, keys, applied, decisions })
    }

    /// Every partition with something to decide, in order: all of them, until the plan is
    /// [settled](Plan::settle).
    pub fn partitions(&self) -> impl Iterator<Item = Partition<'_>> {
        (0..self.len()).filter_map(|i| self.partition(i)).filter(Partition::applies)
    }

    /// Partition `i` of [`Plan::len`], to be loaded, decided and charged.
    #[must_use]
    pub fn partition_mut(&mut self, i: usize) -> Option<PartitionMut<'_>> {
        let Self { applied, partitions, decisions, .. } = self;
        let (stored, keys) = partitions.get_mut(i)?;
        Some(PartitionMut { index: i, stored, keys, applied, decisions })
    }

    /// Calls `each` for every one of [`Plan::partitions`].
    pub fn each_partition(&mut self, mut each: impl FnMut(&mut PartitionMut<'_>)) {
        for i in 0..self.len() {
            if let Some(mut partition) = self.partition_mut(i).filter(|p| p.view().applies()) {
                each(&mut partition);
            }
        }
    }

    /// True when a partition could not be loaded, decided or committed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.partitions.live().iter().any(|stored| stored.status.has_failed())
    }
}

impl<'p> Partition<'p> {
    /// Its index in the plan.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The index into [`Policy::groups`] of its group.
    #[must_use]
    pub fn group(&self) -> usize {
        self.stored.group.into()
    }

    /// True when its count is the fleet's: an authority keeps it, or [does not](Plan::fall_back)
    /// answer.
    #[must_use]
    pub fn is_fleet(&self, policy: &Policy) -> bool {
        policy.groups.get(self.group()).is_some_and(Group::is_fleet)
    }

    /// The number of shards over which requests of its key are spread; `None` when the key's own
    /// object must be asked, as for everything except the charge of a new request.
    #[must_use]
    pub fn shards(&self, policy: &Policy) -> Option<u32> {
        let is_plain = !self.stored.endures && self.stored.under.is_none() && !self.gives_back();
        policy.groups.get(self.group()).and_then(Group::shards).filter(|_| is_plain)
    }

    /// Its canonical key. It contains data from the client: hash it, never store or log it.
    #[must_use]
    pub fn key(&self) -> &'p [u8] {
        self.stored.key_among(self.keys)
    }

    /// All rules of the plan.
    pub(crate) const fn of_plan(&self) -> &'p [AppliedRule] {
        self.applied
    }

    /// Its value, for the commit.
    #[must_use]
    pub fn value(&self) -> &'p [u8] {
        &self.stored.value
    }

    /// False when it has nothing to decide, which happens only after [`Plan::settle`].
    #[must_use]
    pub fn applies(&self) -> bool {
        self.rules().next().is_some()
    }

    /// True when it could not be loaded, decided or committed.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.stored.status.has_failed()
    }

    /// True when its store was asked and did not answer.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.stored.status == Status::Failed(Failure::Unreachable)
    }

    /// True when its value was charged, or the denial started a penalty in it, and must be
    /// committed.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.stored.status == Status::Charged || (self.stored.punished && !self.has_failed())
    }

    /// True when it changed only by a penalty that the denial started. Where the commit loses its
    /// race, load it and [punish again](PartitionMut::punish_again); the request stays denied
    /// whether or not it is committed.
    #[must_use]
    pub fn is_only_punished(&self) -> bool {
        self.changed() && self.stored.status != Status::Charged
    }

    /// True when its value contains usage under earlier quotas that was carried into those of the
    /// policy: store it even if nothing was charged. There is no need to retry when another writer
    /// was faster. Without this, every denial would carry the usage again, and the retry time
    /// reported to a client would never arrive.
    #[must_use]
    pub const fn is_carried(&self) -> bool {
        self.stored.carried && !self.has_failed()
    }

    /// The time of the decision, by the clock of the process that counts.
    #[must_use]
    pub const fn decided_at(&self) -> Timestamp {
        self.stored.at
    }

    /// True when the cost of this request is in its stored value.
    #[must_use]
    pub fn is_charged(&self) -> bool {
        !self.has_failed() && self.rules().any(|applied| applied.charged.is_some())
    }

    /// True when units were used that are recorded here whatever the decision is.
    #[must_use]
    pub fn reports(&self) -> bool {
        self.rules().any(AppliedRule::reports)
    }

    /// True when a settled plan has charges to refund here, or held units that are used. Commit it
    /// once: a second refund allows too many requests.
    #[must_use]
    pub fn gives_back(&self) -> bool {
        self.rules().any(|applied| applied.due.is_settled())
    }

    /// The time from which it may be dropped without loss.
    #[must_use]
    pub fn idle_at(&self, policy: &Policy) -> Timestamp {
        let group = policy.groups.get(self.group());
        debug_assert!(group.is_some(), "a plan goes with the policy that made it");
        let idle_at = group.map_or(Timestamp::ZERO, |group| group.idle_at(policy, self.value()));
        let tenant = self.stored.tenant.as_deref();
        let of_tenant = tenant.map(|tenant| tenant.idle_at(policy, self.group(), self.value()));
        idle_at.max(of_tenant.unwrap_or_default())
    }

    /// The hash of its key that is reported to clients as `pk`.
    pub(crate) fn pk(&self, response: &Response) -> u64 {
        self.stored.trimmed.map_or_else(|| pk(self.key(), response), |hashes| hashes.pk)
    }

    /// The hash of its key that selects its jitter.
    pub(crate) fn jitter_hash(&self) -> u64 {
        self.stored.trimmed.map_or_else(|| stable_hash(&[self.key()]), |hashes| hashes.jitter)
    }

    /// The rules that count in it.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &'p AppliedRule> + use<'p> {
        let index = self.index;
        self.applied.iter().filter(move |applied| applied.counts_in(index))
    }

    /// The decision of each quota of one of these rules.
    pub(crate) fn decisions_of(
        &self,
        policy: &Policy,
        applied: &AppliedRule,
    ) -> impl Iterator<Item = &'p Decision> + use<'p> {
        decisions_of(applied, policy, self.decisions)
    }
}

impl PartitionMut<'_> {
    /// The same, for reading.
    #[must_use]
    pub fn view(&self) -> Partition<'_> {
        let Self { index, stored, keys, applied, decisions } = self;
        Partition { index: *index, stored, keys, applied, decisions }
    }

    /// The index into [`Policy::groups`] of its group.
    #[must_use]
    pub fn group(&self) -> usize {
        self.view().group()
    }

    /// Its canonical key. It contains data from the client: hash it, never store or log it.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.stored.key_among(self.keys)
    }

    /// Loads its stored value; `None` or zeros mean a key never seen. A value that an earlier
    /// policy wrote is converted to the current layout, record by record. Its usage under other
    /// quotas is dropped, unless it is [loaded with a directory](PartitionMut::load_with).
    pub fn load(&mut self, policy: &Policy, stored: Option<&[u8]>) {
        let group = policy.groups.get(usize::from(self.stored.group));
        debug_assert!(group.is_some(), "a plan goes with the policy that made it");
        let Some(group) = group else { return };
        let stored = stored.unwrap_or_default();
        let Stored { tenant, value, status, .. } = self.stored;
        let tenant = tenant.as_deref();
        *status = Status::Loaded;
        let current = if stored.is_empty() && tenant.is_none() {
            Some(&*group.blank)
        } else {
            let is_own = |(id, _): (u32, &[u8])| group.by_id(id).is_some();
            let has_none = || tenant.is_none() && !records(stored).any(is_own);
            let current = record::current(policy, group, tenant, stored);
            current.or_else(|| has_none().then_some(&*group.blank))
        };
        if let Some(current) = current {
            value.clear();
            value.extend_from_slice(current);
            return;
        }
        let own: Vec<&QuotaSet> = record::sets(policy, group, tenant).collect();
        carried::load(group, &own, &Directory::NONE, stored, Timestamp::ZERO, value);
    }

    /// Records that it could not be loaded or committed: its rules' `on_failure` decides.
    pub fn fail(&mut self, failure: Failure) {
        self.stored.status = Status::Failed(failure);
        // Nothing was stored, so nothing may be refunded; a charge that was not confirmed is there.
        self.rules_mut()
            .filter(|applied| applied.due != Due::Renewed)
            .for_each(|applied| applied.charged = None);
    }

    pub(crate) fn rules_mut(&mut self) -> impl Iterator<Item = &mut AppliedRule> {
        let index = self.index;
        self.applied.iter_mut().filter(move |applied| applied.counts_in(index))
    }
}

/// The rule's quotas, their states in `value`, and their decisions.
pub(crate) fn counted_in<'a>(
    policy: &'a Policy,
    applied: &'a AppliedRule,
    value: &'a mut Vec<u8>,
    decisions: &'a mut [Decision],
) -> Option<Counted<'a, CompiledQuota>> {
    let set = policy.applied_set(applied)?;
    let states = record::states_mut(set, applied.located, value)?;
    let decisions = decisions.get_mut(applied.first_decision..)?;
    Some(Counted { quotas: &set.quotas, states, decisions })
}
