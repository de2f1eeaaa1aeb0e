//! What happens while a request is committed, besides the decision.
//!
//! Invariant: pure; counting saturates. Deliberately absent: how it is shown, which is `metrics`.

/// What happened besides the decision; for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Commits that lost a race and were decided again.
    pub retries: i64,
    /// Live states that another key took the place of.
    pub evictions: i64,
    /// Those of them whose key had used half of a quota or more: somebody who was limited, or near
    /// it.
    pub evictions_half_used: i64,
    /// Partitions that could not be read or written.
    pub failures: i64,
}

impl CommitStats {
    /// Both together.
    #[must_use]
    pub const fn with(&self, other: &Self) -> Self {
        Self {
            retries: self.retries.saturating_add(other.retries),
            evictions: self.evictions.saturating_add(other.evictions),
            evictions_half_used: self.evictions_half_used.saturating_add(other.evictions_half_used),
            failures: self.failures.saturating_add(other.failures),
        }
    }
}
