//! The table of a run: what came of all its requests.
//!
//! Invariant: `offered = admitted + delayed + denied` once the run is over. Names of fields are
//! part of what `--json` prints: they do not change.

use serde::Serialize;

use crate::waits::WaitFigures;

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Requests that came, those of clients that came again included.
    pub offered: u64,
    /// Those that went on at once.
    pub admitted: u64,
    /// Those that went on after a wait.
    pub delayed: u64,
    /// Those that were refused.
    pub denied: u64,
    /// Went on although the exact twin refuses them: the same rules with a log of every unit.
    pub false_allow: u64,
    /// Were refused although the exact twin lets them through.
    pub false_deny: u64,
    /// Quota units of one key in any window, the greatest number that went on: of the quota where
    /// it is the most of its limit.
    pub most_admitted: u64,
    /// The limit of that quota.
    pub limit: u64,
    /// Quota units of one key at one instant, the greatest number that went on: of the same quota.
    pub burst: u64,
    /// How long those waited that were delayed.
    pub waits: WaitFigures,
    /// Bytes of stored values, the most at one time, over all nodes.
    pub state_bytes: u64,
    /// Stored values, the most at one time, over all nodes.
    pub keys: u64,
    /// Values that others took the place of before they were idle.
    pub evictions: u64,
    /// Those of them that had used half of a quota or more.
    pub evictions_half_used: u64,
    /// Commits that lost a race and were decided again.
    pub lost_races: u64,
    /// The last second of the traffic that a request came in, counted from its beginning.
    pub seconds: u64,
    /// Times that a client did not come again, or did not come later, because 1,000,000 others were
    /// to already.
    pub given_up: u64,
    /// Requests beyond the most of one run were left out.
    pub is_cut_short: bool,
    /// Every rule, in the order of the policy.
    pub rules: Vec<RuleRow>,
    /// Every quota of every rule and tier, and then the own ones of tenants that counted anything.
    pub quotas: Vec<QuotaRow>,
    /// Every source of the traffic.
    pub sources: Vec<SourceRow>,
}

/// What one rule said to the requests that it applied to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleRow {
    /// Its name.
    pub name: String,
    /// Every quota of it admitted the request.
    pub allowed: u64,
    /// A quota of it denied, or a key part was missing.
    pub denied: u64,
    /// Admitted after a wait.
    pub delayed: u64,
    /// Over the limit, passed with a mark.
    pub marked: u64,
    /// Over the limit, but the rule is not enforced for the key.
    pub shadowed: u64,
    /// Its state could not be read or written.
    pub failed: u64,
    /// What it counts by cannot be read from the request.
    pub malformed: u64,
}

/// What one quota let through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuotaRow {
    /// Its rule.
    pub rule: String,
    /// The tier, if it is not the rule's own.
    pub tier: Option<String>,
    /// It is the own quota of tenants, by their entries.
    #[serde(skip_serializing_if = "is_false")]
    pub of_tenants: bool,
    /// Its name.
    pub name: String,
    /// By which algorithm.
    pub algorithm: String,
    /// Units in a window.
    pub limit: u64,
    /// The window, in microseconds.
    pub window_us: u64,
    /// Units of one key in any window, the greatest number that went on; only of rules that are
    /// enforced and do more than mark.
    pub most_admitted: u64,
    /// Units of one key at one instant, the greatest number that went on.
    pub burst: u64,
    /// Bytes of one key's state.
    pub state_len: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// What came of one source's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceRow {
    /// Its name.
    pub name: String,
    /// Requests that came.
    pub offered: u64,
    /// Those that went on at once.
    pub admitted: u64,
    /// Those that went on after a wait.
    pub delayed: u64,
    /// Those that were refused.
    pub denied: u64,
    /// Those of them that came again after a refusal.
    pub retries: u64,
}
