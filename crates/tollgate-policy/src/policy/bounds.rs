//! The bounds on the size of a policy.
//!
//! Invariant: all code that builds a policy, from a document or from bytes, enforces these bounds,
//! so that the cost of a request is bounded and every index fits its type.

/// The most rules of a policy.
pub(crate) const MAX_RULES: usize = 1000;
/// The most rules and tiers together: each has an index of 16 bits.
pub(crate) const MAX_SETS: usize = 16_384;
/// The most segments that all looked-up path patterns have together: each is a node with its own
/// table.
pub(crate) const MAX_PATH_SEGMENTS: usize = 100_000;
/// The most parts of a key.
pub(crate) const MAX_KEY_PARTS: usize = 8;
/// The most fleet rules of one request, which go to the authority in one message.
pub(crate) use tollgate_storage::MAX_LEASE_SETS as MAX_FLEET_RULES;
/// The most quotas of a rule.
pub(crate) use tollgate_storage::MAX_QUOTAS;
