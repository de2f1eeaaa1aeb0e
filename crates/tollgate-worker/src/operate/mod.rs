//! The operator's side: the admin API, metrics, the pages and the log.
//!
//! Invariant: no key is in any of it. Deliberately not here: the contract, which is
//! `tollgate-service`'s.

pub(crate) mod admin;
pub(crate) mod assets;
pub(crate) mod background;
pub(crate) mod flush;
pub(crate) mod keys;
pub(crate) mod points;
pub(crate) mod store;
pub(crate) mod tally;
