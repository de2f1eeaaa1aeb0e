//! Loading values that policies before or after this one wrote.
//!
//! Invariant: whatever quotas a rule is decided by, the plan has one decision for each of them, and
//! what was charged under other quotas is given back to none.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tollgate_core::{Decision, Timestamp, Verdict};

use crate::pipeline::partition::PartitionMut;
use crate::pipeline::partitions::Status;
use crate::pipeline::plan::{AppliedRule, AppliedSet, NOT_YET, OfRecord};
use crate::policy::carried::{self, Carried, Moved};
use crate::policy::compiled::Policy;
use crate::policy::directory::Directory;
use crate::policy::group::QuotaSet;
use crate::policy::record;

impl PartitionMut<'_> {
    /// Takes its stored value if every record of it is the policy's own, and lies where this policy
    /// has it; `None` or zeros were never seen. False, with nothing loaded, for any other value:
    /// read the directory then and [load it with that](PartitionMut::load_with).
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

    /// Takes its stored value, and lets go on what the client used under other quotas of the same
    /// names. `known` is the directory beside the values of this partition's group, read after the
    /// value was, with this policy [registered](Directory::register) in it.
    ///
    /// A record of an earlier policy is carried into the policy's own quotas, once: store it even
    /// if nothing is charged ([`Partition::is_carried`](crate::Partition::is_carried)). A record of
    /// a later policy is decided, charged and told to clients by its own quotas: this policy is
    /// being replaced. One of a rule that this policy does not have stays beside the others until
    /// it is idle. One that the directory does not know is left out: what was used under it begins
    /// anew.
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

    /// Lets the rules of this partition count in the records of its value: where those of `own` lie
    /// that were `moved`, else where the policy has them.
    fn count_in(&mut self, policy: &Policy, own: &[&QuotaSet], moved: &[Moved<'_>]) {
        let Self { index, stored, applied, decisions, .. } = self;
        let group = policy.groups.get(usize::from(stored.group));
        let is_other = |applied: &AppliedRule| {
            let is_own = matches!(applied.set, AppliedSet::OfPolicy(_) | AppliedSet::OfTenant(..));
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
                // A denial has nothing to give back.
                let uncharged = if rule.charged.is_some() { Verdict::Deny } else { Verdict::Allow };
                let none = Decision { verdict: uncharged, ..NOT_YET };
                all.push(same.next().map_or(none, |(_, decision)| *decision));
            }
            rule.set = next;
        }
        **decisions = all;
    }
}

/// What `rule` counts in where its own set and its record are in this `place`; its own set where
/// they are in none.
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
        Some(set) => AppliedSet::Recorded(Arc::new(OfRecord { own, set })),
        None => own,
    }
}
