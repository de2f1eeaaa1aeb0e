//! The admin API over this server: tokens, policies and single keys.
//!
//! Invariant: nothing is read or changed for a caller without the scope for it. Deliberately not
//! here: the contract, which is `tollgate-service`'s.

pub mod admin;
