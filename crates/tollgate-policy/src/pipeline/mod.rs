//! One request on its way: planned, loaded, decided, committed.
//!
//! Invariant: nothing here does I/O or reads a clock, and nothing is said to clients.

pub(crate) mod remote;
pub(crate) mod order;
pub(crate) mod succession;
pub(crate) mod fallback;
pub(crate) mod decide;
pub(crate) mod located;
pub(crate) mod apply;
pub(crate) mod counted;
pub(crate) mod tenant;
pub(crate) mod partition;
pub(crate) mod plan;
pub(crate) mod partitions;
pub(crate) mod key_hashes;

#[cfg(test)]
mod tests;
