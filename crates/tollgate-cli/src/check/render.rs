//! The report of `check` for people: one block per rule.
//!
//! Invariant: it shows only data of the report, and never a value that identifies a key.

use super::bill::Bill;
use super::report::{DenyReport, EntriesReport, QuotaReport, Report, RuleReport};
use crate::filter_modules;
use crate::output::{self, Page};
use crate::words;
use tollgate_report::bill::dollars;

/// The whole text.
pub(super) fn write(report: &Report, file: &str, out: &mut Page) {
    let count = report.rules.len().saturating_add(report.deny.len());
    let rules = if count == 1 { "rule" } else { "rules" };
    out.push_styled(output::GOOD, "good");
    out.push_str(&format!(" for {}: {count} {rules}\n", words::list(&report.surfaces)));
    for client in &report.client_ip {
        let name = client.surface;
        line(out, 0, "client", &format!("{name}: {}", client.source));
    }
    if let Some(manager) = &report.manager {
        line(out, 0, "manager", manager);
    }
    if let Some(slashes) = report.escaped_slashes {
        line(out, 0, "slashes", slashes);
    }
    if let Some(case) = report.path_case {
        line(out, 0, "paths", case);
    }
    if let Some(certificate) = &report.certificate {
        line(out, 0, "certificate", certificate);
    }
    if let Some(metadata) = &report.metadata {
        line(out, 0, "metadata", metadata);
    }
    if let Some(tenant) = &report.tenant {
        let whose = format!("{tenant}; an entry in the store may give it other quotas");
        line(out, 0, "tenant", &whose);
    }
    if let Some(entries) = &report.entries {
        line(out, 0, "entries", &entries_text(entries));
    }
    for exempt in &report.exempt {
        line(out, 0, "exempt", exempt);
    }
    for rule in &report.deny {
        out.push_str("\n");
        deny_text(rule, out);
    }
    for rule in &report.rules {
        out.push_str("\n");
        rule_text(rule, out);
    }
    modules_text(report, out);
    if let Some(bill) = &report.bill {
        out.push_str("\n");
        bill_text(bill, out);
    }
    if !report.warnings.is_empty() {
        out.push_str("\n");
    }
    for warning in &report.warnings {
        out.push_str(&warning.mark(file));
        out.push_styled(output::WARNING, "warning:");
        out.push_str(&format!(" {}\n", warning.words()));
    }
}

/// One line for each module of the filter for Envoy.
fn modules_text(report: &Report, out: &mut Page) {
    if !report.modules.is_empty() {
        out.push_str("\n");
        out.push_styled(output::HEADING, "module");
        out.push_str("\n");
    }
    for line in filter_modules::lines(&report.modules) {
        out.push_str(&format!("  {line}\n"));
    }
}

/// `3: 2 with a tier, 1 with quotas of its own, 1 that expires`
fn entries_text(entries: &EntriesReport) -> String {
    let EntriesReport { count, with_tier, with_own_quotas, expiring } = entries;
    format!(
        "{count} given: {with_tier} with a tier, {with_own_quotas} with quotas of their own, {expiring} that expire"
    )
}

fn deny_text(rule: &DenyReport, out: &mut Page) {
    out.push_styled(output::HEADING, &format!("rule \"{}\"", rule.name));
    out.push_str("\n");
    line(out, 2, "applies to", &rule.applies);
    line(out, 2, "denies", &rule.action);
    line(out, 2, "mode", rule.mode);
}

fn rule_text(rule: &RuleReport, out: &mut Page) {
    out.push_styled(output::HEADING, &format!("rule \"{}\"", rule.name));
    out.push_str("\n");
    line(out, 2, "applies to", &rule.applies);
    line(out, 2, "counts by", &rule.key);
    if let Some(on_missing) = rule.on_missing {
        line(out, 2, "without it", on_missing);
    }
    quota_lines(&rule.quotas, 2, out);
    for tier in &rule.tiers {
        out.push_str(&format!("  tier \"{}\" for {}\n", tier.name, tier.applies));
        quota_lines(&tier.quotas, 4, out);
    }
    if let Some(calendar) = &rule.calendar {
        line(out, 2, "calendar", calendar);
    }
    line(out, 2, "cost", &format!("{}, charged {}", rule.cost, rule.charge));
    line(out, 2, "over limit", &rule.action);
    line(out, 2, "mode", &rule.mode);
    if let Some(scope) = &rule.scope {
        line(out, 2, "scope", scope);
    }
    line(out, 2, "no state", rule.on_failure);
    if let Some(without_authority) = &rule.without_authority {
        line(out, 2, "unreached", without_authority);
    }
    memory_lines(rule, out);
}

fn quota_lines(quotas: &[QuotaReport], indent: usize, out: &mut Page) {
    for quota in quotas {
        let QuotaReport { name, words, bound, .. } = quota;
        let bound = if quota.limit == 0 { String::new() } else { format!("; {bound}") };
        line(out, indent, "quota", &format!("\"{name}\": {words}{bound}"));
    }
}

fn memory_lines(rule: &RuleReport, out: &mut Page) {
    let memory = &rule.memory;
    let shared = match memory.shared_with.as_slice() {
        [] => String::new(),
        others => format!(", shared with rule \"{}\"", others.join("\", \"")),
    };
    if memory.value_bytes == 0 {
        return line(out, 2, "value", "nothing is stored");
    }
    // An uncharged rule takes no memory.
    let most = if memory.sparse { "at most " } else { "" };
    let value = words::bytes(memory.value_bytes.try_into().unwrap_or(u64::MAX));
    if let Some(envoy) = &memory.envoy {
        let (key, table) = (words::bytes(envoy.bytes_per_key), words::bytes(envoy.table_bytes));
        let capacity = envoy.capacity;
        let text = format!("{most}{key} per key, {table} for {capacity} keys in Envoy{shared}");
        line(out, 2, "table", &text);
    }
    if let Some(worker) = &memory.worker {
        let durability = worker.durability;
        let shards = worker.shards.map(|n| format!(" and {n} shards that lease from it"));
        let shards = shards.unwrap_or_default();
        let text =
            format!("{value} per key in the Worker, one Durable Object each{shards}, {durability}");
        line(out, 2, "object", &text);
    }
    if memory.envoy.is_none() && memory.worker.is_none() {
        line(out, 2, "value", &format!("{most}{value} per key{shared}"));
    }
}

fn bill_text(bill: &Bill, out: &mut Page) {
    out.push_styled(output::HEADING, "a million requests");
    let on = bill.prices_read_on;
    out.push_str(&format!(" that every rule applies to, at prices of {on}\n"));
    for case in &bill.cases {
        let cost = dollars(case.micro_dollars);
        line(out, 2, &cost, &format!("{}: {}", case.what, case.words()));
    }
}

fn line(out: &mut Page, indent: usize, name: &str, text: &str) {
    out.push_str(&format!("{:indent$}{name:<12}{text}\n", ""));
}
