//! One client of a rule, in words and numbers: its used quota, and the decision that a request
//! would get.
//!
//! Invariant: a report contains names of rules, tiers and quotas, and numbers; no key and nothing
//! that a client sent. Times are milliseconds, rounded up. Deliberately absent: how the state was
//! read; that belongs to the service that counts.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;
use tollgate_core::{Decision, Holding, Limiter, Span, Timestamp};
use tollgate_policy::{
    DenyMatch, Disposition, GivenKey, Outcome, Policy, QuotaSet, RuleDecision, pk_text,
};
use tollgate_storage::{KeyState, QuotaUse};

use crate::store::key_history::KeyChange;

/// The used quota of a key under a rule, as JSON.
#[derive(Serialize)]
struct KeyStateReport<'a> {
    rule: &'a str,
    /// The hash of the key in responses and logs.
    pk: String,
    at_ms: u64,
    blocked_until_ms: Option<u64>,
    /// The newest version of the policy that the key was counted under; 0 where versions are not
    /// counted.
    policy_version: u64,
    quotas: Vec<Quota<'a>>,
    words: String,
}

#[derive(Serialize)]
struct Quota<'a> {
    /// The tier of the quota; `None` for the rule's own.
    tier: Option<&'a str>,
    name: &'a str,
    #[serde(flatten)]
    numbers: Numbers,
    /// The end of a penalty that runs, and the number of its step, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    penalty_until_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    penalty_step: Option<u64>,
    #[serde(skip)]
    penalty_left: Span,
    /// Units that are used until their responses settle them; only where they are kept apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<u64>,
    /// Units used above the capacity: the burst, or the limit; only in the state of a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    debt: Option<u64>,
    /// Requests in flight; only of a limit on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u64>,
}

#[derive(Serialize)]
struct Numbers {
    algorithm: &'static str,
    limit: u64,
    window_ms: u64,
    used: u64,
    remaining: u64,
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
}

#[derive(Serialize)]
struct Explained<'a> {
    decision: &'static str,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
    rules: Vec<Rule<'a>>,
    words: String,
}

#[derive(Serialize)]
struct Rule<'a> {
    name: &'a str,
    tier: Option<&'a str>,
    /// The parts of its key.
    key: Vec<String>,
    result: &'static str,
    cost: u64,
    /// False for a rule that denies no request: a shadow or a mark.
    is_enforced: bool,
    /// Until when an operator blocked the key.
    blocked_until_ms: Option<u64>,
    #[serde(skip)]
    blocked_for: Span,
    /// The tenant's entry, where that chose the quotas.
    entry: Option<Entry>,
    /// Empty while the key is blocked: then every quota denies, whatever it has used.
    quotas: Vec<Quota<'a>>,
}

/// A tenant's entry for a rule.
#[derive(Serialize)]
struct Entry {
    /// `own` quotas, or those of a `tier`.
    quotas: &'static str,
    /// Tiers of no higher priority come after it.
    priority: u32,
}

/// The longest words of a history, in characters.
const MAX_WORDS: usize = 1_000;

/// A change of `key` of `tenant`, as the history describes it.
#[must_use]
pub fn change(
    policy: &Policy,
    key: &GivenKey,
    tenant: Option<&str>,
    before: &KeyState,
    after: &KeyState,
) -> KeyChange {
    let rule = policy.rules().get(key.rule).map_or("", |rule| rule.name());
    let words = |state: &KeyState| {
        let (_, words) = used(policy, key, state);
        words.chars().take(MAX_WORDS).collect()
    };
    let (before, after) = (words(before), words(after));
    let tenant = tenant.map(ToString::to_string);
    KeyChange { rule: rule.to_string(), tenant, pk: key.pk(policy), before, after }
}

/// The used quota of `key`, as [`KeyReply::State`](crate::KeyReply::State) contains it.
#[must_use]
pub fn state(policy: &Policy, key: &GivenKey, state: &KeyState) -> String {
    let rule = policy.rules().get(key.rule).map_or("", |rule| rule.name());
    let blocked_until_ms = state.blocked_until.map(millis);
    let (quotas, words) = used(policy, key, state);
    let (pk, at_ms) = (pk_text(key.pk(policy)), millis(state.at));
    let policy_version = state.version;
    let state = KeyStateReport { rule, pk, at_ms, blocked_until_ms, policy_version, quotas, words };
    serde_json::to_string(&state).unwrap_or_default()
}

/// The used quota of `key`, in numbers and in words.
fn used<'a>(policy: &'a Policy, key: &GivenKey, state: &KeyState) -> (Vec<Quota<'a>>, String) {
    let mut quotas = Vec::new();
    let rule = policy.rules().get(key.rule);
    for set in rule.into_iter().flat_map(|rule| rule.quota_sets(policy)) {
        let Some(used) = state.of(&set.to_stored()) else { continue };
        let named = set.quotas().iter().zip(used);
        quotas.extend(
            named.map(|(quota, used)| Quota::used(set.tier(), quota.name(), &used, state.at)),
        );
    }
    for used in key.tenants_quotas(policy, state) {
        quotas.push(Quota::used(None, "the tenant's own", &used, state.at));
    }
    let used: Vec<String> = quotas.iter().map(Quota::words).collect();
    let mut words = if used.is_empty() { "nothing is used".to_string() } else { used.join("; ") };
    if let Some(until) = state.blocked_until {
        let left = until.since(state.at).as_secs_ceil();
        words = format!("blocked for another {left} s; {words}");
    }
    (quotas, words)
}

/// The decision that a request would get, as [`KeyReply::Explained`](crate::KeyReply::Explained)
/// contains it.
#[must_use]
pub fn explained(policy: &Policy, outcome: &Outcome<'_>) -> String {
    let (decision, status) = match outcome.final_disposition() {
        Disposition::Allow => ("allow", None),
        Disposition::Delay(_) | Disposition::Retry(_) => ("delay", None),
        Disposition::Deny { status } => ("deny", Some(status)),
    };
    let decisions: Vec<RuleDecision<'_>> = outcome.decisions().collect();
    let mut rules: Vec<Rule<'_>> = outcome.deny_matches().map(|it| Rule::of_deny(&it)).collect();
    let mut said: Vec<String> = rules.iter().map(Rule::words_of_deny).collect();
    let of_counts = decisions.iter().filter_map(|rule| Rule::new(policy, rule));
    let of_counts: Vec<Rule<'_>> = of_counts.collect();
    said.extend(of_counts.iter().map(Rule::words));
    rules.extend(of_counts);
    let retry_after_ms = outcome.retry_after().map(Span::as_millis_ceil);
    let words = if said.is_empty() { "no rule applies".to_string() } else { said.join("; ") };
    let explained = Explained { decision, status, retry_after_ms, rules, words };
    serde_json::to_string(&explained).unwrap_or_default()
}

impl<'a> Rule<'a> {
    fn new(policy: &'a Policy, decided: &RuleDecision<'a>) -> Option<Self> {
        let set = decided.set;
        let quotas = if set.tier().is_some() { "tier" } else { "own" };
        let shown = if decided.blocked_until.is_some() { &[] } else { decided.quotas };
        let rule = policy.rules().get(decided.rule)?;
        Some(Self {
            name: rule.name(),
            tier: set.tier(),
            key: rule.key_parts(policy),
            result: decided.result.label(),
            cost: decided.cost,
            is_enforced: decided.is_binding,
            blocked_until_ms: decided.blocked_until.map(millis),
            blocked_for: decided.blocked_until.map_or(Span::ZERO, |until| until.since(decided.at)),
            entry: decided.by_entry.map(|priority| Entry { quotas, priority }),
            quotas: quotas_of(set, shown).collect(),
        })
    }

    /// A rule that denies without counting: it has no key and no quotas.
    fn of_deny(matched: &DenyMatch<'a>) -> Self {
        Self {
            name: matched.rule.name(),
            tier: None,
            key: Vec::new(),
            result: matched.result.label(),
            cost: 0,
            is_enforced: matched.rule.is_enforced,
            blocked_until_ms: None,
            blocked_for: Span::ZERO,
            entry: None,
            quotas: Vec::new(),
        }
    }

    fn words_of_deny(&self) -> String {
        format!("{} (without a count): {}", self.name, self.result)
    }

    fn words(&self) -> String {
        let by = if self.key.is_empty() { "all requests".to_string() } else { self.key.join(", ") };
        let mut words = format!("{} ({by}): {}", self.name, self.result);
        if let Some(Entry { priority, .. }) = self.entry {
            let which =
                self.tier.map_or("quotas of its own".to_string(), |it| format!("tier {it}"));
            words.push_str(&format!(" by its tenant's entry ({which}, priority {priority})"));
        }
        if self.blocked_until_ms.is_some() {
            let left = self.blocked_for.as_secs_ceil();
            words.push_str(&format!("; an operator blocks the key for another {left} s"));
        }
        let quotas: Vec<String> = self.quotas.iter().map(Quota::words).collect();
        if !quotas.is_empty() {
            words.push_str("; ");
            words.push_str(&quotas.join(", "));
        }
        words
    }
}

impl<'a> Quota<'a> {
    /// The use of a quota by a key at a time.
    fn used(tier: Option<&'a str>, name: &'a str, used: &QuotaUse, at: Timestamp) -> Self {
        let numbers = Numbers::new(&used.limiter, &used.decision);
        let (until, penalty_step) = used.penalty.unzip();
        let penalty_left = until.map_or(Span::ZERO, |until| until.since(at));
        let penalty_until_ms = until.map(millis);
        let Holding { held, debt, in_flight } = used.holding;
        let debt = Some(debt);
        Self {
            tier,
            name,
            numbers,
            penalty_until_ms,
            penalty_step,
            penalty_left,
            held,
            debt,
            in_flight,
        }
    }

    fn words(&self) -> String {
        let Numbers { used, limit, remaining, retry_after_ms, .. } = self.numbers;
        let name = self.name;
        let again = retry_after_ms
            .map_or_else(String::new, |ms| format!(", again in {} s", ms.div_ceil(1_000)));
        let penalty = self.penalty_step.map_or_else(String::new, |step| {
            format!(", penalty {step} for another {} s", self.penalty_left.as_secs_ceil())
        });
        let shown = [(self.held, "held"), (self.debt, "above the capacity")];
        let shown = shown.into_iter().filter_map(|(units, what)| Some((units?, what)));
        let shown = shown.filter(|(units, _)| *units > 0);
        let shown: String = shown.map(|(units, what)| format!(", {units} {what}")).collect();
        // More may run than the limit allows: it was lowered, or they were confirmed too late.
        let (used, uses) = self.in_flight.map_or((used, "used"), |running| (running, "in flight"));
        format!("{name}: {used} of {limit} {uses}, {remaining} left{shown}{again}{penalty}")
    }
}

impl Numbers {
    fn new(limiter: &Limiter, decision: &Decision) -> Self {
        let quota = limiter.quota();
        // The units that an unused limiter allows at once.
        let capacity = quota.burst();
        Self {
            algorithm: limiter.counts_by(),
            limit: quota.limit(),
            window_ms: quota.window().as_millis_ceil(),
            used: capacity.saturating_sub(decision.remaining),
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after.map(Span::as_millis_ceil),
            reset_after_ms: decision.reset_after.as_millis_ceil(),
        }
    }
}

fn quotas_of<'a>(set: &'a QuotaSet, decisions: &[Decision]) -> impl Iterator<Item = Quota<'a>> {
    let each = set.quotas().iter().zip(decisions.to_vec());
    each.map(|(quota, decision)| Quota {
        tier: set.tier(),
        name: quota.name(),
        numbers: Numbers::new(quota.limiter(), &decision),
        penalty_until_ms: None,
        penalty_step: None,
        penalty_left: Span::ZERO,
        held: None,
        debt: None,
        in_flight: None,
    })
}

pub(crate) fn millis(at: Timestamp) -> u64 {
    at.since(Timestamp::ZERO).as_millis_ceil()
}
