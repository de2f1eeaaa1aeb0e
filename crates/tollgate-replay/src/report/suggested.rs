//! What `--suggest` found, for people.
//!
//! Invariant: the same figures as in the suggestions.

use tollgate_report::{Cell, Column, Kind, Section, Table};

use crate::suggest::Suggestion;

pub(super) fn suggested(section: &mut Section, suggestions: &[Suggestion]) {
    let mut counts = Table::new("greatest", "The most that clients used in any one window")
        .column(Column::text("rule"))
        .column(Column::text("quota"))
        .column(Column::count("limit now"))
        .column(Column::new("window", Kind::Duration))
        .column(Column::count("clients"))
        .column(Column::count("half at most"))
        .column(Column::count("99 % at most"))
        .column(Column::count("99.9 % at most"))
        .column(Column::count("greatest"));
    let mut limits = Table::new("suggested", "Limits that touch at most so many clients")
        .column(Column::text("rule"))
        .column(Column::text("touches at most"))
        .column(Column::count("limit"))
        .column(Column::count("touched"))
        .column(Column::share("of clients"));
    let mut lines = Vec::new();
    for suggestion in suggestions {
        let greatest = suggestion.greatest;
        counts.push([
            Cell::text(named(suggestion)),
            Cell::text(&suggestion.quota),
            Cell::Count(suggestion.limit_now),
            Cell::Duration(suggestion.window_ms.saturating_mul(1_000_000)),
            Cell::Count(suggestion.clients),
            Cell::Count(greatest.p50),
            Cell::Count(greatest.p99),
            Cell::Count(greatest.p99_9),
            Cell::Count(greatest.max),
        ]);
        for limit in &suggestion.limits {
            let replayed = limit.replayed.as_ref();
            limits.push([
                Cell::text(named(suggestion)),
                Cell::text(format!("{} %", limit.wished_percent)),
                limit.limit.map_or(Cell::Empty, Cell::Count),
                replayed.map_or(Cell::Empty, |replayed| Cell::Count(replayed.touched)),
                replayed.map_or(Cell::Empty, |r| Cell::share(r.touched, r.of)),
            ]);
            let line = format!("{}: {}", named(suggestion), limit.line);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    section.table(counts).table(limits);
    if !lines.is_empty() {
        section.text("Quotas to put into the policy:").code(lines.join("\n"));
    }
}

/// `rule`, or `rule, tier gold`.
fn named(suggestion: &Suggestion) -> String {
    match &suggestion.tier {
        Some(tier) => format!("{}, tier {tier}", suggestion.rule),
        None => suggestion.rule.clone(),
    }
}
