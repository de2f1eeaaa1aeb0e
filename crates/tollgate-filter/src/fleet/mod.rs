//! Counts of a fleet: the authority that is asked, and the units that this process holds.
//!
//! Invariant: a unit is leased before it is spent, and is given back or reported once. Deliberately
//! not here: how much is leased and when, which is the same on every surface (`tollgate-policy`).

pub(crate) mod authority_client;
pub(crate) mod check_schedule;
pub(crate) mod circuit_breaker;
pub(crate) mod holdings;
pub(crate) mod in_flight;
pub(crate) mod lease_request;
pub(crate) mod lease_waiters;
pub(crate) mod leased_request;
pub(crate) mod node_id;
pub(crate) mod spending;
