//! The report of `explain` for people.
//!
//! Invariant: it shows only data of the report.

use super::report::{DenyReport, EarlierDecisions, EntryReport, Report, RuleReport, VerdictReport};
use crate::output::{self, Page};

/// The whole text.
pub(super) fn write(report: &Report, out: &mut Page) {
    for assumed in &report.assumed {
        line(out, 0, "assumed", assumed);
    }
    let client = report.client.map_or("unknown; set it with --ip".to_owned(), |ip| ip.to_string());
    line(out, 0, "client", &client);
    if report.paths.len() > 1 {
        line(out, 0, "path", &format!("servers read {}", report.paths.join(" or ")));
    }
    if let Some(tenant) = &report.tenant {
        line(out, 0, "tenant", &format!("{}; {}", tenant.escape_debug(), entry(report)));
    }
    if report.request > 1 {
        line(out, 0, "request", &number(report));
    }
    for rule in &report.deny {
        deny_text(rule, out);
    }
    for rule in &report.rules {
        rule_text(rule, out);
    }
    let style = match report.decision.answer {
        "pass" => output::GOOD,
        "refuse" => output::BAD,
        _ => output::WARNING,
    };
    out.push_str("decision  ");
    out.push_styled(style, &report.decision.words);
    out.push_str("\n");
    answer_text(report, out);
    for (name, value) in &report.origin_headers {
        line(out, 0, "to origin", &format!("{name}: {value}"));
    }
}

/// The known facts about the tenant's entry.
fn entry(report: &Report) -> String {
    match &report.entry {
        Some(EntryReport { file, line, in_force: true, .. }) => {
            format!("its entry is at {file}:{line}")
        }
        Some(EntryReport { file, line, .. }) => {
            format!("its entry at {file}:{line} has expired at the time of the request")
        }
        None if report.has_entries => "without an entry".to_owned(),
        None => "decided without its entry, which is in a store".to_owned(),
    }
}

/// `number 11; before it: 10 allowed`, and whether these are still in flight.
fn number(report: &Report) -> String {
    let (count, EarlierDecisions { passed, delayed, waiting, refused }) =
        (report.request, &report.before);
    let counts = [
        (passed, "allowed"),
        (delayed, "allowed after a wait"),
        (waiting, "waiting"),
        (refused, "denied"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| **count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let is_any_allowed = passed.saturating_add(*delayed) > 0;
    let in_flight = match report.counts_in_flight && is_any_allowed {
        true => "; those allowed are still in flight",
        false => "",
    };
    format!("number {count}; before it: {}{in_flight}", counts.join(", "))
}

fn deny_text(rule: &DenyReport, out: &mut Page) {
    let name = &rule.name;
    if let Some(result) = rule.result {
        out.push_str(&format!("rule \"{name}\" applies: {result}, without a count\n"));
        line(out, 2, "for", &rule.is_for);
    } else {
        let reason = rule.reason.as_deref().unwrap_or("it was not evaluated");
        out.push_str(&format!("rule \"{name}\" does not apply: {reason}\n"));
    }
}

fn rule_text(rule: &RuleReport, out: &mut Page) {
    let name = &rule.name;
    match (&rule.verdict, &rule.reason) {
        (Some(verdict), _) => {
            out.push_str(&format!("rule \"{name}\" applies: {}\n", verdict.result));
            verdict_text(verdict, out);
        }
        (None, Some(reason)) => {
            out.push_str(&format!("rule \"{name}\" does not apply: {reason}\n"))
        }
        (None, None) => out.push_str(&format!(
            "rule \"{name}\" is not evaluated: the request is denied before anything is counted\n"
        )),
    }
}

fn verdict_text(verdict: &VerdictReport, out: &mut Page) {
    if let Some(tier) = &verdict.tier {
        let by = if verdict.entry.is_some() { ", by the tenant's entry" } else { "" };
        line(out, 2, "tier", &format!("\"{tier}\"{by}"));
    } else if verdict.entry.is_some() {
        line(out, 2, "quotas", "the tenant's own");
    }
    let missing = verdict.malformed.unwrap_or("a part is missing");
    let hash = verdict.key_hash.as_deref().unwrap_or(missing);
    if verdict.quotas.iter().all(|quota| quota.burst > 0) {
        line(out, 2, "key", &format!("{}: {hash}", verdict.key));
    }
    if verdict.malformed.is_some() {
        // Nothing is charged.
    } else if verdict.cost != 1 || verdict.charged != "when a request is allowed" {
        line(out, 2, "cost", &format!("{}, charged {}", verdict.cost, verdict.charged));
    }
    if verdict.chosen_in_secret {
        let note = "a secret of the surface chooses the keys for which it is enforced; shown for a key that is one of them";
        line(out, 2, "mode", note);
    }
    if !verdict.enforced {
        line(
            out,
            2,
            "mode",
            "not enforced for this key: counted only, and the response does not show it",
        );
    }
    if let Some(priority) = verdict.priority {
        let note = if priority == 1 { ", allowed first" } else { "" };
        line(out, 2, "in line", &format!("priority {priority}{note}"));
    }
    for quota in &verdict.quotas {
        line(out, 2, "quota", &format!("\"{}\" {}", quota.name, quota.words));
        if let Some(limit) = &quota.limit_from {
            line(out, 2, "limit", limit);
        }
    }
}

fn answer_text(report: &Report, out: &mut Page) {
    let headers = report.headers.iter().map(|(name, value)| format!("{name}: {value}"));
    match report.decision.status {
        None => headers.for_each(|header| line(out, 0, "add", &header)),
        Some(status) => {
            line(out, 0, "status", &status.to_string());
            headers.for_each(|header| line(out, 0, "header", &header));
            let body = report.body.as_deref().unwrap_or_default().trim_end();
            if !body.is_empty() {
                line(out, 0, "body", body);
            }
        }
    }
}

fn line(out: &mut Page, indent: usize, name: &str, text: &str) {
    let width = 10_usize.saturating_sub(indent);
    out.push_str(&format!("{:indent$}{name:<width$}{text}\n", ""));
}
