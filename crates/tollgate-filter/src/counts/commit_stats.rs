//! Events while a request is committed, in addition to the decision.
//!
//! Invariant: pure; counting saturates. Deliberately absent: how it is shown, which is `metrics`.

use tollgate_storage::table::Bucket;

/// Events in addition to the decision, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Commits that lost a race and were decided again.
    pub retries: i64,
    /// Live states that were evicted for another key.
    pub evictions: i64,
    /// Evicted keys that had used half of a quota or more: limited clients, or clients near their
    /// limit.
    pub evictions_half_used: i64,
    /// Partitions that could not be read or written.
    pub failures: i64,
    /// Requests denied by a remembered denial.
    pub remembered: i64,
    /// The change in the number of keys in the tables; below 0 when there are fewer.
    pub new_keys: i64,
}

impl CommitStats {
    /// A bucket that had this many keys is `bytes` now. `lost` is set when a live key lost its
    /// place there, and whether that key had used half of a quota.
    pub fn wrote(&mut self, before: usize, bytes: &[u8], lost: Option<bool>) {
        let number = |keys: usize| i64::try_from(keys).unwrap_or(i64::MAX);
        let now = Bucket::parse(bytes).map_or(before, |bucket| bucket.keys());
        let more = number(now).saturating_sub(number(before));
        self.new_keys = self.new_keys.saturating_add(more);
        self.evictions = self.evictions.saturating_add(lost.is_some().into());
        self.evictions_half_used =
            self.evictions_half_used.saturating_add((lost == Some(true)).into());
    }

    /// Both together.
    #[must_use]
    pub const fn with(&self, other: &Self) -> Self {
        Self {
            retries: self.retries.saturating_add(other.retries),
            evictions: self.evictions.saturating_add(other.evictions),
            evictions_half_used: self.evictions_half_used.saturating_add(other.evictions_half_used),
            failures: self.failures.saturating_add(other.failures),
            remembered: self.remembered.saturating_add(other.remembered),
            new_keys: self.new_keys.saturating_add(other.new_keys),
        }
    }
}
