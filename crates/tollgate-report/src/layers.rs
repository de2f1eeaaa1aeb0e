//! The drawn form of each series: its points, stacked if requested, as paths.
//!
//! Invariant: the greatest and the least value of each stretch of two pixels are drawn.
#![expect(clippy::float_arithmetic, reason = "plots, no decision")]

use std::fmt::Write as _;

use crate::palette::SERIES;
use crate::plot::{Plot, Series, Shape};
use crate::points::{Point, decimated};
use crate::scale::Scale;

/// A series with the points at which it is drawn.
pub(crate) struct Layer<'p> {
    pub(crate) series: &'p Series,
    /// The number of its colour, dashes, form and pattern.
    pub(crate) look: usize,
    pub(crate) points: Vec<Point>,
    /// Where the last bar ends, or the last step.
    pub(crate) end: f64,
}

/// The scales of a picture.
#[derive(Clone, Copy)]
pub(crate) struct Scales {
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    /// Stretches of two pixels from left to right.
    pub(crate) stretches: usize,
}

/// The layers of a plot, in the order of its series.
pub(crate) fn layers(plot: &Plot) -> Vec<Layer<'_>> {
    let mut points: Vec<Vec<Point>> = plot.series.iter().map(|s| s.points.sorted()).collect();
    let ends: Vec<f64> =
        plot.series.iter().zip(&points).map(|(s, points)| end(s, points)).collect();
    let all_end = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if plot.is_stacked {
        points = stacked(plot, &points);
    }
    let series = plot.series.iter().zip(points).zip(ends).enumerate();
    series
        .map(|(index, ((series, points), end))| {
            // Steps hold until the plot ends; bars end where they end.
            let end = if series.shape == Shape::Bars { end } else { all_end };
            let look = series.look.unwrap_or(index).checked_rem(SERIES).unwrap_or(0);
            Layer { series, look, points, end }
        })
        .collect()
}

/// Where the last bar ends: it is as wide as the one before, and one of height 0 only marks where
/// the one before ended.
fn end(series: &Series, points: &[Point]) -> f64 {
    let mut last = points.iter().rev();
    match (series.shape, last.next(), last.next()) {
        (_, None, _) => f64::NEG_INFINITY,
        (Shape::Bars, Some((x, y)), Some((before, _))) if *y != 0.0 => x + (x - before),
        (Shape::Bars, Some((x, y)), None) if *y != 0.0 => x + 1.0,
        (_, Some((x, _)), _) => *x,
    }
}

/// Each series on top of those before it, at every x of any of them.
fn stacked(plot: &Plot, points: &[Vec<Point>]) -> Vec<Vec<Point>> {
    let mut xs: Vec<f64> = points.iter().flatten().map(|point| point.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let mut sums: Vec<f64> = vec![0.0; xs.len()];
    let series = plot.series.iter().zip(points);
    series
        .map(|(series, points)| {
            let values = xs.iter().map(|x| value_at(series.shape, points, *x));
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            xs.iter().copied().zip(sums.iter().copied()).collect()
        })
        .collect()
}

fn value_at(shape: Shape, points: &[Point], x: f64) -> f64 {
    let after = points.partition_point(|point| point.0.total_cmp(&x).is_le());
    let before = after.checked_sub(1).and_then(|index| points.get(index));
    match before {
        Some((at, y)) if shape != Shape::Bars || at.total_cmp(&x).is_eq() => *y,
        _ => 0.0,
    }
}

impl Layer<'_> {
    /// The line along the tops.
    pub(crate) fn line(&self, scales: &Scales) -> String {
        let mut path = String::new();
        for (x, y) in decimated(&self.points, scales.stretches) {
            let (x, y) = (px(scales.x.at(x)), px(scales.y.at(y)));
            match self.series.shape {
                _ if path.is_empty() => push(&mut path, &["M", &x, " ", &y]),
                Shape::Line => push(&mut path, &["L", &x, " ", &y]),
                Shape::Step | Shape::Area | Shape::Bars => push(&mut path, &["H", &x, "V", &y]),
            }
        }
        if !path.is_empty() && self.series.shape != Shape::Line {
            push(&mut path, &["H", &px(scales.x.at(self.end))]);
        }
        path
    }

    /// The surface from the tops to zero.
    pub(crate) fn surface(&self, scales: &Scales) -> String {
        let mut path = self.line(scales);
        if let Some((first, _)) = self.points.first() {
            let ground = px(scales.y.at(0.0));
            push(&mut path, &["V", &ground, "H", &px(scales.x.at(*first)), "Z"]);
        }
        path
    }

    /// A bar for each point; `slot` of `slots` that are next to each other. None when there are so
    /// many that they would overlap.
    pub(crate) fn bars(&self, scales: &Scales, slot: usize, slots: usize) -> Option<String> {
        if self.points.len().saturating_mul(slots) > scales.stretches.div_euclid(4) {
            return None;
        }
        let (slot, slots) = (crate::points::as_float(slot), crate::points::as_float(slots.max(1)));
        let ends = self.points.iter().skip(1).map(|point| point.0).chain([self.end]);
        let mut path = String::new();
        for ((x, y), end) in self.points.iter().zip(ends) {
            let (left, right) = (scales.x.at(*x), scales.x.at(end));
            let each = (right - left) / slots;
            let gap = if each > 4.0 { 1.0 } else { 0.0 };
            let (left, right) = (left + each * slot, left + each * (slot + 1.0) - gap);
            let (top, ground) = (px(scales.y.at(*y)), px(scales.y.at(0.0)));
            if top != ground && right > left {
                let parts =
                    ["M", &px(left), " ", &ground, "V", &top, "H", &px(right), "V", &ground, "Z"];
                push(&mut path, &parts);
            }
        }
        Some(path)
    }

    /// A small form at each point; each series has its own.
    pub(crate) fn markers(&self, scales: &Scales) -> String {
        const FORMS: [&str; 6] = [
            "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
            "m-3-3h6v6h-6z",
            "m0-4l4 7h-8z",
            "m0-4l4 4l-4 4l-4-4z",
            "m0 4l4-7h-8z",
            "m-4-1.2h2.8v-2.8h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8z",
        ];
        let form = FORMS.iter().cycle().nth(self.look).copied().unwrap_or_default();
        self.points.iter().fold(String::new(), |mut path, (x, y)| {
            push(&mut path, &["M", &px(scales.x.at(*x)), " ", &px(scales.y.at(*y)), form]);
            path
        })
    }
}

fn push(path: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| path.push_str(part));
}

/// A place in pixels, to a tenth.
pub(crate) fn px(place: f64) -> String {
    let mut text = String::new();
    let _ = write!(text, "{:.1}", if place.abs() < 0.05 { 0.0 } else { place });
    match text.strip_suffix(".0") {
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;

    fn plot(shape: Shape, rows: &[&[Point]]) -> Plot {
        let axes = (Axis::duration("time"), Axis::count("requests"));
        let plot = Plot::new("p", "title", axes.0, axes.1);
        rows.iter().fold(plot, |plot, row| {
            plot.series(Series::new("s", shape).points(row.iter().copied()))
        })
    }

    const SCALES: Scales = Scales {
        x: Scale { from: 0.0, to: 4.0, places: (0.0, 40.0) },
        y: Scale { from: 0.0, to: 10.0, places: (100.0, 0.0) },
        stretches: 300,
    };

    #[test]
    fn each_stands_on_those_before_it() {
        let rows: [&[Point]; 2] = [&[(0.0, 1.0), (1.0, 2.0)], &[(0.0, 3.0), (2.0, 5.0)]];
        let of = |shape| {
            let plot = plot(shape, &rows).stacked();
            let layers = layers(&plot).into_iter().map(|layer| layer.points);
            layers.collect::<Vec<_>>()
        };
        // A bar exists only where it was given; an area holds its value.
        assert_eq!(of(Shape::Bars)[1], [(0.0, 4.0), (1.0, 2.0), (2.0, 5.0)]);
        assert_eq!(of(Shape::Area)[1], [(0.0, 4.0), (1.0, 5.0), (2.0, 7.0)]);
    }

    #[test]
    fn the_last_bar_is_as_wide_as_the_one_before() {
        let row = &[(0.0, 1.0), (2.0, 10.0)][..];
        let plot = plot(Shape::Bars, &[row]);
        let layer = &layers(&plot)[0];
        assert_eq!(layer.end, 4.0);
        assert_eq!(layer.bars(&SCALES, 0, 1).unwrap(), "M0 100V90H19V100ZM20 100V0H39V100Z");
        // A last bar of height 0 only ends the one before it.
        let with_end = Plot::new("h", "t", Axis::number(""), Axis::count("")).histogram(
            "h",
            &[0.0, 1.0, 4.0],
            &[5, 2],
        );
        assert_eq!(layers(&with_end)[0].end, 4.0);
    }

    #[test]
    fn lines_steps_and_surfaces() {
        let row: [&[Point]; 1] = [&[(0.0, 0.0), (1.0, 5.0), (4.0, 10.0)]];
        let of = |shape| {
            let plot = plot(shape, &row);
            let layer = &layers(&plot)[0];
            (layer.line(&SCALES), layer.surface(&SCALES))
        };
        assert_eq!(of(Shape::Line).0, "M0 100L10 50L40 0");
        assert_eq!(of(Shape::Step).0, "M0 100H10V50H40V0H40");
        assert_eq!(of(Shape::Area).1, "M0 100H10V50H40V0H40V100H0Z");
        let many: Vec<Point> = (0..1_000).map(|x| (f64::from(x), 1.0)).collect();
        let plot = plot(Shape::Bars, &[&many]);
        assert!(layers(&plot)[0].bars(&SCALES, 0, 1).is_none(), "they would run into each other");
    }

    #[test]
    fn a_series_may_look_like_another() {
        let looks =
            [Series::new("denied", Shape::Step).looks_like(1), Series::new("x", Shape::Step)];
        let mut plot = plot(Shape::Step, &[]);
        for series in looks {
            plot = plot.series(series.points([(0.0, 1.0)]));
        }
        assert_eq!(layers(&plot).iter().map(|layer| layer.look).collect::<Vec<_>>(), [1, 1]);
        assert!(plot.to_svg(crate::Theme::Light).contains("class=\"l s1\""));
    }
}
