//! Penalties that the denial of a plan starts.
//!
//! Invariant: a penalty is started for a quota that denies by a binding rule, in a decision that
//! would have charged; a request that was denied with several partitions stays denied when one of
//! them lost its race, because none of the others is charged.

use tollgate_core::{Timestamp, Verdict};

use crate::pipeline::applied::AppliedRule;
use crate::pipeline::partition::{PartitionMut, counted_in};
use crate::pipeline::partitions::Status;
use crate::pipeline::plan::decisions_of;
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;

impl PartitionMut<'_> {
    /// Starts the penalties of a denied request in a value that lost its race and was loaded again;
    /// the request stays denied. Then commit it if it [changed](crate::Partition::changed).
    pub fn punish_again(&mut self, policy: &Policy, now: Timestamp) {
        self.locate(policy, now);
        self.stored.at = now;
        self.stored.status = Status::Uncharged;
        self.stored.punished = false;
        let Self { index, stored, applied, decisions, .. } = self;
        let reports = applied.iter().filter(|it| it.counts_in(*index) && it.reports());
        for applied in reports {
            if let Some(mut counted) = counted_in(policy, applied, &mut stored.value, decisions) {
                counted.report(now, applied.cost);
                stored.status = Status::Charged;
            }
        }
        let is_own = |it: &&AppliedRule| it.counts_in(*index) && may_punish(it, policy);
        let runs = applied.iter().filter(is_own).any(|it| {
            counted_in(policy, it, &mut stored.value, decisions)
                .is_some_and(|mut counted| counted.is_penalised(now))
        });
        self.start_penalties(policy, now, !runs);
    }

    /// Starts the penalties of the quotas that deny the request by binding rules.
    pub(crate) fn punish(&mut self, policy: &Policy, now: Timestamp) {
        let Self { index, stored, applied, decisions, .. } = self;
        let decisions: &[_] = decisions;
        let mut own = applied.iter().filter(|it| it.counts_in(*index) && may_punish(it, policy));
        let runs = |it: &AppliedRule| {
            decisions_of(it, policy, decisions).any(|it| it.verdict == Verdict::Penalty)
        };
        // A request that a penalty of the key denies already is no offence.
        if stored.status.is_loaded() && !own.any(runs) {
            self.start_penalties(policy, now, true);
        }
    }

    fn start_penalties(&mut self, policy: &Policy, now: Timestamp, may_start: bool) {
        let Self { index, stored, applied, decisions, .. } = self;
        for applied in applied.iter().filter(|it| it.counts_in(*index) && may_punish(it, policy)) {
            if let Some(mut counted) = counted_in(policy, applied, &mut stored.value, decisions) {
                stored.punished |= counted.punish(now, applied.decided_cost(), may_start);
            }
        }
    }

    /// True when a rule of the request counts in another partition.
    pub(crate) fn has_others(&self) -> bool {
        self.applied.iter().any(|it| it.partition().is_some_and(|other| other != self.index))
    }
}

/// True when the rule's denial may start a penalty.
pub(crate) fn may_punish(applied: &AppliedRule, policy: &Policy) -> bool {
    applied.punishes() && policy.applied_set(applied).is_some_and(QuotaSet::has_penalty)
}
