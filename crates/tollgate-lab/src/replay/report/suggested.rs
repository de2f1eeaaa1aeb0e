//! The results of `--suggest`, for people.
//!
//! Invariant: the same figures as in the suggestions.

use tollgate_report::{Cell, Column, Kind, Section, Table};

use crate::replay::suggest::{Gap, HeavyClient, InParts, Sample, Suggestion};

pub(super) fn suggested(section: &mut Section, suggestions: &[Suggestion]) {
    let (mut counts, mut limits) = (counts_table(), limits_table());
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
        }
    }
    section.table(counts);
    section.table(curve_table(suggestions));
    for suggestion in suggestions {
        section.text(gap_in_words(suggestion));
        let line = suggestion.gap.as_ref().and_then(|gap| gap.line.as_ref());
        if let Some(line) = line {
            section.text("The quota in the middle of the gap:").code(line);
        }
    }
    section.table(heaviest_table(suggestions)).table(limits);
    for suggestion in suggestions {
        for note in notes(suggestion) {
            section.text(note);
        }
        let lines = suggestion.limits.iter().filter(|limit| limit.limit.is_some());
        let mut lines: Vec<&str> = lines.map(|limit| limit.line.as_str()).collect();
        lines.dedup();
        if !lines.is_empty() {
            let name = named(suggestion);
            section.text(format!("{name}, quotas to put into the policy:")).code(lines.join("\n"));
        }
    }
}

fn counts_table() -> Table {
    Table::new("greatest", "The most units of a client in any one window")
        .column(Column::text("rule"))
        .column(Column::text("quota"))
        .column(Column::count("limit now"))
        .column(Column::new("window", Kind::Duration))
        .column(Column::count("clients"))
        .column(Column::count("half at most"))
        .column(Column::count("99 % at most"))
        .column(Column::count("99.9 % at most"))
        .column(Column::count("greatest"))
}

/// The effect of every limit, from one that half of the clients keep to one that all keep.
fn curve_table(suggestions: &[Suggestion]) -> Table {
    let mut table = Table::new("curve", "The effect of each limit alone")
        .column(Column::text("rule"))
        .column(Column::text("quota"))
        .column(Column::count("limit"))
        .column(Column::count("clients over it"))
        .column(Column::count("clients denied"))
        .column(Column::share("of clients"))
        .column(Column::count("requests denied"))
        .column(Column::share("of requests"));
    for suggestion in suggestions {
        let clients = suggestion.sample.map_or(suggestion.clients, |sample| sample.keys);
        for step in &suggestion.curve {
            let replayed = step.replayed.as_ref();
            table.push([
                Cell::text(named(suggestion)),
                Cell::text(&suggestion.quota),
                Cell::Count(step.limit),
                Cell::Count(step.exceed),
                replayed.map_or(Cell::Empty, |r| Cell::Count(r.clients)),
                replayed.map_or(Cell::Empty, |r| Cell::share(r.clients, clients)),
                replayed.map_or(Cell::Empty, |r| Cell::Count(r.requests)),
                replayed.map_or(Cell::Empty, |r| Cell::share(r.requests, suggestion.requests)),
            ]);
        }
    }
    table
}

fn heaviest_table(suggestions: &[Suggestion]) -> Table {
    let mut table = Table::new("heaviest", "The heaviest clients, limited or not")
        .column(Column::text("rule"))
        .column(Column::text("quota"))
        .column(Column::text("client"))
        .column(Column::count("most in a window"))
        .column(Column::count("requests"))
        .column(Column::count("limited now"));
    for suggestion in suggestions {
        for HeavyClient { key, greatest, requests, limited } in &suggestion.heaviest {
            table.push([
                Cell::text(named(suggestion)),
                Cell::text(&suggestion.quota),
                Cell::text(key),
                Cell::Count(*greatest),
                requests.map_or(Cell::Empty, Cell::Count),
                limited.map_or(Cell::Empty, Cell::Count),
            ]);
        }
    }
    table
}

/// Describes the range in which the choice of a limit has little effect.
fn gap_in_words(suggestion: &Suggestion) -> String {
    let name = named(suggestion);
    let Some(Gap { from, to, clients, is_replayed, .. }) = &suggestion.gap else {
        return format!(
            "{name}: no wide gap between the clients' counts; every limit is a choice of which clients it affects."
        );
    };
    let clients = match clients {
        1 => "1 client".to_owned(),
        many => format!("{many} clients"),
    };
    if *is_replayed {
        format!("{name}: between {from} and {to}, any limit here denies the same {clients}.")
    } else {
        format!(
            "{name}: between {from} and {to}, any limit here is exceeded by the same {clients}."
        )
    }
}

fn limits_table() -> Table {
    Table::new("suggested", "Limits that affect at most this many clients")
        .column(Column::text("rule"))
        .column(Column::text("affects at most"))
        .column(Column::count("by counts"))
        .column(Column::count("limit"))
        .column(Column::count("affected"))
        .column(Column::share("of clients"))
}

/// The caveats of the figures: the clients they leave out, and their inaccuracies.
fn notes(suggestion: &Suggestion) -> Vec<String> {
    let (name, mut notes) = (named(suggestion), Vec::new());
    if !suggestion.per_client {
        notes.push(format!("{name}: one count for all requests, so no limit is suggested."));
    }
    if let Some(Sample { one_in, keys, max }) = suggestion.sample {
        notes.push(format!(
            "{name}: too many clients to count each; one of {one_in} was counted, {keys} in all, and the shares are of those. The greatest count among them is {max}; no client used more than {}.",
            suggestion.greatest.max
        ));
    }
    if let Some(InParts { keys, part_ns }) = suggestion.in_parts {
        notes.push(format!(
            "{name}: {keys} clients had more than 4,096 requests in one window; theirs are counts of a window longer by {part_ns} ns, never below the true ones."
        ));
    }
    if suggestion.strangers > 0 {
        notes.push(format!(
            "{name}: the log changed while it was read: {} requests of the second reading are of clients that the first reading did not contain.",
            suggestion.strangers
        ));
    }
    for limit in &suggestion.limits {
        let wished = &limit.wished_percent;
        match &limit.replayed {
            _ if limit.limit.is_none() => {
                notes.push(format!("{name}: no quota for {wished} %: {}.", limit.line));
            }
            Some(replayed) if !replayed.as_wished => notes.push(format!(
                "{name}: even the highest limit that was tried affects more than {wished} %."
            )),
            Some(_) => {}
            None => notes.push(format!(
                "{name}: the limit for {wished} % was not tried; its share comes from the counts alone."
            )),
        }
    }
    notes
}

/// `rule`, or `rule, tier gold`.
fn named(suggestion: &Suggestion) -> String {
    match &suggestion.tier {
        Some(tier) => format!("{}, tier {tier}", suggestion.rule),
        None => suggestion.rule.clone(),
    }
}
