//! One request in full: the response to its client, and the reasons.
//!
//! Invariant: the same run decides it again, so it is the run's own decision.

use serde::Serialize;
use tollgate_core::Span;
use tollgate_lab::simulator::{Fate, ObservedDecision, RuleDecision, START};
use tollgate_policy::explain::words;
use tollgate_policy::{DenyMatch, Facts};

use crate::bins::RequestEvent;
use crate::watch::ended;

/// The data that the page shows of the request under the cursor.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RequestDetails {
    /// How many requests came before it.
    pub(crate) index: u64,
    /// When it came, in milliseconds since the beginning, with a fraction.
    at_ms: f64,
    /// The address of its client.
    client: String,
    method: String,
    target: String,
    /// How often its client was denied before it came again.
    attempt: u64,
    /// `admitted`, `delayed` or `denied`.
    fate: &'static str,
    /// How long the response waited, in milliseconds, rounded up.
    wait_ms: u64,
    status: u16,
    /// Names and values, as on a surface.
    fields: Vec<(String, String)>,
    /// Empty when the origin responds.
    body: String,
    /// Sentences, one for each rule and each of its quotas.
    why: Vec<String>,
}

/// The data of a request that has ended; `None` while it waits in a line.
pub(crate) fn request_details(
    index: u64,
    seen: &ObservedDecision<'_>,
    facts: &impl Facts,
) -> Option<RequestDetails> {
    let (counted, leaves_at) = ended(seen);
    let (decided, outcome) = (seen.decided, seen.decided.outcome());
    let (fate, status) = match (counted?, decided.fate()) {
        (_, Fate::Denied { status, .. }) => ("denied", status),
        (RequestEvent::Delayed, _) => ("delayed", 200),
        _ => ("admitted", 200),
    };
    let mut fields = Vec::new();
    outcome.headers(&mut |name, value| fields.push((name.to_owned(), value.to_owned())));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_denied = fate == "denied";
    Some(RequestDetails {
        index,
        at_ms: millis(seen.request.at.since(START)),
        client: seen.request.address().to_string(),
        method: text(&facts.method()),
        target: text(&facts.target()),
        attempt: seen.request.attempt,
        fate,
        wait_ms: leaves_at.since(seen.request.at).as_millis_ceil(),
        status,
        fields,
        body: if is_denied { outcome.body() } else { String::new() },
        why: why(seen, facts),
    })
}

fn why(seen: &ObservedDecision<'_>, facts: &impl Facts) -> Vec<String> {
    let policy = seen.decided.policy();
    let mut sentences = Vec::new();
    let matches: Vec<DenyMatch<'_>> = seen.decided.deny_matches().collect();
    for (i, (rule, applies)) in
        policy.deny_rules().iter().zip(policy.explain().deny_applicability(facts)).enumerate()
    {
        let name = rule.name();
        sentences.push(match matches.iter().find(|matched| matched.index == i) {
            Some(matched) => {
                format!("rule \"{name}\", without a count: {}", matched.result.label())
            }
            None => {
                let reason = words::reason(&applies);
                let reason = reason.unwrap_or_else(|| "it was not evaluated".to_owned());
                format!("rule \"{name}\" does not apply: {reason}")
            }
        });
    }
    let decisions: Vec<RuleDecision<'_>> = seen.decided.rules().collect();
    for (i, (rule, applies)) in
        policy.rules().iter().zip(policy.explain().applicability(facts)).enumerate()
    {
        let name = rule.name();
        let Some(decision) = decisions.iter().find(|it| it.rule == i) else {
            let reason =
                words::reason(&applies).unwrap_or_else(|| "it was not evaluated".to_owned());
            sentences.push(format!("rule \"{name}\" does not apply: {reason}"));
            continue;
        };
        let key = policy.explain().rule(i).map(|words| words.key).unwrap_or_default();
        let tier = policy.quota_sets().get(decision.quota_set).and_then(|set| set.tier());
        let tier = tier.map(|tier| format!(", tier \"{tier}\"")).unwrap_or_default();
        let binds = if decision.is_binding { "" } else { ", which does not stop the request" };
        let result = decision.result.label();
        sentences.push(format!("rule \"{name}\"{tier}, counted by {key}: {result}{binds}"));
        for (quota, of_quota) in decision.quotas() {
            let words = words::decision(of_quota, quota.limiter());
            sentences.push(format!("quota \"{}\" {words}", quota.name()));
        }
    }
    sentences
}

/// Exact to the nanosecond for runs of a hundred days.
#[expect(clippy::as_conversions, clippy::float_arithmetic, reason = "shown, and never decided by")]
fn millis(since: Span) -> f64 {
    since.as_nanos() as f64 / 1e6
}
