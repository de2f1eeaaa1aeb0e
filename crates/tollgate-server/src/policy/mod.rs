//! The policy in force: compiled for this server, and replaced while requests are under way.
//!
//! Invariant: there is always one, and a request ends under the policy that it began with.
//! Deliberately not here: where a policy comes from (`policy_file`, the store).

pub mod active;
pub mod following;
