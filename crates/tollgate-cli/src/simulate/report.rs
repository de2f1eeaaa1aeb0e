//! The report of a simulation for people: figures first, then their details.
//!
//! Invariant: every number comes from the table or the watch.

use tollgate_core::Span;
use tollgate_lab::simulator::{QuotaRow, Table};
use tollgate_report::{
    Axis, Cell, Column, Figures, Mark, Plot, Report, Section, Series, Shape, Table as Listing,
};

use super::setup::Setup;
use super::watch::{Bin, Step, Watch};
use crate::simulate::args::SimulateArgs;
use tollgate_policy::explain::words;

const QUOTAS: &str = "Quotas: the most admissions of one key in any window and at one instant; the bound is for one node with a correct clock";

/// The whole report.
pub(super) fn report(args: &SimulateArgs, setup: &Setup, table: &Table, watch: &Watch) -> Report {
    let mut report = Report::new(title(args, setup));
    let first = report.section("");
    if table.is_cut_short {
        first.text("Cut short: the traffic has more requests than one run may have (100,000,000).");
    }
    if table.given_up > 0 {
        let times = Cell::Count(table.given_up).to_words();
        first.text(format!(
            "{times} retries were dropped, because 1,000,000 retries were already pending."
        ));
    }
    for note in setup.notes() {
        first.text(format!("Note: {note}."));
    }
    first.figures(figures(table));
    if table.quotas.len() > 1 {
        first.table(quotas(setup, table));
    }
    if table.rules.len() > 1 {
        first.table(rules(table));
    }
    if setup.traffic_file.is_some() && table.sources.len() > 1 {
        first.table(sources(table));
    }
    if args.trace.is_some() {
        let heading = if watch.left_out { "The last requests" } else { "Requests" };
        report.section(heading).table(trace(watch));
    } else if watch.bins.len() > 1 {
        plots(report.section("Time line"), table, watch);
    }
    report.footer(format!("tollgate simulate {}, seed {}", env!("CARGO_PKG_VERSION"), args.seed));
    report
}

/// `100 requests by 4 workers against 10 per minute, gcra`
fn title(args: &SimulateArgs, setup: &Setup) -> String {
    let traffic = match &setup.traffic_file {
        Some(file) => format!("traffic of {file}"),
        None => {
            let SimulateArgs { requests, parallel, .. } = args;
            let requests = if *requests == 1 {
                "1 request".to_owned()
            } else {
                format!("{} requests", Cell::Count(*requests).to_words())
            };
            let workers = if *parallel == 1 {
                String::new()
            } else {
                format!(" by {} workers", Cell::Count(*parallel).to_words())
            };
            requests + &workers
        }
    };
    let limiters = setup.policy.quota_sets().iter().flat_map(|set| set.quotas());
    let policy = match (&setup.policy_file, limiters.map(|quota| quota.limiter()).next()) {
        (Some(file), _) => file.clone(),
        (None, Some(limiter)) => format!("{}; {}", words::quota(limiter), words::bound(limiter)),
        (None, None) => "nothing".to_owned(),
    };
    format!("{traffic} against {policy}")
}

fn figures(table: &Table) -> Figures {
    let share = |count: u64| {
        let cell = Cell::share(count, table.offered);
        if count > 0 { format!("{} of all", cell.to_words()) } else { String::new() }
    };
    let figures = Figures::new("summary")
        .figure("offered", Cell::Count(table.offered), "")
        .figure("admitted", Cell::Count(table.admitted), share(table.admitted))
        .figure("delayed", Cell::Count(table.delayed), share(table.delayed))
        .figure("denied", Cell::Count(table.denied), share(table.denied))
        .figure("false allow", Cell::Count(table.false_allow), "allowed where an exact log denies")
        .figure("false deny", Cell::Count(table.false_deny), "denied where an exact log allows");
    let worst = worst(table);
    let mut figures = figures
        .figure("most in any window", Cell::Count(table.most_admitted), worst)
        .figure("most at one instant", Cell::Count(table.burst), "");
    if table.delayed > 0 {
        let wait = |us: u64| Cell::Duration(us.saturating_mul(1_000));
        figures = figures
            .figure("wait, p50", wait(table.waits.p50_us), "of those delayed")
            .figure("wait, p99", wait(table.waits.p99_us), "")
            .figure("wait, longest", wait(table.waits.max_us), "");
    }
    figures = figures.figure("keys", Cell::Count(table.keys), "at most, at one time").figure(
        "state",
        Cell::Bytes(table.state_bytes),
        "at most, at one time",
    );
    if table.evictions > 0 {
        let note = format!("{} of them half used or more", table.evictions_half_used);
        figures = figures.figure("evictions", Cell::Count(table.evictions), note);
    }
    if table.lost_races > 0 {
        figures = figures.figure("lost races", Cell::Count(table.lost_races), "decided again");
    }
    figures
}

/// `of 10 per minute`: the quota of which the largest share was allowed. Quotas of other rules and
/// tiers may have the same name.
fn worst(table: &Table) -> String {
    let is_it =
        |row: &QuotaRow| (row.most_admitted, row.limit) == (table.most_admitted, table.limit);
    let worst = table.quotas.iter().find(|row| is_it(row));
    worst.map_or_else(String::new, |row| format!("of {}", how_much(row)))
}

/// `10 per minute`
fn how_much(row: &QuotaRow) -> String {
    if row.is_in_flight() {
        return format!("{} at the same time", row.limit);
    }
    let window = Span::from_nanos(row.window_us.saturating_mul(1_000));
    format!("{} per {}", row.limit, words::window(window))
}

fn quotas(setup: &Setup, table: &Table) -> Listing {
    let mut listing = Listing::new("quotas", QUOTAS)
        .column(Column::text("quota"))
        .column(Column::text("how much"))
        .column(Column::count("most"))
        .column(Column::count("bound"))
        .column(Column::count("at once"))
        .column(Column::bytes("state"));
    let limiters = setup.policy.quota_sets().iter().flat_map(|set| set.quotas());
    for (row, quota) in table.quotas.iter().zip(limiters) {
        let tier = row.tier.as_ref().map(|tier| format!(", tier {tier}")).unwrap_or_default();
        let limiter = quota.limiter();
        listing.push([
            Cell::text(format!("{}{tier}", row.name)),
            Cell::text(words::quota_with_source(quota)),
            Cell::Count(row.most_admitted),
            Cell::Count(if row.is_in_flight() { row.limit } else { limiter.max_in_window() }),
            Cell::Count(row.burst),
            Cell::Bytes(row.state_len),
        ]);
    }
    for row in table.quotas.iter().filter(|row| row.of_tenants) {
        listing.push([
            Cell::text(format!("{}, tenants' own", row.name)),
            Cell::text(format!("{}, {}", how_much(row), row.algorithm)),
            Cell::Count(row.most_admitted),
            Cell::Empty,
            Cell::Count(row.burst),
            Cell::Bytes(row.state_len),
        ]);
    }
    listing
}

fn rules(table: &Table) -> Listing {
    let mut listing =
        Listing::new("rules", "Rules: decisions on the requests that each applied to")
            .column(Column::text("rule"));
    let columns = ["allowed", "denied", "delayed", "marked", "shadowed", "failed", "malformed"];
    for name in columns {
        listing = listing.column(Column::count(name));
    }
    for row in &table.rules {
        let counts = [
            row.allowed,
            row.denied,
            row.delayed,
            row.marked,
            row.shadowed,
            row.failed,
            row.malformed,
        ];
        let name = [Cell::text(row.name.as_str())];
        listing.push(name.into_iter().chain(counts.map(Cell::Count)));
    }
    listing
}

fn sources(table: &Table) -> Listing {
    let mut listing =
        Listing::new("sources", "Sources of the traffic").column(Column::text("source"));
    for name in ["offered", "admitted", "delayed", "denied", "retries"] {
        listing = listing.column(Column::count(name));
    }
    for row in &table.sources {
        let counts = [row.offered, row.admitted, row.delayed, row.denied, row.retries];
        let name = [Cell::text(row.name.as_str())];
        listing.push(name.into_iter().chain(counts.map(Cell::Count)));
    }
    listing
}

/// A row per request; columns without content are left out.
fn trace(watch: &Watch) -> Listing {
    let has_waits = watch.trace.iter().any(|step| step.wait_us > 0);
    let has_nodes = watch.trace.iter().any(|step| step.node > 0);
    // As many digits as needed to distinguish the requests: none, three or six.
    let is_whole =
        |unit: u64| watch.trace.iter().all(|step| step.at_us.checked_rem(unit) == Some(0));
    let digits = if is_whole(1_000_000) {
        0
    } else if is_whole(1_000) {
        3
    } else {
        6
    };
    let duration = |us: u64| Cell::Duration(us.saturating_mul(1_000));
    type Written<'w> = (bool, Column, &'w dyn Fn(&Step) -> Cell);
    let text = |text: Option<&'static str>| text.map_or(Cell::Empty, Cell::text);
    let columns: [Written<'_>; 9] = [
        (true, Column::number("second").decimals(digits), &|step| {
            Cell::Number(seconds(step.at_us.saturating_mul(1_000)))
        }),
        (watch.has_clients, Column::count("client"), &|step| Cell::Count(step.client)),
        (has_nodes, Column::count("node"), &|step| {
            Cell::Count(u64::try_from(step.node).unwrap_or(u64::MAX))
        }),
        (true, Column::text("decision"), &|step| Cell::text(step.decision)),
        (has_waits, Column::duration("wait"), &|step| duration(step.wait_us)),
        (true, Column::count("remaining"), &|step| step.remaining.map_or(Cell::Empty, Cell::Count)),
        (true, Column::duration("retry after"), &|step| {
            step.retry_after_us.map_or(Cell::Empty, duration)
        }),
        (true, Column::text("exact log"), &|step| text(step.exact)),
        (true, Column::count("in the window"), &|step| {
            step.in_window.map_or(Cell::Empty, Cell::Count)
        }),
    ];
    let columns: Vec<Written<'_>> =
        columns.into_iter().filter(|(is_shown, ..)| *is_shown).collect();
    let mut listing = Listing::new("trace", "");
    for (_, column, _) in &columns {
        listing = listing.column(column.clone());
    }
    for step in &watch.trace {
        listing.push(columns.iter().map(|(_, _, cell)| cell(step)));
    }
    listing
}

#[expect(clippy::float_arithmetic, reason = "plots, no decision")]
fn plots(section: &mut Section, table: &Table, watch: &Watch) {
    let (bins, width_ns) = watch.time_line();
    let points = |value: fn(&Bin) -> Option<u64>| {
        let places = bins.iter().zip(0_u32..);
        places.filter_map(move |(bin, index)| {
            Some((f64::from(index) * seconds(width_ns), count(value(bin)?)))
        })
    };
    let axis = || Axis::duration("time since the start");
    let title = format!("Requests of {}", Cell::Duration(width_ns).to_words());
    let plot = Plot::new("timeline", title, axis(), Axis::count("requests"));
    let mut requests = plot.series(bars("admitted", points(|bin| Some(bin.admitted))));
    if table.delayed > 0 {
        let delayed = bars("delayed", points(|bin| Some(bin.delayed)));
        requests = requests.series(delayed.looks_like(2));
    }
    if table.denied > 0 {
        let denied = bars("denied", points(|bin| Some(bin.denied)));
        requests = requests.series(denied.looks_like(1));
    }
    section.plot(requests.stacked());
    // With several quotas the count is not always that of the quota with the most.
    if table.quotas.len() == 1 && table.limit > 0 {
        let title = "The most admissions of one key in the preceding window";
        // Before the first request there were no requests and no units.
        let most = [(0.0, 0.0)].into_iter().chain(points(|bin| bin.most));
        let most = Plot::new("window", title, axis(), Axis::count("requests in a window"))
            .series(Series::new("true count", Shape::Step).points(most))
            .mark(Mark::level("limit", count(table.limit)));
        section.plot(most);
    }
}

fn bars(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Series {
    Series::new(name, Shape::Bars).points(points)
}

#[expect(clippy::float_arithmetic, reason = "plots, no decision")]
fn seconds(nanos: u64) -> f64 {
    count(nanos) / 1e9
}

/// Rounded to the nearest number that a float holds.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "rounds to nearest")]
fn count(number: u64) -> f64 {
    number as f64
}
