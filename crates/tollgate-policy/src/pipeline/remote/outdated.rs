//! Why a request must be planned again: a store has a newer policy, or another entry of its tenant,
//! than the plan.
//!
//! Invariant: every reason is a partition that has failed and charged nothing, so a request that is
//! not planned again is decided by `on_failure`.

use crate::pipeline::partitions::{Failure, Status};
use crate::pipeline::plan::Plan;

/// The policy or entry to plan a request with instead: [`Plan::outdated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdated<'p> {
    /// The policy of this version: the newest one that wrote a partition's states.
    Policy(u64),
    /// The entry that the tenant has, as the store passed it to `Counts::other_entry`, instead of
    /// the one given to [`Tenants::ask_under`](crate::Tenants::ask_under).
    Entry(&'p [u8]),
}

impl Plan {
    /// Why the request was not decided and must be planned again: refund everything that its other
    /// counts charged before that. The entry of its tenant comes before a newer policy.
    #[must_use]
    pub fn outdated(&self) -> Option<Outdated<'_>> {
        let mut newest = None;
        for stored in self.partitions.live() {
            match stored.status {
                Status::Failed(Failure::OtherEntry) => return Some(Outdated::Entry(&stored.value)),
                Status::Failed(Failure::Newer(version)) => newest = newest.max(Some(version)),
                Status::Failed(Failure::Unreachable | Failure::Contended | Failure::Corrupt)
                | Status::Pending
                | Status::Loaded
                | Status::Charged
                | Status::Uncharged => {}
            }
        }
        newest.map(Outdated::Policy)
    }
}
