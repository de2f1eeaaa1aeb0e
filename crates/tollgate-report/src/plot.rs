//! Plots: the data that is shown, in units; other files draw it.
//!
//! Invariant: every plot has a description of one sentence, for readers who cannot see it; series
//! differ by more than their colour.

use crate::points::Points;
use crate::table::{Cell, Column, Kind};

/// The quantity of an axis.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) kind: Kind,
}

impl Axis {
    /// An axis of plain numbers.
    pub fn number(label: impl Into<String>) -> Self {
        Self { label: label.into(), kind: Kind::Number }
    }

    /// Whole numbers; the axis has no fractions.
    pub fn count(label: impl Into<String>) -> Self {
        Self { label: label.into(), kind: Kind::Count }
    }

    /// Points in time: milliseconds since 1970-01-01T00:00:00Z.
    pub fn time(label: impl Into<String>) -> Self {
        Self { label: label.into(), kind: Kind::Time }
    }

    /// Lengths of time in seconds, such as those since a simulation began.
    pub fn duration(label: impl Into<String>) -> Self {
        Self { label: label.into(), kind: Kind::Duration }
    }

    /// Parts of a whole: 0 to 1, shown in percent.
    pub fn share(label: impl Into<String>) -> Self {
        Self { label: label.into(), kind: Kind::Share }
    }

    /// Sizes in bytes.
    pub fn bytes(label: impl Into<String>) -> Self {
        Self { label: label.into(), kind: Kind::Bytes }
    }

    /// The column of a table for the values of this axis: without decimals where `values` have
    /// none.
    pub(crate) fn column(&self, name: &str, values: impl IntoIterator<Item = f64>) -> Column {
        Column::new(name, self.kind).decimals(self.decimals(values))
    }

    /// A coordinate in words, with as many decimals as necessary; at most two.
    pub(crate) fn words(&self, at: f64) -> String {
        self.cell(at).words(self.decimals([at]))
    }

    fn decimals(&self, values: impl IntoIterator<Item = f64>) -> usize {
        let is_whole = self.kind == Kind::Number && values.into_iter().all(|at| at.fract() == 0.0);
        if is_whole { 0 } else { 2 }
    }

    /// A coordinate as a cell of that column. Fractions beyond the cell's unit are cut off.
    pub(crate) fn cell(&self, at: f64) -> Cell {
        match self.kind {
            Kind::Count => Cell::Count(whole(at)),
            Kind::Bytes => Cell::Bytes(whole(at)),
            Kind::Time => Cell::Time(milliseconds(at)),
            Kind::Duration => Cell::Duration(whole(at_scale(at, 1e9))),
            Kind::Share => Cell::share(whole(at_scale(at, 1e9)), 1_000_000_000),
            Kind::Number | Kind::Change | Kind::Text => Cell::Number(at),
        }
    }
}

#[expect(clippy::float_arithmetic, reason = "plots, no decision")]
fn at_scale(number: f64, scale: f64) -> f64 {
    (number * scale).round()
}

/// The whole part of a number that is not negative.
#[expect(clippy::as_conversions, reason = "`as` saturates, and there is no other way")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as above")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[expect(clippy::as_conversions, reason = "`as` saturates, and there is no other way")]
#[expect(clippy::cast_possible_truncation, reason = "as above")]
fn milliseconds(number: f64) -> i64 {
    number.round() as i64
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line from point to point.
    Line,
    /// A value that holds until the next point.
    Step,
    /// As a step, filled to the axis.
    Area,
    /// A bar for each point, from its x to the next bar's.
    Bars,
}

/// One row of points with a name.
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) points: Points,
    pub(crate) look: Option<usize>,
}

impl Series {
    /// A series without points yet.
    pub fn new(name: impl Into<String>, shape: Shape) -> Self {
        Self { name: name.into(), shape, points: Points::default(), look: None }
    }

    /// Adds a point. At most [`MAX_POINTS`](crate::MAX_POINTS) are kept, and none of the dropped
    /// ones was a peak. A point that is not a finite number is left out, and the plot's table
    /// reports that.
    pub fn push(&mut self, x: f64, y: f64) {
        self.points.push((x, y));
    }

    /// The series with the colour, dashes, form and pattern of another place among its plot's
    /// series, from 0: so that denied requests look the same in every plot.
    #[must_use]
    pub const fn looks_like(mut self, place: usize) -> Self {
        self.look = Some(place);
        self
    }

    /// The series with these points added.
    #[must_use]
    pub fn points(mut self, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        points.into_iter().for_each(|(x, y)| self.push(x, y));
        self
    }
}

/// A line across the plot, such as a limit.
#[derive(Clone, Debug)]
pub struct Mark {
    pub(crate) name: String,
    pub(crate) at: f64,
    pub(crate) is_level: bool,
}

impl Mark {
    /// A level line at a value of y.
    pub fn level(name: impl Into<String>, y: f64) -> Self {
        Self { name: name.into(), at: y, is_level: true }
    }

    /// An upright line at a value of x.
    pub fn at(name: impl Into<String>, x: f64) -> Self {
        Self { name: name.into(), at: x, is_level: false }
    }
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) is_stacked: bool,
}

impl Plot {
    /// A plot without series yet. Programs find its table in CSV by `name`; `title` names the
    /// measured quantity, and [`Plot::describe`] describes the picture.
    pub fn new(name: impl Into<String>, title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            description: String::new(),
            x,
            y,
            series: Vec::new(),
            marks: Vec::new(),
            is_stacked: false,
        }
    }

    /// The plot with a description of the picture, in a sentence or two.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// The plot with one more series. Six are distinguishable.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// The plot with one more line across it.
    #[must_use]
    pub fn mark(mut self, mark: Mark) -> Self {
        self.marks.push(mark);
        self
    }

    /// The plot with each series on top of those before it, where they have the same x. For bars
    /// and areas.
    #[must_use]
    pub const fn stacked(mut self) -> Self {
        self.is_stacked = true;
        self
    }

    /// A histogram: the number of values in each range. `edges` has one number more than `counts`;
    /// ranges may differ in width.
    #[must_use]
    pub fn histogram(mut self, name: impl Into<String>, edges: &[f64], counts: &[u64]) -> Self {
        debug_assert_eq!(edges.len(), counts.len().saturating_add(1), "an edge more than counts");
        let mut series = Series::new(name, Shape::Bars);
        for (edge, count) in edges.iter().zip(counts) {
            series.push(*edge, float(*count));
        }
        // The end of the last bar.
        if let Some(end) = edges.last() {
            series.push(*end, 0.0);
        }
        self.series.push(series);
        self
    }
}

/// To the nearest number that a float holds.
#[expect(clippy::as_conversions, reason = "rounds to nearest, and there is no other way")]
#[expect(clippy::cast_precision_loss, reason = "as above")]
fn float(count: u64) -> f64 {
    count as f64
}
