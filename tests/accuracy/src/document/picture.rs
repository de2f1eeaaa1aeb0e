//! A picture of the causes of the algorithms' errors: a flood that begins just before the end of a
//! fixed window, and the units that each algorithm allows in the minute before every moment.

use crate::trace::{RequestGroup, admitted};
use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};
use tollgate_lab::simulator::WindowCount;
use tollgate_report::{Axis, Mark, Plot, Series, Shape, Theme};

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its path, from the root of the repository.
    pub path: &'static str,
    /// Its content.
    pub svg: String,
}

const LIMIT: u64 = 10;
const WINDOW: Span = Span::from_secs(60);
/// In seconds from the start of a fixed window: the start of the flood, and the length of the plot.
const FLOOD: (u64, u64) = (55, 140);
const SHOWN: [(&str, Algorithm); 4] = [
    ("fixed-window", Algorithm::FixedWindow),
    ("sliding-window", Algorithm::SlidingWindow),
    ("gcra", Algorithm::Gcra),
    ("sliding-log", Algorithm::SlidingLog),
];

/// The picture, light and dark.
#[must_use]
pub fn pictures() -> [Picture; 2] {
    let plot = plot();
    [
        Picture { path: "docs/accuracy-flood-light.svg", svg: plot.to_svg(Theme::Light) },
        Picture { path: "docs/accuracy-flood-dark.svg", svg: plot.to_svg(Theme::Dark) },
    ]
}

fn plot() -> Plot {
    let title = "Requests of the last 60 s that were let through, at a limit of 10";
    let (x, y) =
        (Axis::number("seconds since a fixed window began"), Axis::count("in the last 60 s"));
    let mut plot = Plot::new("flood", title, x, y)
        .describe(
            "A flood begins 55 s into a fixed window. fixed-window lets 20 through within 5 s; sliding-window and gcra \
             let 10 through at once and then one every 6 s, up to 20 and 19 in a minute; sliding-log never more than 10.",
        )
        .mark(Mark::level("limit", number(LIMIT)));
    for (name, algorithm) in SHOWN {
        plot = plot.series(Series::new(name, Shape::Step).points(points(algorithm)));
    }
    plot
}

/// The number allowed in the last window, each time that it changes.
fn points(algorithm: Algorithm) -> Vec<(f64, f64)> {
    let quota = Quota::new(LIMIT, WINDOW).expect("a quota of ours");
    let limiter = Limiter::new(algorithm, quota).expect("an algorithm that takes it");
    let (from, to) = FLOOD;
    let step = 100;
    let flood = (from * 1_000 / step..to * 1_000 / step).map(|index| index * step);
    let volley = |millis: u64| RequestGroup { at: Timestamp::from_millis(millis), units: 1 };
    let admitted = admitted(&limiter, &flood.map(volley).collect::<Vec<_>>());
    let mut count = WindowCount::new(WINDOW);
    let mut points = vec![(number(from - 5), 0.0)];
    for RequestGroup { at, units } in admitted {
        count.record(at, units);
        let now = u64::try_from(count.at(at)).expect("a small count");
        if points.last().is_none_or(|(_, last)| *last != number(now)) {
            points.push((seconds(at), number(now)));
        }
    }
    points.push((number(to), points.last().map_or(0.0, |(_, last)| *last)));
    points
}

/// As a coordinate.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).expect("a small number"))
}

fn seconds(at: Timestamp) -> f64 {
    number(at.as_nanos() / 1_000_000) / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards: the text under the picture.
    #[test]
    fn the_picture_shows_what_its_words_say() {
        let most = SHOWN.map(|(_, algorithm)| {
            points(algorithm).into_iter().fold(0.0, |most: f64, (_, count)| most.max(count))
        });
        assert_eq!(most.map(|most| most.to_string()), ["20", "20", "19", "10"]);
    }
}
