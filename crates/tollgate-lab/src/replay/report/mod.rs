//! The summary as a report for people.
//!
//! Invariant: the report contains the figures of the summary, and no others. Text of the log is
//! plain text here, and is escaped when it is rendered.

mod log;
mod suggested;

use tollgate_report::{Cell, Column, Figures, Kind, Report, Section, Table};

use crate::replay::summary::{
    ChangeCounts, Clients, Example, LimitedKey, PolicyComparison, QuotaSummary, RuleSummary,
    Summary, Tally, TopKeys, Waits,
};
use log::{log, seconds, timeline};
use suggested::suggested;

impl Summary {
    /// The report; `title` is its title.
    #[must_use]
    pub fn report(&self, title: &str) -> Report {
        let mut report = Report::new(title);
        self.overview(report.section(""));
        rules(report.section("Rules"), &self.rules);
        if !self.keys.top.is_empty() {
            keys(report.section("Limited most"), &self.keys);
        }
        if let Some(against) = &self.against {
            self.compared(report.section("Compared with the other policy"), against);
        }
        if let Some(suggestions) = &self.suggestions {
            suggested(report.section("Suggested limits"), suggestions);
        }
        timeline(report.section("Over time"), &self.timeline);
        log(report.section("Log"), &self.log, self.clients.requests_without);
        if !self.fail_if.is_empty() {
            self.bounds(report.section("Bounds"));
        }
        report.footer(concat!("tollgate replay ", env!("CARGO_PKG_VERSION")));
        report
    }

    fn overview(&self, section: &mut Section) {
        let Self { requests, clients, .. } = self;
        if let (Some(first), Some(last)) = (self.log.first, self.log.last) {
            let (first, last) = (seconds(first), seconds(last));
            section.text(format!("Requests from {first} to {last} UTC."));
        }
        let mut table = Table::new("overview", "What would have happened")
            .column(Column::text(""))
            .column(Column::count("requests"))
            .column(Column::share("of all"))
            .column(Column::count("clients"))
            .column(Column::share("of all clients"));
        for (kind, requests_of, clients_of) in kinds(requests, clients) {
            table.push([
                Cell::text(kind),
                Cell::Count(requests_of),
                Cell::share(requests_of, requests.total),
                Cell::Count(clients_of),
                Cell::share(clients_of, clients.total),
            ]);
        }
        section.table(table);
        if let Some(waits) = &self.waits {
            section.figures(wait_figures(waits));
        }
        for note in &self.notes {
            section.text(format!("Note: {note}."));
        }
    }

    fn compared(&self, section: &mut Section, against: &PolicyComparison) {
        let mut table = Table::new("against", "What changes")
            .column(Column::text("what"))
            .column(Column::count("newly limited"))
            .column(Column::count("no longer limited"))
            .column(Column::count("limited by both"));
        for (what, changed) in
            [("requests", against.changed_requests), ("clients", against.changed_clients)]
        {
            let ChangeCounts { newly_limited, no_longer_limited, both } = changed;
            table.push([
                Cell::text(what),
                Cell::Count(newly_limited),
                Cell::Count(no_longer_limited),
                Cell::Count(both),
            ]);
        }
        section.table(table);
        let mut table = Table::new("policies", "Requests and clients by policy")
            .column(Column::text("policy"))
            .column(Column::count("denied requests"))
            .column(Column::count("delayed requests"))
            .column(Column::count("denied clients"))
            .column(Column::count("delayed clients"));
        let both = [
            ("this policy", &self.requests, &self.clients),
            ("the other policy", &against.requests, &against.clients),
        ];
        for (policy, requests, clients) in both {
            table.push([
                Cell::text(policy),
                Cell::Count(requests.denied),
                Cell::Count(requests.delayed),
                Cell::Count(clients.denied),
                Cell::Count(clients.delayed),
            ]);
        }
        section.table(table);
        section.table(rule_table("other-rules", "Rules of the other policy", &against.rules));
        examples(section, "newly-limited", "Limited by this policy only", &against.newly_limited);
        let gone = &against.no_longer_limited;
        examples(section, "no-longer-limited", "Limited by the other policy only", gone);
    }

    fn bounds(&self, section: &mut Section) {
        let mut table = Table::new("fail-if", "Bounds of --fail-if")
            .column(Column::text("fails if"))
            .column(Column::text("result"))
            .column(Column::count("found"))
            .column(Column::count("of"));
        for checked in &self.fail_if {
            table.push([
                Cell::text(&checked.condition),
                Cell::text(if checked.fails { "FAILS" } else { "passes" }),
                Cell::Count(checked.found),
                Cell::Count(checked.of),
            ]);
        }
        section.table(table);
    }
}

/// The fates of requests and clients: each one that occurred, and always the denied ones.
fn kinds(requests: &Tally, clients: &Clients) -> Vec<(&'static str, u64, u64)> {
    let all = [
        ("all", requests.total, clients.total),
        ("denied", requests.denied, clients.denied),
        ("delayed", requests.delayed, clients.delayed),
        ("unreadable (400)", requests.unreadable, clients.unreadable),
        ("over the limit, marked", requests.marked, clients.marked),
        ("over the limit, not enforced", requests.shadowed, clients.shadowed),
    ];
    let is_shown = |kind: &str, many: u64| matches!(kind, "all" | "denied") || many > 0;
    all.into_iter().filter(|(kind, many, _)| is_shown(kind, *many)).collect()
}

fn wait_figures(waits: &Waits) -> Figures {
    let millis = |ms: u64| Cell::Duration(ms.saturating_mul(1_000_000));
    Figures::new("waits")
        .figure("requests that waited", Cell::Count(waits.waited), "")
        .figure("half of them at most", millis(waits.p50_ms), "")
        .figure("99 % of them at most", millis(waits.p99_ms), "")
        .figure("longest", millis(waits.max_ms), "")
}

fn rules(section: &mut Section, rules: &[RuleSummary]) {
    section.table(rule_table(
        "rules",
        "Decisions of each rule on the requests it applies to",
        rules,
    ));
    let mut table = Table::new("quotas", "Quotas that denied requests or delayed them")
        .column(Column::text("rule"))
        .column(Column::text("tier"))
        .column(Column::text("quota"))
        .column(Column::count("limit"))
        .column(Column::new("window", Kind::Duration))
        .column(Column::text("algorithm"))
        .column(Column::count("limited"));
    for rule in rules {
        for quota in &rule.quotas {
            table.push([
                Cell::text(&rule.name),
                tier(quota),
                Cell::text(&quota.name),
                Cell::Count(quota.limit),
                Cell::Duration(quota.window_ms.saturating_mul(1_000_000)),
                Cell::text(&quota.algorithm),
                Cell::Count(quota.limited),
            ]);
        }
    }
    section.table(table);
}

/// The columns of counts that are shown: those with a count above 0, and always the first.
struct Shown {
    names: [&'static str; 5],
    is_shown: [bool; 5],
}

impl Shown {
    fn new(names: [&'static str; 5], rows: &[[u64; 5]]) -> Self {
        let mut is_shown = [true, false, false, false, false];
        for row in rows {
            for (is_shown, count) in is_shown.iter_mut().zip(row) {
                *is_shown |= *count > 0;
            }
        }
        Self { names, is_shown }
    }

    fn columns(&self, mut table: Table) -> Table {
        for (name, is_shown) in self.names.iter().zip(self.is_shown) {
            if is_shown {
                table = table.column(Column::count(*name));
            }
        }
        table
    }

    fn cells(&self, row: [u64; 5]) -> impl Iterator<Item = Cell> {
        row.into_iter().zip(self.is_shown).filter(|(_, shown)| *shown).map(|(n, _)| Cell::Count(n))
    }
}

fn rule_table(name: &str, title: &str, rules: &[RuleSummary]) -> Table {
    let counts = |rule: &RuleSummary| {
        [rule.denied, rule.delayed, rule.marked, rule.shadowed, rule.malformed]
    };
    let rows: Vec<[u64; 5]> = rules.iter().map(counts).collect();
    let names = ["denied", "delayed", "marked", "not enforced", "unreadable"];
    let shown = Shown::new(names, &rows);
    let table =
        Table::new(name, title).column(Column::text("rule")).column(Column::count("allowed"));
    let mut table = shown
        .columns(table)
        .column(Column::count("limited keys"))
        .column(Column::new("first", Kind::Time))
        .column(Column::text("first key"));
    for (rule, row) in rules.iter().zip(rows) {
        let mut cells = vec![Cell::text(&rule.name), Cell::Count(rule.allowed)];
        cells.extend(shown.cells(row));
        cells.push(Cell::Count(rule.limited_keys));
        match &rule.first {
            Some(first) => cells.extend([Cell::Time(first.at.millis()), Cell::text(&first.key)]),
            None => cells.extend([Cell::Empty, Cell::Empty]),
        }
        table.push(cells);
    }
    table
}

/// The tier or the owner of a quota.
fn tier(quota: &QuotaSummary) -> Cell {
    match &quota.tier {
        _ if quota.of_tenants => Cell::text("(tenants' own)"),
        Some(tier) => Cell::text(tier),
        None => Cell::Empty,
    }
}

fn keys(section: &mut Section, keys: &TopKeys) {
    let counts = |key: &LimitedKey| [key.denied, key.delayed, key.marked, key.shadowed, key.error];
    let rows: Vec<[u64; 5]> = keys.top.iter().map(counts).collect();
    let names = ["denied", "delayed", "marked", "not enforced", "and at most this many more"];
    let shown = Shown::new(names, &rows);
    let table = Table::new("keys", "The most limited keys")
        .column(Column::text("key"))
        .column(Column::text("rule"));
    let mut table = shown
        .columns(table)
        .column(Column::new("first", Kind::Time))
        .column(Column::new("last", Kind::Time));
    for (key, row) in keys.top.iter().zip(rows) {
        let mut cells = vec![Cell::text(&key.key), Cell::text(&key.rule)];
        cells.extend(shown.cells(row));
        cells.extend([Cell::Time(key.first.millis()), Cell::Time(key.last.millis())]);
        table.push(cells);
    }
    section.table(table);
    if keys.error > 0 {
        section.text(format!(
            "More than {} keys were limited. A key that is not in this table was limited at most {} times.",
            keys.counted_at_most, keys.error
        ));
    }
}

fn examples(section: &mut Section, name: &str, title: &str, examples: &[Example]) {
    if examples.is_empty() {
        return;
    }
    let mut table = Table::new(name, title)
        .column(Column::new("at", Kind::Time))
        .column(Column::text("client"))
        .column(Column::text("request"));
    for Example { at, client, request } in examples {
        table.push([Cell::Time(at.millis()), Cell::text(client), Cell::text(request)]);
    }
    section.table(table);
}
