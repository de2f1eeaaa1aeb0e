//! The timeline and the statistics of the log, as report sections.
//!
//! Invariant: everything in a plot is in its table, too.
#![expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "plots, no decision")]

use tollgate_report::{Axis, Cell, Column, Figures, Plot, Section, Series, Shape, Table};

use crate::replay::summary::{Bin, LogSummary, Timeline};
use crate::replay::time::Moment;

pub(super) fn timeline(section: &mut Section, timeline: &Timeline) {
    let series = |name: &str, of: fn(&Bin) -> u64| {
        let point = |bin: &Bin| (bin.at.millis() as f64, of(bin) as f64);
        Series::new(name, Shape::Step).points(timeline.bins.iter().map(point))
    };
    let total: u64 = timeline.bins.iter().map(|bin| bin.total).fold(0, u64::saturating_add);
    let busiest = timeline.bins.iter().max_by_key(|bin| bin.total);
    let worst = timeline.bins.iter().filter(|bin| bin.denied > 0).max_by_key(|bin| bin.denied);
    let mut words = format!("{total} requests in {} bins", timeline.bins.len());
    if let Some(busiest) = busiest {
        words.push_str(&format!("; the most, {}, from {}", busiest.total, seconds(busiest.at)));
    }
    match worst {
        Some(worst) => {
            words.push_str(&format!(
                "; most denied, {}, from {}.",
                worst.denied,
                seconds(worst.at)
            ));
        }
        None => words.push_str("; none denied."),
    }
    let title = format!("Requests in each {}", length(timeline.bin_seconds));
    let plot = Plot::new("timeline", title, Axis::time("time (UTC)"), Axis::count("requests"))
        .describe(words)
        .series(series("requests", |bin| bin.total))
        .series(series("denied", |bin| bin.denied));
    let is_any = |of: fn(&Bin) -> u64| timeline.bins.iter().any(|bin| of(bin) > 0);
    let plot = match is_any(|bin| bin.delayed) {
        true => plot.series(series("delayed", |bin| bin.delayed)),
        false => plot,
    };
    let plot = match is_any(|bin| bin.over) {
        true => plot.series(series("over, not denied", |bin| bin.over)),
        false => plot,
    };
    section.plot(plot);
}

pub(super) fn log(section: &mut Section, log: &LogSummary, without_client: u64) {
    // A bound is at most one day.
    let bound = match log.most_late_ms {
        ..=86_400_000 => format!("left out; --out-of-order {}ms keeps them", log.most_late_ms),
        _ => "left out".to_owned(),
    };
    let rows = [
        ("lines", log.lines, ""),
        ("could not be read", log.unparsable, ""),
        ("without a client", without_client, "their client is unknown"),
        ("already denied (429, 503)", log.already_refused, "not replayed"),
        ("outside --since and --until", log.outside, "not replayed"),
        ("out of order", log.out_of_order, "sorted"),
        ("too far out of order", log.late, bound.as_str()),
        ("seconds given early", log.hurried_seconds, "too many lines to hold in memory"),
        ("crowded seconds", log.crowded_seconds, "too many lines to spread over the second"),
        ("a day ahead of their neighbours", log.ahead, "left out"),
    ];
    let mut figures = Figures::new("log");
    for (label, count, note) in rows {
        if count > 0 || label == "lines" || label == "could not be read" {
            figures = figures.figure(label, Cell::Count(count), if count > 0 { note } else { "" });
        }
    }
    section.figures(figures);
    for damage in &log.damaged {
        section.text(format!("{} breaks off: {}.", damage.log, damage.message));
    }
    if log.causes.is_empty() {
        return;
    }
    let mut table = Table::new("unparsable", "Lines that could not be read")
        .column(Column::text("cause"))
        .column(Column::count("lines"))
        .column(Column::count("line"))
        .column(Column::text("begins with"));
    for cause in &log.causes {
        for sample in &cause.samples {
            table.push([
                Cell::text(&cause.cause),
                Cell::Count(cause.lines),
                Cell::Count(sample.line),
                Cell::text(&sample.text),
            ]);
        }
    }
    section.table(table);
}

/// `1995-08-01 06:00:00`.
pub(super) fn seconds(at: Moment) -> String {
    at.to_string().get(..19).unwrap_or_default().replace('T', " ")
}

/// A number of seconds in words: `5 minutes`.
fn length(seconds: u64) -> String {
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    let whole = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "second"));
    match seconds.checked_div(unit).unwrap_or(seconds) {
        1 => name.to_owned(),
        many => format!("{many} {name}s"),
    }
}
