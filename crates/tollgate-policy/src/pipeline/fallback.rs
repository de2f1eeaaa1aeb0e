//! The local count of a node that reaches no authority, for rules that configure one.
//!
//! Invariant: local counts are stored in their own group, and are never used as counts of the
//! fleet. Deliberately absent: the time-out after which an authority counts as unreachable, and its
//! detection.

use crate::pipeline::applied::{AppliedSet, CountedIn};
use crate::pipeline::partitions::Failure;
use crate::pipeline::plan::Plan;
use crate::policy::compiled::Policy;

impl Plan {
    /// Records that the authority of partition `i` does not answer, and includes the partition
    /// again if it was [set aside](crate::PartitionMut::set_aside). Its rules with a local fallback
    /// (`"on_failure": "local"` or `{"share": 12}`) count in a partition of this node from now on.
    /// The index of that partition is returned: load and decide it like any other. The other rules
    /// have [failed](crate::PartitionMut::fail).
    pub fn fall_back(&mut self, policy: &Policy, i: usize) -> Option<usize> {
        self.partition_mut(i)?.take_up();
        let stored = self.partitions.get(i)?;
        let key = stored.key.clone();
        let group = policy.groups.get(usize::from(stored.group)).and_then(|it| it.fallback);
        let fallback_of = |set: &AppliedSet| match set {
            AppliedSet::OfPolicy(set) => policy.sets.get(usize::from(*set))?.fallback,
            AppliedSet::OfTenant(..) | AppliedSet::Limited(_) | AppliedSet::Recorded(_) => None,
        };
        let goes_on = |set: &AppliedSet| fallback_of(set).is_some();
        let mut counted = self.applied.iter().filter(|applied| applied.counts_in(i));
        let place = match group {
            Some(group) if counted.any(|it| goes_on(&it.set)) => self.partitions.add(group, key),
            _ => {
                self.partition_mut(i)?.fail(Failure::Unreachable);
                return None;
            }
        };
        for applied in self.applied.iter_mut().filter(|applied| applied.counts_in(i)) {
            if let Some(set) = fallback_of(&applied.set) {
                applied.set = AppliedSet::OfPolicy(set);
                applied.counted_in = CountedIn::Partition(place);
                applied.charged = None;
            }
        }
        let mut partition = self.partition_mut(i)?;
        if partition.view().applies() {
            partition.fail(Failure::Unreachable);
        }
        Some(place)
    }
}
