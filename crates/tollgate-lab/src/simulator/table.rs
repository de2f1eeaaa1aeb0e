//! The table of a run: the results of all its requests.
//!
//! Invariant: `offered = admitted + delayed + denied` once the run is over. The names of the fields
//! are part of the `--json` output and do not change.

use serde::Serialize;

use crate::simulator::waits::WaitFigures;

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Requests that came, including those of clients that retried.
    pub offered: u64,
    /// Requests sent on at once.
    pub admitted: u64,
    /// Requests sent on after a wait.
    pub delayed: u64,
    /// Requests denied.
    pub denied: u64,
    /// Requests sent on although the exact twin, the same rules with a log of every unit, denies
    /// them.
    pub false_allow: u64,
    /// Requests denied although the exact twin allows them.
    pub false_deny: u64,
    /// The most quota units of one key that were sent on in any window, for the quota where that is
    /// the largest share of its limit.
    pub most_admitted: u64,
    /// The limit of that quota.
    pub limit: u64,
    /// The most quota units of one key that were sent on at one instant, for the same quota.
    pub burst: u64,
    /// The waits of the delayed requests.
    pub waits: WaitFigures,
    /// Bytes of stored values, the maximum at one time, over all nodes.
    pub state_bytes: u64,
    /// Stored values, the maximum at one time, over all nodes.
    pub keys: u64,
    /// Values that other keys replaced before they were idle.
    pub evictions: u64,
    /// Those of them that had used half of a quota or more.
    pub evictions_half_used: u64,
    /// Commits that lost a race and were decided again.
    pub lost_races: u64,
    /// The last second of the traffic that a request came in, counted from its beginning.
    pub seconds: u64,
    /// How often a client did not retry, or did not come later, because 1,000,000 other requests
    /// were already pending.
    pub given_up: u64,
    /// True when requests beyond the maximum of one run were left out.
    pub is_cut_short: bool,
    /// Every rule that counts, in the order of the policy, then every rule that denies.
    pub rules: Vec<RuleRow>,
    /// Every quota of every rule and tier, then the tenants' own quotas that counted anything.
    pub quotas: Vec<QuotaRow>,
    /// Every source of the traffic.
    pub sources: Vec<SourceRow>,
}

/// One rule's decisions on the requests that it applied to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleRow {
    /// Its name.
    pub name: String,
    /// Every quota of it allowed the request.
    pub allowed: u64,
    /// A quota of it denied, a key part was missing, or the rule denies without counting.
    pub denied: u64,
    /// Allowed after a wait.
    pub delayed: u64,
    /// Over the limit, allowed with a mark.
    pub marked: u64,
    /// Over the limit, but the rule is not enforced for the key.
    pub shadowed: u64,
    /// Its state could not be read or written.
    pub failed: u64,
    /// Its key cannot be read from the request.
    pub malformed: u64,
}

/// The units that one quota allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuotaRow {
    /// Its rule.
    pub rule: String,
    /// The tier, if it is not the rule's own.
    pub tier: Option<String>,
    /// It is tenants' own quota, from their entries.
    #[serde(skip_serializing_if = "is_false")]
    pub of_tenants: bool,
    /// Its name.
    pub name: String,
    /// Its algorithm.
    pub algorithm: String,
    /// Units per window.
    pub limit: u64,
    /// The window, in microseconds.
    pub window_us: u64,
    /// The most units of one key that were sent on in any window; only for rules that are enforced
    /// and do more than mark.
    pub most_admitted: u64,
    /// The most units of one key that were sent on at one instant.
    pub burst: u64,
    /// Bytes of state per key.
    pub state_len: u64,
}

impl QuotaRow {
    /// True for a limit on requests in flight: the most are those at the same time.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.algorithm == "concurrency"
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The results of one source's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceRow {
    /// Its name.
    pub name: String,
    /// Requests that came.
    pub offered: u64,
    /// Requests sent on at once.
    pub admitted: u64,
    /// Requests sent on after a wait.
    pub delayed: u64,
    /// Requests denied.
    pub denied: u64,
    /// Requests of the source that were retries after a denial.
    pub retries: u64,
}
