//! Counts for the metrics of the driver.
//!
//! Invariant: they only grow.

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that were sent, of every kind.
    pub calls: u64,
    /// Of these, reads after a call without a reply.
    pub reads: u64,
    /// Calls that were applied: each acknowledged a batch.
    pub commits: u64,
    /// Requests that were answered by one of these.
    pub acknowledged: u64,
    /// Calls that found other bytes: a race with another server, or a key that was not remembered.
    pub mismatches: u64,
    /// Calls that arrived at another time than that of their decision.
    pub other_times: u64,
    /// Of these, because the engine's clock was set or is another engine's.
    pub clocks_set: u64,
    /// Calls for which the script was missing.
    pub scripts_missing: u64,
    /// Calls for which it is unknown whether they were applied.
    pub unknown: u64,
    /// Of these, calls that a later read found applied.
    pub found_done: u64,
    /// Requests that were answered as overload.
    pub overloaded: u64,
    /// Requests that failed because of the engine.
    pub failed: u64,
    /// Times that a circuit was opened.
    pub opened: u64,
}

impl Tally {
    /// Adds one to `count`.
    pub(crate) const fn add(count: &mut u64) {
        *count = count.saturating_add(1);
    }

    /// Adds the counts of another tally.
    pub const fn add_all(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.reads = self.reads.saturating_add(other.reads);
        self.commits = self.commits.saturating_add(other.commits);
        self.acknowledged = self.acknowledged.saturating_add(other.acknowledged);
        self.mismatches = self.mismatches.saturating_add(other.mismatches);
        self.other_times = self.other_times.saturating_add(other.other_times);
        self.clocks_set = self.clocks_set.saturating_add(other.clocks_set);
        self.scripts_missing = self.scripts_missing.saturating_add(other.scripts_missing);
        self.unknown = self.unknown.saturating_add(other.unknown);
        self.found_done = self.found_done.saturating_add(other.found_done);
        self.overloaded = self.overloaded.saturating_add(other.overloaded);
        self.failed = self.failed.saturating_add(other.failed);
        self.opened = self.opened.saturating_add(other.opened);
    }
}
