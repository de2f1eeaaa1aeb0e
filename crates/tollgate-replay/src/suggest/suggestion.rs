//! What is suggested, as plain data.
//!
//! Invariant: the names are those of `--json`, which docs/replay.md lists. Deliberately absent: how
//! any of it is found.

use serde::Serialize;

use super::heaviest::HeavyClient;

/// What is suggested for one quota of a rule, or of a tier of it.
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
    /// Requests that the quota decided about.
    pub requests: u64,
    /// Distinct keys among them; where a sample was counted, its keys times [`Sample::one_in`].
    pub clients: u64,
    /// False when the rule has one count for all requests, so that there are no clients to touch:
    /// only the greatest count is of use then, and no limit is suggested.
    pub per_client: bool,
    /// The greatest numbers of quota units that the clients used in any one window.
    pub greatest: Greatest,
    /// When only some of the keys could be counted.
    pub sample: Option<Sample>,
    /// When some keys had too many requests in a window to be counted one by one.
    pub in_parts: Option<InParts>,
    /// For each share of the clients a limit; empty without clients.
    pub limits: Vec<SuggestedLimit>,
    /// Limits from what half of the clients use to what the greatest uses; empty without clients.
    pub curve: Vec<CurveLimit>,
    /// The widest gap between two clients' counts; `None` where no gap is wide.
    pub gap: Option<Gap>,
    /// The clients that used most, limited or not; empty without clients.
    pub heaviest: Vec<HeavyClient>,
    /// Requests in the second pass of keys that the first had not: the log has changed meanwhile.
    pub strangers: u64,
}

/// How the clients' greatest counts are spread: quota units in one window, nearest ranks.
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

/// There were too many keys, or too many requests within a window, to count them all: the keys of a
/// uniform sample were counted, each of them exactly, and percentiles are the sample's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// One key of so many was counted; a power of two.
    pub one_in: u64,
    /// So many keys were counted.
    pub keys: u64,
    /// The greatest count of the sample. [`Greatest::max`] is an upper bound of all keys' then,
    /// from a sketch, never below the true one.
    pub max: u64,
}

/// Keys with more than 4,096 requests in one window: those beyond were added up in parts of the
/// window, so their greatest count is that of a window longer by one part, never below the true
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InParts {
    /// So many keys.
    pub keys: u64,
    /// The length of one part in nanoseconds: the window / 4,096, rounded up.
    pub part_ns: u64,
}

/// What one limit would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurveLimit {
    /// The limit, in quota units per window.
    pub limit: u64,
    /// Clients that exceed it in a window: those that an exact limiter would have touched.
    pub exceed: u64,
    /// What the second pass says of it; `None` where it was not tried.
    pub replayed: Option<CurveReplayed>,
}

/// What the rule's own algorithm did at a limit of the curve, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurveReplayed {
    /// Clients that were refused at least once.
    pub clients: u64,
    /// Requests that were refused.
    pub requests: u64,
}

/// Limits that all touch the same clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The lowest of them: the greatest count of the clients that none of them touches.
    pub from: u64,
    /// The highest of them.
    pub to: u64,
    /// The clients that each of them touches.
    pub clients: u64,
    /// False where the limits were not tried: then an exact limiter touches these clients.
    pub is_replayed: bool,
    /// The quota in the middle of the gap, to be put into the policy, as JSON; `None` where the
    /// algorithm cannot hold it.
    pub line: Option<String>,
}

/// A limit for one wished share of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuggestedLimit {
    /// At most so many per cent of the clients are to be touched: `0`, `0.1`, `1` or one that was
    /// asked for.
    pub wished_percent: String,
    /// The lowest limit that no more clients than wished exceed in any window. The one that is
    /// suggested is higher or lower where the algorithm refuses more clients than those, or fewer.
    pub counted: u64,
    /// Clients that exceed `counted`: those that an exact limiter would have touched.
    pub exceed: u64,
    /// The limit of the line; `None` where the algorithm cannot hold such a limit.
    pub limit: Option<u64>,
    /// The quota to be put into the policy, as JSON; or why the algorithm cannot hold it.
    pub line: String,
    /// What the second pass says of the line; `None` where there was none.
    pub replayed: Option<Replayed>,
    /// The share of touched clients is a sample's: that of all of them is within so many millionths
    /// of it, 997 times of 1,000 (three standard errors).
    pub within_ppm: Option<u64>,
}

/// What the rule's own algorithm did at the suggested limit, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Clients that were refused at least once.
    pub touched: u64,
    /// Of so many: all clients, or all of the sample.
    pub of: u64,
    /// False when even twice the counted limit touched more clients than wished.
    pub as_wished: bool,
}
