//! Writes of values that nothing was charged to: usage that was carried into other quotas, and
//! penalties that a denial started.
//!
//! Invariant: like every write they replace exactly the bytes that were decided on, and there is
//! nothing in them to give back.

use crate::counts::commit_stats::CommitStats;
use crate::counts::enforce::{Enforcement, MAX_TRIES};
use crate::host::shared_data::{SharedData, Written};

impl<S: SharedData> Enforcement<'_, S> {
    /// Writes the values that were carried into the policy's quotas, although nothing is charged. A
    /// worker that lost the race need not try again.
    pub(crate) fn keep_carried(&mut self, index: usize, stats: &mut CommitStats) {
        if self.is(index, |partition| partition.is_carried()) {
            let _ = self.write(index, stats);
            self.set_committed(index, false); // there is nothing to give back
        }
    }

    /// Writes the penalties that a denial started without being decided again.
    pub(crate) fn keep_penalties(&mut self, index: usize, stats: &mut CommitStats) {
        for _ in 0..MAX_TRIES {
            if !self.is_changed(index) || self.write(index, stats) != Written::Lost {
                break;
            }
            stats.retries = stats.retries.saturating_add(1);
            let now = self.now_of(index);
            if self.load(index).is_err() {
                break;
            }
            let Some(mut partition) = self.plan.partition_mut(index) else { break };
            partition.punish_again(&self.config.policy, now);
        }
        self.set_committed(index, false); // there is nothing to give back
    }
}
