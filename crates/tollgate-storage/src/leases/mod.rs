//! Leases: units of a key that a node may spend on its own, and the accounting for them.
//!
//! Leased units are *reserved*, and charged when they are reported. Units that are leased and not
//! yet reported are called *out*. Every request for a key, whatever it contains, is processed in
//! this order:
//!
//! 1. For each lease past its end, soonest first: its unreported units are charged at its end, and
//!    the lease is removed ([`Counts::advance`](crate::Counts)).
//! 2. The units that a report adds are charged, now. A return lowers the lease's units to the
//!    reported ones.
//! 3. With `out` units out, a cost `c` is allowed if `out + c` would be, then `c` is charged. At
//!    most the units that remain in addition to `out` are leased.
//!
//! Invariant: at any instant, a charge of all units that are out would be allowed. So the real
//! spending is a trace that one limiter allows, for any number of nodes, crashes, and lost,
//! repeated, late and reordered messages: `tests::model` checks a million schedules. This holds for
//! every algorithm in which the remaining units never decrease while nothing is charged. The queue
//! assigns places, not units, so none of it is leased.
//!
//! Deliberately absent: the identity of a lease's holder (a node is 128 random bits), the key, and
//! any clock. A lease cannot be withdrawn: an operator's block or reset of a key takes full effect
//! after the life of its leases.

pub(crate) mod shard_asks;
pub(crate) mod shard;
pub(crate) mod shard_reply;
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
