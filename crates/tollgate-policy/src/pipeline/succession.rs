//! Loads values that earlier or later policies wrote.
//!
//! Invariant: whatever quotas decide for a rule, the plan has one decision for each of them. A
//! charge under other quotas is refunded to none.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tollgate_core::{Decision, Timestamp, Verdict};

use crate::pipeline::applied::{AppliedRule, AppliedSet, OfRecord};
use crate::pipeline::partition::PartitionMut;
use crate::pipeline::partitions::Status;
use crate::pipeline::plan::NOT_YET;
use crate::policy::carried::{self, Carried, Moved};
use crate::policy::compiled::Policy;
use crate::policy::directory::Directory;
use crate::policy::group::QuotaSet;
use crate::policy::record;

impl PartitionMut<'_> {
    /// Loads its stored value if every record of it belongs to this policy and has its place in
    /// this policy's layout; `None` or zeros mean a key never seen. False, with nothing loaded, for
    /// any other value: then read the directory and [load it with that](PartitionMut::load_with).
    pub fn load_own(&mut self, policy: &Policy, stored: Option<&[u8]>) -> bool {
        let group = policy.groups.get(usize::from(self.stored.group));
        debug_assert!(group.is_some(), "a plan goes with the policy that made it");
        let tenant = self.stored.tenant.as_deref();
        if let (Some(group), Some(stored)) = (group, stored) {
            let Some(value) = record::current(policy, group, tenant, stored) else { return false };
            self.stored.value.clear();
            self.stored.value.extend_from_slice(value);
            self.stored.status = Status::Loaded;
        } else {
            self.load(policy, None);
        }
        self.stored.carried = false;
        self.count_in(policy, &[], &[]);
        true
    }

    /// Loads its stored value, and continues the client's usage under other quotas of the same
    /// names. `known` is the directory stored next to the values of this partition's group, read
    /// after the value, with this policy [registered](Directory::register) in it.
    ///
    /// A record of an earlier policy is carried into the policy's own quotas, once: store it even
    /// if nothing is charged ([`Partition::is_carried`](crate::Partition::is_carried)). A record of
    /// a later policy is decided, charged and reported to clients by its own quotas: this policy is
    /// being replaced. A record of a rule that this policy does not have is kept with the others
    /// until it is idle. A record that the directory does not know is left out: usage under it
    /// starts at zero.
    pub fn load_with(&mut self, policy: &Policy, known: &Directory, stored: &[u8], now: Timestamp) {
        let group = policy.groups.get(usize::from(self.stored.group));
        debug_assert!(group.is_some(), "a plan goes with the policy that made it");
        let Some(group) = group else { return };
        let tenant = self.stored.tenant.clone();
        let own: Vec<&QuotaSet> = record::sets(policy, group, tenant.as_deref()).collect();
        let Carried { moved, is_carried } =
            carried::load(group, &own, known, stored, now, &mut self.stored.value);
        self.stored.status = Status::Loaded;
        self.stored.carried = is_carried;
        self.count_in(policy, &own, &moved);
    }

    /// Makes the rules of this partition count in the records of its value: those of `own` at their
    /// `moved` positions, the others at their positions in the policy's layout.
    fn count_in(&mut self, policy: &Policy, own: &[&QuotaSet], moved: &[Moved<'_>]) {
        let Self { index, stored, applied, decisions, .. } = self;
        let group = policy.groups.get(usize::from(stored.group));
        let is_other = |applied: &AppliedRule| {
            let is_own = !matches!(applied.set, AppliedSet::Recorded(_));
            applied.counts_in(*index) && !(is_own && moved.is_empty())
        };
        if !applied.iter().any(is_other) {
            return;
        }
        let mut all = Vec::with_capacity(decisions.len());
        for rule in applied.iter_mut() {
            let before = decisions.get(rule.first_decision..).unwrap_or_default();
            let before = before.iter().take(policy.quotas(rule).len());
            rule.first_decision = all.len();
            if !is_other(rule) {
                all.extend(before);
                continue;
            }
            let place = group.and_then(|it| carried::place_of(it, own, policy.line_of(rule)?));
            let place = place.and_then(|place| Some((own.get(place)?, moved.get(place)?)));
            let next = set_in_place(rule, place);
            let earlier = policy.quotas(rule);
            for quota in policy.set_of(&next).map_or(&[][..], |set| &set.quotas) {
                let mut same = earlier.iter().zip(before.clone()).filter(|(earlier, _)| {
                    earlier.name_hash == quota.name_hash && earlier.limiter == quota.limiter
                });
                // A denial has nothing to refund.
                let uncharged = if rule.charged.is_some() { Verdict::Deny } else { Verdict::Allow };
                let none = Decision { verdict: uncharged, ..NOT_YET };
                all.push(same.next().map_or(none, |(_, decision)| *decision));
            }
            rule.set = next;
        }
        **decisions = all;
    }
}

/// The set in which `rule` counts when its own set and its record have this `place`; its own set
/// when there is none.
fn set_in_place(rule: &AppliedRule, place: Option<(&&QuotaSet, &Moved<'_>)>) -> AppliedSet {
    let own = match &rule.set {
        AppliedSet::Recorded(of) => of.own.clone(),
        own => own.clone(),
    };
    let set = place.map(|(set, Moved { offset, newer })| match newer {
        Some(newer) => newer.in_place_of(set, *offset),
        None => QuotaSet { offset: *offset, ..(*set).clone() },
    });
    match set {
        Some(mut set) => {
            if let AppliedSet::Limited(of) = &own {
                of.limit(&mut set);
            }
            AppliedSet::Recorded(Arc::new(OfRecord { own, set }))
        }
        None => own,
    }
}
