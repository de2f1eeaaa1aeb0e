//! Scales: from values to places in a picture, and the ticks of an axis.
//!
//! Invariant: a tick is at a round number of its unit, its label is exact, and it is within the
//! axis.
#![expect(clippy::float_arithmetic, reason = "plots, no decision")]

use crate::plot::Axis;
use crate::points::as_float;
use crate::table::Kind;
use crate::words;

/// A range of values on a range of places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Where `from` and `to` are drawn.
    pub(crate) places: (f64, f64),
}

impl Scale {
    /// Where a value is drawn. A value beyond the range is drawn at its edge.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let (low, high) = self.places;
        let part = (value - self.from) / (self.to - self.from);
        low + (high - low) * if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// A mark of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) label: String,
    /// Below the label: the day that begins here.
    pub(crate) day: Option<String>,
}

/// The distance of two ticks.
#[derive(Clone, Copy, Debug)]
struct Step {
    size: f64,
    decimals: usize,
}

/// Round numbers of seconds: of a minute, an hour, a day.
const SECONDS: [f64; 19] = [
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1_800.0,
    3_600.0,
    7_200.0,
    10_800.0,
    21_600.0,
    43_200.0,
    DAY,
    2.0 * DAY,
];
const DAY: f64 = 86_400.0;
/// More would make the axis unreadable.
const MOST_TICKS: u32 = 50;

/// At most `most` ticks, or one more, within `from` and `to`.
pub(crate) fn ticks(axis: &Axis, from: f64, to: f64, most: usize) -> Vec<Tick> {
    let least = (to - from) / as_float(most.max(1));
    if !(least.is_finite() && least > 0.0) {
        return vec![tick(axis, from, Step { size: 1.0, decimals: 0 }, None)];
    }
    let step = step(axis.kind, least);
    let first = (from / step.size).ceil();
    let mut out: Vec<Tick> = Vec::new();
    for index in 0..=MOST_TICKS {
        let at = (first + f64::from(index)) * step.size;
        if at > to + step.size * 1e-6 {
            break;
        }
        out.push(tick(axis, at, step, out.last().map(|tick| tick.at)));
    }
    out
}

/// The least round step that is not below `least`.
fn step(kind: Kind, least: f64) -> Step {
    match kind {
        Kind::Count => decimal(least.max(1.0), 1.0),
        Kind::Bytes => {
            let powers = (0..60).map(|_| 2.0).scan(0.5, |size, two: f64| {
                *size *= two;
                Some(*size)
            });
            let size = powers.into_iter().find(|size| *size >= least).unwrap_or(least);
            Step { size, decimals: 0 }
        }
        Kind::Duration => seconds(least),
        Kind::Time => {
            let step = seconds(least / 1e3);
            Step { size: (step.size * 1e3).max(1.0), ..step }
        }
        Kind::Share => {
            let percent = decimal(least * 100.0, 1.0);
            Step { size: percent.size / 100.0, ..percent }
        }
        Kind::Number | Kind::Change | Kind::Text => decimal(least, 1.0),
    }
}

fn seconds(least: f64) -> Step {
    if least < 1.0 {
        return decimal(least, 1.0);
    }
    let size = SECONDS.into_iter().find(|size| *size >= least);
    size.map_or_else(|| decimal(least, DAY), |size| Step { size, decimals: 0 })
}

/// 1, 2 or 5 times a power of ten, of a unit.
fn decimal(least: f64, unit: f64) -> Step {
    for exponent in -12_i32..=18 {
        for digit in ["1", "2", "5"] {
            // Parsed, not multiplied: 0.1 is then exactly the number that `0.1` denotes.
            let size = format!("{digit}e{exponent}").parse::<f64>().unwrap_or(1.0) * unit;
            if size >= least {
                let decimals = usize::try_from(exponent.saturating_neg()).unwrap_or(0);
                return Step { size, decimals };
            }
        }
    }
    Step { size: least, decimals: 0 }
}

fn tick(axis: &Axis, at: f64, step: Step, before: Option<f64>) -> Tick {
    let (label, day) = match axis.kind {
        Kind::Number | Kind::Change | Kind::Text => (words::number(at, step.decimals), None),
        Kind::Count | Kind::Bytes => (axis.cell(at).words(0), None),
        Kind::Share => (format!("{} %", words::number(at * 100.0, step.decimals)), None),
        Kind::Duration => (of_seconds(at, step), None),
        Kind::Time => of_time(axis, at, step, before),
    };
    Tick { at, label, day }
}

/// `0`, `30 s`, `60 s`; `0`, `1 min`; `0`, `6 h`: one unit for all ticks of an axis.
fn of_seconds(at: f64, step: Step) -> String {
    let units = [("d", DAY), ("h", 3_600.0), ("min", 60.0), ("s", 1.0)];
    let whole = |length: f64| step.size >= length && (step.size / length).fract() == 0.0;
    let unit = units.into_iter().find(|(_, length)| whole(*length));
    match unit {
        _ if at == 0.0 => "0".to_owned(),
        Some((name, length)) => format!("{} {name}", words::number(at / length, 0)),
        None if step.size < 0.1 => {
            format!("{} ms", words::number(at * 1e3, step.decimals.saturating_sub(3)))
        }
        None => format!("{} s", words::number(at, step.decimals)),
    }
}

/// `14:00`, and the day where it differs from that of the tick before.
fn of_time(axis: &Axis, at: f64, step: Step, before: Option<f64>) -> (String, Option<String>) {
    let split = |at: f64| {
        let words = axis.cell(at).words(0);
        words.split_once(' ').map(|(day, clock)| (day.to_owned(), clock.to_owned()))
    };
    let Some((day, clock)) = split(at) else { return (String::new(), None) };
    if step.size >= DAY * 1e3 {
        return (day, None);
    }
    let is_new = before.and_then(split).is_none_or(|(before, _)| before != day);
    let is_minutes = step.size >= 60_000.0;
    let clock = if is_minutes { clock.get(..5).unwrap_or(&clock).to_owned() } else { clock };
    (clock, is_new.then_some(day))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, from: f64, to: f64, most: usize) -> Vec<String> {
        ticks(axis, from, to, most).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round() {
        let count = Axis::count("");
        assert_eq!(labels(&count, 0.0, 43.0, 4), ["0", "20", "40"]);
        assert_eq!(labels(&count, 0.0, 2.1, 4), ["0", "1", "2"]);
        assert_eq!(labels(&count, 0.0, 61_000.0, 4), ["0", "20,000", "40,000", "60,000"]);
        let number = Axis::number("");
        assert_eq!(labels(&number, 0.0, 0.35, 4), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(labels(&number, -1.0, 1.0, 2), ["-1", "0", "1"]);
        assert_eq!(labels(&Axis::share(""), 0.0, 0.0034, 4), ["0.0 %", "0.1 %", "0.2 %", "0.3 %"]);
        assert_eq!(labels(&Axis::bytes(""), 0.0, 9_000.0, 3), ["0 bytes", "4.0 KiB", "8.0 KiB"]);
    }

    #[test]
    fn ticks_of_time_are_round_on_a_clock() {
        let time = Axis::duration("");
        assert_eq!(labels(&time, 0.0, 0.05, 5), ["0", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]);
        assert_eq!(labels(&time, 0.0, 1.5, 4), ["0", "0.5 s", "1.0 s", "1.5 s"]);
        assert_eq!(labels(&time, 0.0, 100.0, 4), ["0", "30 s", "60 s", "90 s"]);
        assert_eq!(labels(&time, 0.0, 600.0, 4), ["0", "5 min", "10 min"]);
        assert_eq!(labels(&time, 0.0, DAY, 5), ["0", "6 h", "12 h", "18 h", "24 h"]);
        assert_eq!(labels(&time, 0.0, 30.0 * DAY, 5), ["0", "10 d", "20 d", "30 d"]);
    }

    #[test]
    fn a_day_is_labelled_where_it_begins() {
        let noon = 807_235_200_000.0 + 12.0 * 3.6e6;
        let ticks = ticks(&Axis::time(""), noon, noon + DAY * 1e3, 4);
        let labels: Vec<_> =
            ticks.iter().map(|tick| (tick.label.as_str(), tick.day.as_deref())).collect();
        assert_eq!(
            labels,
            [
                ("12:00", Some("1995-08-01")),
                ("18:00", None),
                ("00:00", Some("1995-08-02")),
                ("06:00", None),
                ("12:00", None)
            ]
        );
    }

    #[test]
    fn an_axis_without_length_has_a_tick() {
        assert_eq!(labels(&Axis::count(""), 5.0, 5.0, 4), ["5"]);
        assert_eq!(labels(&Axis::number(""), 0.0, f64::INFINITY, 4).len(), 1);
        let huge = ticks(&Axis::number(""), -1e300, 1e300, 4);
        assert!(huge.len() <= 60);
        let scale = Scale { from: 5.0, to: 5.0, places: (10.0, 20.0) };
        assert_eq!(scale.at(5.0), 10.0);
        let scale = Scale { from: 0.0, to: 10.0, places: (100.0, 0.0) };
        assert_eq!((scale.at(2.5), scale.at(-1.0), scale.at(11.0)), (75.0, 100.0, 0.0));
    }
}
