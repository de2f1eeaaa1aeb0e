//! The results of a replay, as plain data: the output of `--json`, and the data of a report.
//!
//! Invariant: the names here are documented in docs/replay.md and do not change. Times are RFC 3339
//! in UTC with milliseconds, counts are whole numbers, shares are parts of one. Keys, clients and
//! lines contain only text that may be shown: with `--private` keyed hashes.

use std::fmt;

use serde::Serialize;

use crate::replay::suggest::Suggestion;
use crate::replay::time::Moment;

/// The results of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The log.
    pub log: LogSummary,
    /// The requests that were replayed.
    pub requests: Tally,
    /// The clients that sent them.
    pub clients: Clients,
    /// Each rule, in the order of the document.
    pub rules: Vec<RuleSummary>,
    /// The keys that were limited most.
    pub keys: TopKeys,
    /// The events over time.
    pub timeline: Timeline,
    /// How long delayed requests waited; `null` when none did.
    pub waits: Option<Waits>,
    /// The differences under the policy of `--against`.
    pub against: Option<PolicyComparison>,
    /// The results of `--suggest`; `null` without it.
    pub suggestions: Option<Vec<Suggestion>>,
    /// The bounds of `--fail-if`.
    pub fail_if: Vec<ConditionResult>,
    /// The facts needed to judge the figures.
    pub notes: Vec<String>,
}

/// The input that was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogSummary {
    /// Lines, empty ones not counted.
    pub lines: u64,
    /// Lines that could not be read.
    pub unparsable: u64,
    /// The reasons, with their counts.
    pub causes: Vec<Cause>,
    /// Lines whose request was already denied, with 429 or 503.
    pub already_refused: u64,
    /// Requests that were left out because of `--since` and `--until`.
    pub outside: u64,
    /// Lines that came after later ones, and were sorted.
    pub out_of_order: u64,
    /// Lines that came later than the bound allows, and were left out.
    pub late: u64,
    /// The bound that would have kept them all, in milliseconds, rounded up; 0 when none was late.
    pub most_late_ms: u64,
    /// Seconds that were emitted before the bound, because too many lines were held.
    pub hurried_seconds: u64,
    /// Seconds with more lines than can be held, which were spread in parts.
    pub crowded_seconds: u64,
    /// Lines that were more than a day ahead of their neighbours, and were left out.
    pub ahead: u64,
    /// Logs that break off.
    pub damaged: Vec<Damage>,
    /// When the first replayed request came.
    pub first: Option<Moment>,
    /// When the last one came.
    pub last: Option<Moment>,
}

/// Why lines could not be read.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// In words.
    pub cause: String,
    /// How many lines.
    pub lines: u64,
    /// Some of them, shortened.
    pub samples: Vec<Sample>,
}

/// One line that could not be read.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Its number, from 1.
    pub line: u64,
    /// Its beginning.
    pub text: String,
}

/// A log that ends in an unexpected way.
#[derive(Clone, Debug, Serialize)]
pub struct Damage {
    /// The log.
    pub log: String,
    /// The error; everything before it was replayed.
    pub message: String,
}

/// The fates of requests. `admitted`, `delayed`, `denied` and `unreadable` add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All of them.
    pub total: u64,
    /// Sent on at once.
    pub admitted: u64,
    /// Sent on after a wait.
    pub delayed: u64,
    /// Denied.
    pub denied: u64,
    /// Denied with 400: the key of a rule cannot be read.
    pub unreadable: u64,
    /// Sent on with a mark, over the limit.
    pub marked: u64,
    /// Sent on, over the limit of a rule that is not enforced for them.
    pub shadowed: u64,
}

/// The number of clients for each fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Clients {
    /// All of them.
    pub total: u64,
    /// At least one of its requests was denied by a limit.
    pub denied: u64,
    /// At least one of its requests waited.
    pub delayed: u64,
    /// At least one of its requests was denied because it could not be read.
    pub unreadable: u64,
    /// At least one of its requests was sent on with a mark.
    pub marked: u64,
    /// At least one of its requests was sent on over the limit of a rule that is not enforced for
    /// it.
    pub shadowed: u64,
    /// 1 when each client was counted separately. Otherwise one of this many was, chosen by its
    /// hash, and the numbers are estimates.
    pub one_of: u64,
    /// Requests without a known client.
    pub requests_without: u64,
}

/// The results of one rule.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RuleSummary {
    /// Its name.
    pub name: String,
    /// Requests that it applied to, by its decision.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
    /// Allowed after a wait.
    pub delayed: u64,
    /// Over the limit, allowed with a mark.
    pub marked: u64,
    /// Over the limit, not enforced.
    pub shadowed: u64,
    /// Its key could not be read.
    pub malformed: u64,
    /// Keys that it limited.
    pub limited_keys: u64,
    /// False when there were more than are counted separately: then this is a lower bound.
    pub limited_keys_are_exact: bool,
    /// The first request that it limited.
    pub first: Option<FirstLimited>,
    /// Its quotas, those of its tiers, and tenants' own ones that had no room, the most frequent
    /// first.
    pub quotas: Vec<QuotaSummary>,
}

/// The first request that was limited.
#[derive(Clone, Debug, Serialize)]
pub struct FirstLimited {
    /// When it came.
    pub at: Moment,
    /// The key that the rule counts by.
    pub key: String,
}

/// The results of one quota.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaSummary {
    /// Its name in responses to clients.
    pub name: String,
    /// The tier that contains it.
    pub tier: Option<String>,
    /// It is tenants' own quota, from their entries.
    #[serde(skip_serializing_if = "is_false")]
    pub of_tenants: bool,
    /// Quota units per window.
    pub limit: u64,
    /// The window, in milliseconds.
    pub window_ms: u64,
    /// The algorithm.
    pub algorithm: String,
    /// Requests for which it was the first quota of its rule without room.
    pub limited: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The keys that were limited most.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopKeys {
    /// The first of them, most limited first.
    pub top: Vec<LimitedKey>,
    /// The most keys that are counted separately.
    pub counted_at_most: u64,
    /// The most often that a key outside the table was limited; 0 when all are exact.
    pub error: u64,
}

/// One limited key.
#[derive(Clone, Debug, Serialize)]
pub struct LimitedKey {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Requests over its limit, by their fate; lower bounds.
    pub denied: u64,
    /// Allowed after a wait.
    pub delayed: u64,
    /// Allowed with a mark.
    pub marked: u64,
    /// Not enforced.
    pub shadowed: u64,
    /// The numbers may be higher by this many.
    pub error: u64,
    /// When the first one came.
    pub first: Moment,
    /// When the last one came.
    pub last: Moment,
}

/// The events over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timeline {
    /// The length of a bin, in seconds.
    pub bin_seconds: u64,
    /// The bins, without gaps.
    pub bins: Vec<Bin>,
}

/// The events in one length of time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bin {
    /// Its start.
    pub at: Moment,
    /// Requests that came.
    pub total: u64,
    /// Of those, denied ones, including unreadable ones.
    pub denied: u64,
    /// Of those, delayed ones.
    pub delayed: u64,
    /// Of those, ones over a limit that were allowed anyway: marked or shadowed.
    pub over: u64,
}

/// How long delayed requests waited, in milliseconds, rounded up; p50 and p99 within 1/16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// How many waited, including those that were denied in the end.
    pub waited: u64,
    /// Half of the waits were at most this long.
    pub p50_ms: u64,
    /// 99 % of the waits were at most this long.
    pub p99_ms: u64,
    /// The longest wait.
    pub max_ms: u64,
}

/// The differences under another policy. A request is limited when it is denied or delayed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyComparison {
    /// The fates of the requests there.
    pub requests: Tally,
    /// The fates of the clients there.
    pub clients: Clients,
    /// The results of its rules.
    pub rules: Vec<RuleSummary>,
    /// Requests, by the policies that limit them.
    pub changed_requests: ChangeCounts,
    /// Clients with at least one such request.
    pub changed_clients: ChangeCounts,
    /// The first requests that only the policy limits.
    pub newly_limited: Vec<Example>,
    /// The first requests that only the other policy limits.
    pub no_longer_limited: Vec<Example>,
}

/// How many requests or clients each of the two policies limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeCounts {
    /// By the policy, not by the other one.
    pub newly_limited: u64,
    /// By the other one, not by the policy.
    pub no_longer_limited: u64,
    /// By both.
    pub both: u64,
}

/// One request.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// When it came.
    pub at: Moment,
    /// The client.
    pub client: String,
    /// Its method and target, shortened.
    pub request: String,
}

/// A bound, and whether it is met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionResult {
    /// The bound, as given.
    pub condition: String,
    /// True when it is met, and the replay fails.
    pub fails: bool,
    /// The number that was found.
    pub found: u64,
    /// The total.
    pub of: u64,
}

impl fmt::Display for ConditionResult {
    /// `denied-clients>0.1%: 3 of 2365`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {}", self.condition, self.found, self.of)
    }
}
