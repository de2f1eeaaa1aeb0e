//! Counts of a fleet: the authority that is asked, and the units that this process holds.
//!
//! Invariant: a unit is leased before it is spent, and is given back or reported once. Deliberately
//! not here: how much is leased and when, which is the same on every surface (`tollgate-policy`).

pub(crate) mod agenda;
pub(crate) mod authority;
pub(crate) mod breaker;
pub(crate) mod crowd;
pub(crate) mod holdings;
pub(crate) mod lease;
pub(crate) mod node_id;
pub(crate) mod paused;
pub(crate) mod pauses;
pub(crate) mod question;
pub(crate) mod spending;
