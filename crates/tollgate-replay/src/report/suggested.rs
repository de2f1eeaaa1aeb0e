//! What `--suggest` found, for people.
//!
//! Invariant: the same figures as in the suggestions.

use tollgate_report::{Cell, Column, Kind, Section, Table};

use crate::suggest::{InParts, Sample, Suggestion};

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
        .column(Column::count("by counts"))
        .column(Column::count("limit"))
        .column(Column::count("touched"))
        .column(Column::share("of clients"));
    let (mut lines, mut quotas, mut said) = (Vec::new(), Vec::new(), Vec::new());
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
                Cell::Count(limit.counted),
                limit.limit.map_or(Cell::Empty, Cell::Count),
                replayed.map_or(Cell::Empty, |replayed| Cell::Count(replayed.touched)),
                replayed.map_or(Cell::Empty, |r| Cell::share(r.touched, r.of)),
            ]);
            match limit.limit {
                Some(_) => lines.push(limit.line.clone()),
                None => said.push(format!(
                    "{}: no quota for {} %: {}.",
                    named(suggestion),
                    limit.wished_percent,
                    limit.line
                )),
            }
        }
        lines.dedup();
        if !lines.is_empty() {
            quotas.push((named(suggestion), lines.join("\n")));
            lines.clear();
        }
        notes(suggestion, &mut said);
    }
    section.table(counts).table(limits);
    said.iter().for_each(|note| {
        section.text(note);
    });
    for (name, lines) in quotas {
        section.text(format!("{name}, quotas to put into the policy:")).code(lines);
    }
}

/// What must be known of the figures: whom they leave out, and what they could not be.
fn notes(suggestion: &Suggestion, said: &mut Vec<String>) {
    let name = named(suggestion);
    if !suggestion.per_client {
        said.push(format!("{name}: one count for all requests, so no limit is suggested."));
    }
    if let Some(Sample { one_in, keys, max }) = suggestion.sample {
        said.push(format!(
            "{name}: too many clients to count each; one of {one_in} was counted, {keys} in all, and the shares are theirs. The greatest of those is {max}; nobody used more than {}.",
            suggestion.greatest.max
        ));
    }
    if let Some(InParts { keys, part_ns }) = suggestion.in_parts {
        said.push(format!(
            "{name}: {keys} clients had more than 4,096 requests in one window; theirs are counts of a window longer by {part_ns} ns, never below the true ones."
        ));
    }
    if suggestion.strangers > 0 {
        said.push(format!(
            "{name}: the log changed while it was read: {} requests of the second reading are of clients that the first had not.",
            suggestion.strangers
        ));
    }
    for limit in suggestion.limits.iter().filter(|limit| limit.limit.is_some()) {
        match &limit.replayed {
            Some(replayed) if !replayed.as_wished => said.push(format!(
                "{name}: even at the highest limit that was tried more than {} % are touched.",
                limit.wished_percent
            )),
            Some(_) => {}
            None => said.push(format!(
                "{name}: the limit for {} % was not tried; it is what was counted.",
                limit.wished_percent
            )),
        }
    }
}

/// `rule`, or `rule, tier gold`.
fn named(suggestion: &Suggestion) -> String {
    match &suggestion.tier {
        Some(tier) => format!("{}, tier {tier}", suggestion.rule),
        None => suggestion.rule.clone(),
    }
}
