//! The suggestions, as plain data.
//!
//! Invariant: the names are those of `--json`, which docs/replay.md lists. Deliberately absent: how
//! the suggestions are computed.

use serde::Serialize;

use super::heaviest::HeavyClient;

/// The suggestions for one quota of a rule, or of one of its tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// The rule's name.
    pub rule: String,
    /// The tier's name, if these are not the rule's own quotas.
    pub tier: Option<String>,
    /// The quota's name.
    pub quota: String,
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// The window in milliseconds.
    pub window_ms: u64,
    /// The limit in the policy.
    pub limit_now: u64,
    /// Requests that the quota decided.
    pub requests: u64,
    /// Distinct keys among them; where a sample was counted, its keys times [`Sample::one_in`].
    pub clients: u64,
    /// False when the rule has one count for all requests, so there are no clients to affect. Then
    /// only the greatest count is useful, and no limit is suggested.
    pub per_client: bool,
    /// The greatest numbers of quota units that the clients used in any one window.
    pub greatest: Greatest,
    /// Present when only some of the keys could be counted.
    pub sample: Option<Sample>,
    /// Present when some keys had too many requests in a window to be counted one by one.
    pub in_parts: Option<InParts>,
    /// A limit for each share of the clients; empty without clients.
    pub limits: Vec<SuggestedLimit>,
    /// Limits from the usage of half of the clients to the greatest usage; empty without clients.
    pub curve: Vec<CurveLimit>,
    /// The widest gap between two clients' counts; `None` where no gap is wide.
    pub gap: Option<Gap>,
    /// The clients with the greatest usage, limited or not; empty without clients.
    pub heaviest: Vec<HeavyClient>,
    /// Requests in the second pass with keys that the first did not have: the log has changed
    /// meanwhile.
    pub strangers: u64,
}

/// The distribution of the clients' greatest counts: quota units in one window, nearest ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Greatest {
    /// Half of the clients use at most this.
    pub p50: u64,
    /// 99 % of them.
    pub p99: u64,
    /// 99.9 % of them.
    pub p99_9: u64,
    /// All of them.
    pub max: u64,
}

/// A sample, used when there are too many keys, or too many requests within a window, to count all.
/// The keys of a uniform sample are counted, each exactly, and percentiles are the sample's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// One of this many keys was counted; a power of two.
    pub one_in: u64,
    /// The number of counted keys.
    pub keys: u64,
    /// The greatest count of the sample. [`Greatest::max`] is then an upper bound for all keys,
    /// from a sketch, never below the true one.
    pub max: u64,
}

/// Keys with more than 4,096 requests in one window. Those beyond were added up in parts of the
/// window, so their greatest count is that of a window longer by one part, never below the true
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InParts {
    /// The number of these keys.
    pub keys: u64,
    /// The length of one part in nanoseconds: the window / 4,096, rounded up.
    pub part_ns: u64,
}

/// The effect of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurveLimit {
    /// The limit, in quota units per window.
    pub limit: u64,
    /// Clients that exceed it in a window: those that an exact limiter would have affected.
    pub exceed: u64,
    /// The result of the second pass; `None` where it was not tried.
    pub replayed: Option<CurveReplayed>,
}

/// The decisions of the rule's own algorithm, without other rules, at a limit of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurveReplayed {
    /// Clients that were denied at least once.
    pub clients: u64,
    /// Requests that were denied.
    pub requests: u64,
}

/// Limits that all affect the same clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The lowest of them: the greatest count of the clients that none of them affects.
    pub from: u64,
    /// The highest of them.
    pub to: u64,
    /// The clients that each of them affects.
    pub clients: u64,
    /// False where the limits were not tried: then an exact limiter affects these clients.
    pub is_replayed: bool,
    /// The quota in the middle of the gap, as JSON for the policy; `None` where the algorithm
    /// cannot hold it.
    pub line: Option<String>,
}

/// A limit for one wished share of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuggestedLimit {
    /// At most this percentage of the clients is to be affected: `0`, `0.1`, `1` or a requested
    /// one.
    pub wished_percent: String,
    /// The lowest limit that no more clients than wished exceed in any window. The suggested limit
    /// is higher or lower where the algorithm denies more clients than those, or fewer.
    pub counted: u64,
    /// Clients that exceed `counted`: those that an exact limiter would have affected.
    pub exceed: u64,
    /// The limit of the line; `None` where the algorithm cannot hold such a limit.
    pub limit: Option<u64>,
    /// The quota as JSON for the policy, or the reason why the algorithm cannot hold it.
    pub line: String,
    /// The result of the second pass for the line; `None` where there was none.
    pub replayed: Option<Replayed>,
    /// The share of affected clients is a sample's: that of all clients is within this many
    /// millionths of it, 997 times of 1,000 (three standard errors).
    pub within_ppm: Option<u64>,
}

/// The decisions of the rule's own algorithm, without other rules, at the suggested limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Clients that were denied at least once.
    pub touched: u64,
    /// The total: all clients, or all of the sample.
    pub of: u64,
    /// False when even twice the counted limit affected more clients than wished.
    pub as_wished: bool,
}
