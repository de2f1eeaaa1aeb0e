//! The steps of one request: plan, load, decide, commit.
//!
//! Invariant: nothing here does I/O, reads a clock or sends anything to clients.

pub(crate) mod remote;
pub(crate) mod order;
pub(crate) mod succession;
pub(crate) mod fallback;
pub(crate) mod in_flight;
pub(crate) mod decide;
pub(crate) mod body_scan;
pub(crate) mod settlement;
pub(crate) mod punish;
pub(crate) mod located;
pub(crate) mod apply;
pub(crate) mod special;
pub(crate) mod deny;
pub(crate) mod tenant;
pub(crate) mod partition;
pub(crate) mod now;
pub(crate) mod memory;
pub(crate) mod plan;
pub(crate) mod matched_deny;
pub(crate) mod applied;
pub(crate) mod partitions;
pub(crate) mod key_hashes;

#[cfg(test)]
mod tests;
