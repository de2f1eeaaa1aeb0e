//! The policy in force: compiled for this server, and replaced while requests are in progress.
//!
//! Invariant: there is always one, and a request ends under the policy that it began with.
//! Deliberately not here: the source of a policy (`policy_file`, the store).

pub mod active;
pub mod following;
