//! What a replay found, as plain data: what `--json` writes, and what a report is made of.
//!
//! Invariant: the names here are documented in docs/replay.md and stay. Times are RFC 3339 in UTC
//! with milliseconds, counts are whole numbers, shares are parts of one. Keys, clients and lines
//! are what may be shown: with `--private` keyed hashes.

use std::fmt;

use serde::Serialize;

use crate::suggest::Suggestion;
use crate::time::Moment;

/// What a replay found.
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
    /// What happened when.
    pub timeline: Timeline,
    /// How long delayed requests waited; `null` when none did.
    pub waits: Option<Waits>,
    /// What is different under the policy of `--against`.
    pub against: Option<Against>,
    /// What `--suggest` found; `null` without it.
    pub suggestions: Option<Vec<Suggestion>>,
    /// The bounds of `--fail-if`.
    pub fail_if: Vec<Checked>,
    /// What a reader must know to judge the figures.
    pub notes: Vec<String>,
}

/// What was read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LogSummary {
    /// Lines, empty ones not counted.
    pub lines: u64,
    /// Lines that could not be read.
    pub unparsable: u64,
    /// Of those, how many for which reason.
    pub causes: Vec<Cause>,
    /// Lines that say that the request was refused already, with 429 or 503.
    pub already_refused: u64,
    /// Requests that were left out because of `--since` and `--until`.
    pub outside: u64,
    /// Lines that stood behind later ones, and were sorted.
    pub out_of_order: u64,
    /// Lines that stood further behind than the bound, and were left out.
    pub late: u64,
    /// The bound that would have kept them all, in milliseconds, rounded up; 0 when none was late.
    pub most_late_ms: u64,
    /// Seconds that were given before the bound, because too many lines were held.
    pub hurried_seconds: u64,
    /// Seconds with more lines than can be held, which were spread part by part.
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
    /// How it begins.
    pub text: String,
}

/// A log that ends or breaks off otherwise than it should.
#[derive(Clone, Debug, Serialize)]
pub struct Damage {
    /// Which log.
    pub log: String,
    /// What is wrong with it; what came before was replayed.
    pub message: String,
}

/// What became of requests. `admitted`, `delayed`, `denied` and `unreadable` add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All of them.
    pub total: u64,
    /// They go on at once.
    pub admitted: u64,
    /// They go on after a wait.
    pub delayed: u64,
    /// They are refused.
    pub denied: u64,
    /// They are refused with 400: what a rule counts by cannot be read.
    pub unreadable: u64,
    /// They go on with a mark, over the limit.
    pub marked: u64,
    /// They go on, over the limit of a rule that is not enforced for them.
    pub shadowed: u64,
}

/// How many clients something happened to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Clients {
    /// All of them.
    pub total: u64,
    /// At least one of its requests was refused by a limit.
    pub denied: u64,
    /// At least one of its requests waited.
    pub delayed: u64,
    /// At least one of its requests was refused because it could not be read.
    pub unreadable: u64,
    /// At least one of its requests went on with a mark.
    pub marked: u64,
    /// At least one of its requests went on over the limit of a rule that is not enforced for it.
    pub shadowed: u64,
    /// 1 when each client was counted by itself. Else one of so many was, chosen by its hash, and
    /// the numbers are estimates.
    pub one_of: u64,
    /// Requests that no client is known of.
    pub requests_without: u64,
}

/// What one rule did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RuleSummary {
    /// Its name.
    pub name: String,
    /// Requests that it applied to, by what it said.
    pub allowed: u64,
    /// Refused.
    pub denied: u64,
    /// Admitted after a wait.
    pub delayed: u64,
    /// Over the limit, passed with a mark.
    pub marked: u64,
    /// Over the limit, not enforced.
    pub shadowed: u64,
    /// What it counts by could not be read.
    pub malformed: u64,
    /// Keys that it limited.
    pub limited_keys: u64,
    /// False when there were more than are each counted by itself: then there are at least so many.
    pub limited_keys_are_exact: bool,
    /// The first request that it limited.
    pub first: Option<First>,
    /// Its quotas, those of its tiers, and the own ones of tenants that had no room, the most often
    /// first.
    pub quotas: Vec<QuotaSummary>,
}

/// The first request that was limited.
#[derive(Clone, Debug, Serialize)]
pub struct First {
    /// When it came.
    pub at: Moment,
    /// The key that it counts by.
    pub key: String,
}

/// What one quota did.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaSummary {
    /// What clients are told it is called.
    pub name: String,
    /// The tier that it is of.
    pub tier: Option<String>,
    /// It is the own quota of tenants, by their entries.
    #[serde(skip_serializing_if = "is_false")]
    pub of_tenants: bool,
    /// Quota units per window.
    pub limit: u64,
    /// The window, in milliseconds.
    pub window_ms: u64,
    /// How it is counted.
    pub algorithm: String,
    /// Requests that it was the first quota of its rule to have no room for.
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
    /// The most keys that are each counted by itself.
    pub counted_at_most: u64,
    /// A key that is not counted any more was limited at most so often; 0 when all are exact.
    pub error: u64,
}

/// One limited key.
#[derive(Clone, Debug, Serialize)]
pub struct LimitedKey {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// Requests over its limit, by what happened to them, at least.
    pub denied: u64,
    /// Admitted after a wait.
    pub delayed: u64,
    /// Passed with a mark.
    pub marked: u64,
    /// Not enforced.
    pub shadowed: u64,
    /// So many more it may be.
    pub error: u64,
    /// When the first one came.
    pub first: Moment,
    /// When the last one came.
    pub last: Moment,
}

/// What happened when.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timeline {
    /// The length of a bin, in seconds.
    pub bin_seconds: u64,
    /// The bins, without gaps.
    pub bins: Vec<Bin>,
}

/// What happened in one length of time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bin {
    /// When it begins.
    pub at: Moment,
    /// Requests that came.
    pub total: u64,
    /// Of those, refused ones, unreadable ones among them.
    pub denied: u64,
    /// Of those, delayed ones.
    pub delayed: u64,
    /// Of those, ones over a limit that passed all the same: marked or shadowed.
    pub over: u64,
}

/// How long delayed requests waited, in milliseconds, rounded up; p50 and p99 within 1/16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// How many waited, those that were refused in the end among them.
    pub waited: u64,
    /// Half of them waited at most so long.
    pub p50_ms: u64,
    /// 99 % of them.
    pub p99_ms: u64,
    /// All of them.
    pub max_ms: u64,
}

/// What is different under another policy. A request is limited when it is refused or delayed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Against {
    /// What became of the requests there.
    pub requests: Tally,
    /// And of the clients.
    pub clients: Clients,
    /// What its rules did.
    pub rules: Vec<RuleSummary>,
    /// Requests by which of the two policies limits them.
    pub changed_requests: Changed,
    /// Clients with at least one such request.
    pub changed_clients: Changed,
    /// The first requests that only the policy limits.
    pub newly_limited: Vec<Example>,
    /// The first requests that only the other policy limits.
    pub no_longer_limited: Vec<Example>,
}

/// How many of something are limited by which of two policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changed {
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
    /// Who sent it.
    pub client: String,
    /// Its method and target, shortened.
    pub request: String,
}

/// A bound, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The bound, as it was given.
    pub condition: String,
    /// True when it is met, and the replay fails.
    pub fails: bool,
    /// What was found.
    pub found: u64,
    /// Of so many.
    pub of: u64,
}

impl fmt::Display for Checked {
    /// `denied-clients>0.1%: 3 of 2365`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {}", self.condition, self.found, self.of)
    }
}
