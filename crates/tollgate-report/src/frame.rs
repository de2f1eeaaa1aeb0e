//! The frame of a plot: the positions of its axes, its names and its surface.
//!
//! Invariant: names are within the picture and do not overlap. A wide picture has the names of
//! lines at their ends, where they need no key; a narrow one, and surfaces, have a key above.
#![expect(clippy::float_arithmetic, reason = "plots, no decision")]

use crate::layers::{Layer, Scales};
use crate::plot::{Plot, Shape};
use crate::points::as_float;
use crate::scale::{Scale, Tick, ticks};
use crate::visible::{cut, visible, width};

/// Pixels that a column of text takes, at 12 pixels and estimated generously.
const COLUMN: f64 = 6.7;
/// The distance between two lines of text.
pub(crate) const LINE: f64 = 15.0;
/// The sample of a line in a key, with the gap after it.
pub(crate) const SAMPLE: f64 = 24.0;
/// Columns that a name has at most.
const MOST_NAME: usize = 26;

/// The use of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// A page of some width.
    Wide,
    /// A telephone.
    Narrow,
}

/// A name next to the plot.
pub(crate) struct Label {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) text: String,
    /// The place of the series; `None` for a mark.
    pub(crate) series: Option<usize>,
}

/// The positions of all parts.
pub(crate) struct Frame {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    pub(crate) scales: Scales,
    pub(crate) x_ticks: Vec<Tick>,
    pub(crate) y_ticks: Vec<Tick>,
    /// Names at the ends of lines.
    pub(crate) ends: Vec<Label>,
    /// Names in a key.
    pub(crate) keys: Vec<Label>,
}

impl Size {
    const fn pixels(self) -> (f64, f64) {
        match self {
            Self::Wide => (720.0, 220.0),
            Self::Narrow => (344.0, 190.0),
        }
    }
}

impl Frame {
    /// The frame of a picture whose first `head` pixels are reserved for other content.
    pub(crate) fn new(plot: &Plot, layers: &[Layer<'_>], size: Size, head: f64) -> Self {
        let (width, surface) = size.pixels();
        let is_direct = size == Size::Wide && is_direct(plot);
        let keys = if is_direct { Vec::new() } else { keys(plot, width, head + 2.0 * LINE) };
        let keyed = keys.last().map_or(0.0, |key| key.y - head - LINE);
        let top = head + LINE + 9.0 + keyed;
        let bottom = top + surface;
        let (x_range, y_range) = (x_range(plot, layers), y_range(plot, layers));
        let y_ticks = ticks(&plot.y, y_range.0, y_range.1, if size == Size::Wide { 5 } else { 4 });
        let labels = y_ticks.iter().map(|tick| tick.label.as_str());
        let left = 10.0 + widest(labels);
        let names = names(plot);
        let right = match (is_direct, size) {
            (true, _) => width - 10.0 - widest(names.iter().map(String::as_str)),
            (false, Size::Wide) => width - 24.0,
            (false, Size::Narrow) => width - 10.0,
        };
        let most = if size == Size::Wide { 7 } else { 4 };
        let x_ticks = ticks(&plot.x, x_range.0, x_range.1, most);
        let days = if x_ticks.iter().any(|tick| tick.day.is_some()) { LINE } else { 0.0 };
        let scales = Scales {
            x: Scale { from: x_range.0, to: x_range.1, places: (left, right) },
            y: Scale { from: y_range.0, to: y_range.1, places: (bottom, top) },
            stretches: if size == Size::Wide { 300 } else { 150 },
        };
        let mut frame = Self {
            width,
            height: bottom + days + 2.0 * LINE + 10.0,
            left,
            right,
            top,
            bottom,
            scales,
            x_ticks,
            y_ticks,
            ends: Vec::new(),
            keys,
        };
        frame.ends = frame.labels(plot, layers, is_direct);
        frame
    }

    /// The names of level marks, and those of lines where there is room, each at its height.
    fn labels(&self, plot: &Plot, layers: &[Layer<'_>], is_direct: bool) -> Vec<Label> {
        if !is_direct {
            return Vec::new();
        }
        let x = self.right + 6.0;
        let mut labels: Vec<Label> = Vec::new();
        for (place, layer) in layers.iter().enumerate() {
            let Some((_, y)) = layer.points.last() else { continue };
            let text = name(&layer.series.name);
            labels.push(Label { x, y: self.scales.y.at(*y) + 4.0, text, series: Some(place) });
        }
        for mark in plot.marks.iter().filter(|mark| mark.is_level) {
            let y = self.scales.y.at(mark.at) + 4.0;
            labels.push(Label { x, y, text: name(&mark.name), series: None });
        }
        spread(&mut labels, self.top + 4.0, self.bottom + 4.0);
        labels
    }
}

/// Pixels that a text takes.
pub(crate) fn length(text: &str) -> f64 {
    as_float(width(text)) * COLUMN
}

/// A name as it is drawn.
pub(crate) fn name(text: &str) -> String {
    cut(&visible(text), MOST_NAME)
}

fn is_direct(plot: &Plot) -> bool {
    let is_line = plot.series.iter().all(|series| series.shape != Shape::Bars);
    is_line && !plot.is_stacked
}

fn names(plot: &Plot) -> Vec<String> {
    let marks = plot.marks.iter().filter(|mark| mark.is_level).map(|mark| name(&mark.name));
    plot.series.iter().map(|series| name(&series.name)).chain(marks).collect()
}

fn widest<'t>(texts: impl Iterator<Item = &'t str>) -> f64 {
    texts.map(length).fold(0.0, f64::max)
}

/// The key: a sample and a name for each series, in lines.
fn keys(plot: &Plot, width: f64, first: f64) -> Vec<Label> {
    if plot.series.len() < 2 {
        return Vec::new();
    }
    let (mut x, mut y) = (0.0, first);
    let mut keys = Vec::new();
    for (index, series) in plot.series.iter().enumerate() {
        let text = name(&series.name);
        let taken = SAMPLE + length(&text) + 14.0;
        if x > 0.0 && x + taken > width {
            (x, y) = (0.0, y + LINE);
        }
        keys.push(Label { x, y, text, series: Some(index) });
        x += taken;
    }
    keys
}

/// Moves labels apart: a line of text each, between `top` and `bottom`.
fn spread(labels: &mut [Label], top: f64, bottom: f64) {
    labels.sort_by(|a, b| a.y.total_cmp(&b.y));
    let mut least = top;
    for label in labels.iter_mut() {
        label.y = label.y.max(least);
        least = label.y + LINE;
    }
    let mut most = bottom;
    for label in labels.iter_mut().rev() {
        label.y = label.y.min(most);
        most = label.y - LINE;
    }
}

fn x_range(plot: &Plot, layers: &[Layer<'_>]) -> (f64, f64) {
    let points = layers.iter().flat_map(|layer| layer.points.iter().map(|point| point.0));
    let ends = layers.iter().map(|layer| layer.end).filter(|end| end.is_finite());
    let marks = plot.marks.iter().filter(|mark| !mark.is_level).map(|mark| mark.at);
    range(points.chain(ends).chain(marks))
}

/// The range from 0, unless a value is below it.
fn y_range(plot: &Plot, layers: &[Layer<'_>]) -> (f64, f64) {
    let points = layers.iter().flat_map(|layer| layer.points.iter().map(|point| point.1));
    let marks = plot.marks.iter().filter(|mark| mark.is_level).map(|mark| mark.at);
    let (low, high) = range(points.chain(marks).chain([0.0]));
    let room = (high - low) * 0.04;
    (if low < 0.0 { low - room } else { low }, high + room)
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values = values.filter(|value| value.is_finite());
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = values.fold(none, |(low, high), value| (low.min(value), high.max(value)));
    match (low, high) {
        (low, high) if low < high => (low, high),
        (low, _) if low.is_finite() => (low, low + 1.0),
        _ => (0.0, 1.0),
    }
}
