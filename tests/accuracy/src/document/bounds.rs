//! The adversary's results, as tables.

use super::{Block, rows::grouped};
use crate::adversary::Goal;
use crate::bounds::{BoundSearch, HIGHEST_SMALL, SIXTY, SMALL_WINDOW};
use crate::subject::half;
use tollgate_report::{Cell, Column, Table};

/// A row of the table of small limits.
#[derive(PartialEq)]
struct Small {
    bound: &'static str,
    /// Found at the limits from 1 on; `None` where the core has no such limiter.
    found: Vec<Option<u64>>,
    /// At the highest limit.
    trace: String,
}

/// The full search at the limits 1 to 4: the best trace, and its units in one window.
#[must_use]
pub fn exhaustive(all: &[BoundSearch]) -> Block {
    let mut table =
        Table::new("bounds", "").column(Column::text("algorithm")).column(Column::text("bound"));
    for limit in 1..=HIGHEST_SMALL {
        table = table.column(Column::count(format!("limit {limit}")));
    }
    table = table.column(Column::text(format!("such a trace at limit {HIGHEST_SMALL}")));
    let highest =
        all.iter().filter(|one| is_shown(one) && one.subject.limiter.limit() == HIGHEST_SMALL);
    let rows = highest.map(|one| (named(one), small(one, all)));
    for (name, Small { bound, found, trace }) in grouped(rows) {
        let found = found.into_iter().map(|most| most.map_or(Cell::Empty, Cell::Count));
        let ends = [Cell::text(name), Cell::text(bound)].into_iter().chain(found);
        table.push(ends.chain([Cell::text(trace)]));
    }
    Block { name: "bounds", text: table.to_markdown() }
}

/// The best that climbing finds at 60 per minute.
#[must_use]
pub fn climbed(all: &[BoundSearch]) -> Block {
    let mut table = Table::new("climbing", "")
        .column(Column::text("algorithm"))
        .column(Column::text("bound"))
        .column(Column::count("is"))
        .column(Column::count("found"));
    let sixty = all.iter().filter(|one| one.subject.limiter.limit() == SIXTY);
    let row = |one: &BoundSearch| {
        (one.goal.bound_in_words(&one.subject.limiter), one.bound, one.attack.most)
    };
    for (name, (words, bound, found)) in grouped(sixty.map(|one| (named(one), row(one)))) {
        table.push([Cell::text(name), Cell::text(words), Cell::Count(bound), Cell::Count(found)]);
    }
    Block { name: "climbing", text: table.to_markdown() }
}

/// The extent of the searches when the whole document was made.
#[must_use]
pub fn deep(exhaustive: &[BoundSearch], climbed: &[BoundSearch]) -> Block {
    let states: usize = exhaustive.iter().map(|one| one.states).sum();
    let text = format!(
        "When this page was last written, {} limiters of limit 1 to {HIGHEST_SMALL} were searched whole, on all of these \
         clocks: {} million distinct states. {} limiters of 60 per minute and 7 per 10 s were climbed from eight \
         starts with 10,000 changes each. Every bound was reached, and none was passed.",
        exhaustive.len(),
        states / 1_000_000,
        climbed.len(),
    );
    Block { name: "deep", text }
}

/// The table has the default, half of the limit as burst, and strictness; the test has more.
fn is_shown(one: &BoundSearch) -> bool {
    let quota = one.subject.limiter.quota();
    quota.burst() == quota.limit() || quota.burst() == half(quota.limit())
}

fn named(one: &BoundSearch) -> String {
    match one.goal {
        Goal::Admissions => one.subject.name.clone(),
        Goal::Departures => format!("{}, when they go on", one.subject.name),
    }
}

fn small(highest: &BoundSearch, all: &[BoundSearch]) -> Small {
    let found = (1..=HIGHEST_SMALL).map(|limit| {
        let same = |one: &&BoundSearch| {
            let is_kind =
                one.subject.limiter.window() == SMALL_WINDOW && named(one) == named(highest);
            is_kind && one.subject.limiter.limit() == limit
        };
        all.iter().find(same).map(|one| one.attack.most)
    });
    let limiter = &highest.subject.limiter;
    let trace = highest.attack.simplest(limiter, highest.goal).to_string();
    Small { bound: highest.goal.bound_in_words(limiter), found: found.collect(), trace }
}
