//! How large a policy may be.
//!
//! Invariant: whoever makes a policy, out of a document or out of bytes, keeps within these, so
//! that what a request may cost is bounded, and every index has room.

/// The most rules of a policy.
pub(crate) const MAX_RULES: usize = 1000;
/// The most rules and tiers together: each has an index of 16 bits.
pub(crate) const MAX_SETS: usize = 16_384;
/// The most segments of all path patterns together that are looked up: each is a node with a table
/// of its own.
pub(crate) const MAX_PATH_SEGMENTS: usize = 100_000;
/// The most parts of a key.
pub(crate) const MAX_KEY_PARTS: usize = 8;
/// The most quotas of a rule.
pub(crate) const MAX_QUOTAS: usize = 16;
/// The most rules of a fleet that one request is asked about, in one message to the authority.
pub(crate) const MAX_FLEET_RULES: usize = 64;
