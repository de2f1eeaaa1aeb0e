//! Penalties that the denial of a plan starts.
//!
//! Invariant: a penalty is started for a quota that denies by a binding rule, in a decision that
//! would have charged; a request that was denied with several partitions stays denied when one of
//! them lost its race, because none of the others is charged.

use tollgate_core::Timestamp;

use crate::pipeline::applied::AppliedRule;
use crate::pipeline::partition::{PartitionMut, counted_in};
use crate::pipeline::partitions::Status;
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
        self.punish(policy, now);
    }

    /// Starts the penalties of the quotas that deny the request by binding rules.
    pub(crate) fn punish(&mut self, policy: &Policy, now: Timestamp) {
        let Self { index, stored, applied, decisions, .. } = self;
        let of_it = |applied: &&AppliedRule| applied.counts_in(*index) && applied.punishes();
        for applied in applied.iter().filter(of_it) {
            if policy.applied_set(applied).is_some_and(QuotaSet::has_penalty)
                && let Some(mut counted) = counted_in(policy, applied, &mut stored.value, decisions)
            {
                stored.punished |= counted.punish(now, applied.decided_cost());
            }
        }
    }

    /// True when a rule of the request counts elsewhere, or nowhere.
    pub(crate) fn has_others(&self) -> bool {
        self.applied.iter().any(|applied| !applied.counts_in(self.index))
    }
}
