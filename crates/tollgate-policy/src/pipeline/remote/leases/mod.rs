//! Leases: units of a key that a node may spend by itself, and one accounting for them.
//!
//! Units that are leased are *reserved*, and charged when they are reported. Every call on a key,
//! whatever it asks, does in this order:
//!
//! 1. each lease past its end, soonest first: what it did not report is charged at its end, and the
//!    lease is gone ([`Counts::advance`](crate::Counts));
//! 2. what a report adds is charged, now; a return lowers the lease's units to what it reported;
//! 3. with `out` units leased and not yet reported a cost `c` is admitted when `out + c` would be,
//!    then `c` is charged; at most what remains beside `out` is leased.
//!
//! Invariant: charging all that is out would be admitted at any instant. So what is really spent is
//! a trace that one limiter admits, for any number of nodes, crashes, lost, repeated, late and
//! reordered messages: `tests::model` has a million schedules of it. It holds for every algorithm
//! in which what remains never falls while nothing is charged; the queue gives places and not
//! units, so nothing of it is leased.
//!
//! Deliberately absent: who holds a lease (a node is 128 random bits), the key, and any clock. A
//! lease is not a permission that can be withdrawn: who blocks or resets a key waits for one life.

pub(crate) mod shard_asks;
pub(crate) mod shard;
pub(crate) mod shard_reply;
pub(crate) mod spend;
pub(crate) mod message;
pub(crate) mod holdings;
pub(crate) mod steps;
pub(crate) mod account;
pub(crate) mod ask;
pub(crate) mod clock;
pub(crate) mod demand;
pub(crate) mod last_answer;
pub(crate) mod lease;
pub(crate) mod mutation;
pub(crate) mod pace;
pub(crate) mod paces;
pub(crate) mod node;
pub(crate) mod node_bytes;

#[cfg(test)]
mod tests;
