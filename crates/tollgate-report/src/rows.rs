//! A plot as rows of bars in text, one row per series.
//!
//! Invariant: a bar is as high as the greatest value of its stretch, and every value above zero has
//! a bar; all rows of a plot have one scale.
#![expect(clippy::float_arithmetic, reason = "plots, no decision")]

use crate::plot::{Plot, Series, Shape};
use crate::points::{Point, as_float};

/// From an eighth of the greatest value to all of it.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The points of a plot, and their range.
pub(crate) struct Rows<'p> {
    plot: &'p Plot,
    points: Vec<Vec<Point>>,
    from: f64,
    to: f64,
    top: f64,
}

/// One series.
pub(crate) struct Row {
    pub(crate) bars: String,
    /// The greatest value in words.
    pub(crate) peak: String,
}

impl<'p> Rows<'p> {
    /// `None` for a plot without points.
    pub(crate) fn of(plot: &'p Plot) -> Option<Self> {
        let points: Vec<Vec<Point>> = plot.series.iter().map(|s| s.points.sorted()).collect();
        let xs = || points.iter().flatten().map(|point| point.0);
        let (from, to) = (xs().min_by(f64::total_cmp)?, xs().max_by(f64::total_cmp)?);
        let top = points.iter().flatten().map(|point| point.1).max_by(f64::total_cmp)?;
        Some(Self { plot, points, from, to, top })
    }

    /// Where x begins, in words.
    pub(crate) fn from(&self) -> String {
        self.plot.x.words(self.from)
    }

    /// Where x ends, in words.
    pub(crate) fn to(&self) -> String {
        self.plot.x.words(self.to)
    }

    /// A row of `count` bars for each series.
    pub(crate) fn bars(&self, count: usize) -> impl Iterator<Item = Row> {
        self.plot.series.iter().zip(&self.points).map(move |(series, points)| {
            let peak = points.iter().map(|point| point.1).max_by(f64::total_cmp);
            let peak = peak.map_or_else(|| "-".to_owned(), |peak| self.plot.y.words(peak));
            Row { bars: self.row(series, points, count), peak }
        })
    }

    fn row(&self, series: &Series, points: &[Point], count: usize) -> String {
        let scale = as_float(count) / (self.to - self.from);
        let place = |x: f64| if scale.is_finite() { (x - self.from) * scale } else { 0.0 };
        let mut points = points.iter().peekable();
        let mut held = None;
        let mut bars = String::new();
        for bar in 1..=count {
            let is_last = bar == count;
            let mut height = held;
            while let Some((_, y)) = points.next_if(|(x, _)| is_last || place(*x) < as_float(bar)) {
                height = Some(height.map_or(*y, |before: f64| before.max(*y)));
                // A line has no value between its points; all other shapes hold their value.
                held = (series.shape != Shape::Line).then_some(*y);
            }
            bars.push(height.map_or(' ', |height| self.step(height)));
        }
        bars
    }

    fn step(&self, y: f64) -> char {
        // Never negative: the first step that is not below it.
        let eighths = y / self.top * 8.0;
        let step = STEPS.iter().zip(1..=8).find(|(_, eighth)| eighths <= f64::from(*eighth));
        if y > 0.0 { step.map_or('█', |(step, _)| *step) } else { ' ' }
    }
}
