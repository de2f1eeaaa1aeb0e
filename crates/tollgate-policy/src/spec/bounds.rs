//! The bounds on the size of a policy.
//!
//! Invariant: all code that builds a policy, from a document or from bytes, enforces these bounds,
//! so that the cost of a request is bounded and every index fits its type.

/// The most rules of a policy.
pub const MAX_RULES: usize = 1000;
/// The most rules and tiers together: each has an index of 16 bits.
pub const MAX_SETS: usize = 16_384;
/// The most segments that all looked-up path patterns have together: each is a node with its own
/// table.
pub const MAX_PATH_SEGMENTS: usize = 100_000;
/// The most parts of a key.
pub const MAX_KEY_PARTS: usize = 8;
/// The most parts of one `any_of` in a key.
pub const MAX_ANY_OF: usize = 4;
/// The most fleet rules of one request, which go to the authority in one message.
pub use tollgate_storage::MAX_LEASE_SETS as MAX_FLEET_RULES;
/// The most quotas of a rule.
pub use tollgate_storage::MAX_QUOTAS;
/// The most items of `exempt`: a request is compared with each in turn.
pub const MAX_EXEMPT: usize = 1000;
/// The most tiers of a rule: a request is compared with each in turn.
pub const MAX_TIERS: usize = 1000;
/// The most shards of a key. Each shard holds at most two leases at a time, and as many that are
/// ending. All shards together hold half of the leases that a key can have.
pub const MAX_SHARDS: u32 = 32;
/// The most values of one condition, and of any other list of alternatives.
pub const MAX_VALUES: usize = 10_000;
/// The longest value that Envoy's table can hold, in bytes: a bucket holds 65,535 words.
pub const MAX_VALUE_LEN: usize = 65_535 * tollgate_storage::WORD;
/// The longest expression, in bytes.
pub const MAX_REGEX: usize = 256;
/// The most different expressions of a policy: each takes at most 19 KB for its program and 22 KB
/// for the states of each search at the same time.
pub const MAX_REGEXES: usize = 64;
/// The longest value that is searched, in bytes: the worst expression takes 39 million instructions
/// for 1 KiB, a usual one 900,000.
pub const MAX_SEARCHED: usize = 2048;

/// Why a build without the feature `regex` has no policy with a regular expression; a sentence
/// without its subject.
pub const NO_REGEXES: &str = "needs regular expressions, which this build does not have; in Envoy use tollgate-envoy-full.wasm";
