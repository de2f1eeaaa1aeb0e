//! Plots as SVG: little ink, names where the eye is, nothing that moves.
//!
//! Invariant: every picture has a role, a title and a description; a series has dashes, a form or a
//! pattern in addition to its colour. All names and texts are escaped by [`Markup`].
#![expect(clippy::float_arithmetic, reason = "plots, no decision")]

use crate::frame::{Frame, LINE, Label, SAMPLE, Size, length, name};
use crate::layers::{Layer, layers, px};
use crate::markup::{Attribute, Markup};
use crate::palette::{SERIES, Theme};
use crate::plot::{Plot, Shape};
use crate::visible::{cut, visible};

/// Lines with more points have no forms at them: the forms would overlap.
const MOST_MARKERS: usize = 24;
/// The margin around a standalone picture.
const MARGIN: f64 = 12.0;
/// The height of the title in a standalone picture.
const TITLE: f64 = 26.0;

impl Plot {
    /// The plot as an SVG file of its own, 744 pixels wide, with its title: for a document, which
    /// shows one of the two themes by `<picture>`.
    #[must_use]
    pub fn to_svg(&self, theme: Theme) -> String {
        let palette = theme.palette();
        let mut sheet = format!(
            "svg{{font:12px system-ui,sans-serif;font-variant-numeric:tabular-nums}}\
             text{{fill:{text}}}.q{{fill:{quiet}}}.b{{font-size:14px;font-weight:600}}\
             .g{{stroke:{hair}}}.m{{stroke:{quiet};stroke-dasharray:2 3}}.w{{fill:{ground}}}",
            text = palette.text,
            quiet = palette.quiet,
            hair = palette.hair,
            ground = palette.ground,
        );
        sheet.push_str(&sheet_of_series(|index| {
            palette.series.get(index).copied().unwrap_or_default().to_owned()
        }));
        let mut markup = Markup::default();
        draw(&mut markup, self, Size::Wide, Dress::Alone { sheet: &sheet });
        markup.finish()
    }
}

/// The context of a picture.
#[derive(Clone, Copy)]
pub(crate) enum Dress<'a> {
    /// None: the picture contains its title and its style.
    Alone { sheet: &'a str },
    /// A page; the picture's identities begin with `id`.
    Page { id: &'a str, class: &'static str },
}

/// The rules for series, whose colours are `color` of 0 to 5.
pub(crate) fn sheet_of_series(color: impl Fn(usize) -> String) -> String {
    const DASHES: [&str; SERIES] = ["none", "7 3", "2 3", "9 3 2 3", "4 2", "1 2"];
    let mut sheet = ".l{fill:none;stroke-width:1.5;stroke-linejoin:round}".to_owned();
    for (index, dashes) in DASHES.iter().enumerate() {
        let color = color(index);
        sheet.push_str(&format!(
            ".s{index}{{fill:{color}}}\
             .l.s{index}{{fill:none;stroke:{color};stroke-dasharray:{dashes}}}\
             .h.s{index}{{fill:none;stroke:{color}}}"
        ));
    }
    sheet
}

/// Draws a plot.
pub(crate) fn draw(markup: &mut Markup, plot: &Plot, size: Size, dress: Dress<'_>) {
    let layers = layers(plot);
    let (head, margin, id, class) = match dress {
        Dress::Alone { .. } => (TITLE, MARGIN, "p", ""),
        Dress::Page { id, class } => (0.0, 0.0, id, class),
    };
    let frame = Frame::new(plot, &layers, size, head);
    let corner = px(-margin);
    let width = px(frame.width + 2.0 * margin);
    let height = px(frame.height + 2.0 * margin);
    let view = format!("{corner} {corner} {width} {height}");
    let (title, description) = (format!("{id}-t"), format!("{id}-d"));
    let named = format!("{title} {description}");
    let mut attributes: Vec<Attribute<'_>> = vec![
        ("viewBox", &view),
        ("width", &width),
        ("height", &height),
        ("role", &"img"),
        ("aria-labelledby", &named),
    ];
    match dress {
        Dress::Alone { .. } => attributes.insert(0, ("xmlns", &"http://www.w3.org/2000/svg")),
        Dress::Page { .. } => attributes.push(("class", &class)),
    }
    markup.open("svg", &attributes);
    markup.element("title", &[("id", &title)], &plot.title);
    markup.element("desc", &[("id", &description)], &description_of(plot));
    if let Dress::Alone { sheet } = dress {
        markup.style(sheet);
        let ground: [Attribute<'_>; 5] = [
            ("x", &corner),
            ("y", &corner),
            ("width", &width),
            ("height", &height),
            ("class", &"w"),
        ];
        markup.empty("rect", &ground);
        let columns = 84;
        let words = cut(&visible(&plot.title), columns);
        markup.element("text", &[("y", &"15"), ("class", &"b")], &words);
    }
    let picture = Picture { plot, layers: &layers, frame: &frame, id };
    picture.patterns(markup);
    picture.axes(markup);
    picture.surfaces(markup);
    picture.lines(markup);
    picture.marks(markup);
    picture.names(markup);
    markup.close_line();
}

/// A description of the picture, for readers who cannot see it.
fn description_of(plot: &Plot) -> String {
    let mut words = plot.description.clone();
    for series in &plot.series {
        let ys = series.points.sorted();
        let least = ys.iter().map(|point| point.1).min_by(f64::total_cmp);
        let greatest = ys.iter().map(|point| point.1).max_by(f64::total_cmp);
        if let (Some(least), Some(greatest)) = (least, greatest) {
            let gap = if words.is_empty() { "" } else { " " };
            let [least, greatest] = [least, greatest].map(|y| plot.y.words(y));
            words.push_str(&format!("{gap}{}: {least} to {greatest}.", name(&series.name)));
        }
    }
    words
}

struct Picture<'a> {
    plot: &'a Plot,
    layers: &'a [Layer<'a>],
    frame: &'a Frame,
    id: &'a str,
}

impl Picture<'_> {
    fn has_patterns(&self) -> bool {
        let is_bars = |layer: &Layer<'_>| layer.series.shape == Shape::Bars;
        self.layers.len() > 1 && (self.plot.is_stacked || self.layers.iter().any(is_bars))
    }

    /// The fill of a series' surface. The first is plain.
    fn fill(&self, look: usize) -> String {
        match look {
            0 => String::new(),
            other if self.has_patterns() => format!("fill:url(#{}-{other})", self.id),
            _ => String::new(),
        }
    }

    /// Lines, dots and grids on the ground's colour.
    fn patterns(&self, markup: &mut Markup) {
        const FORMS: [(&str, &str, &str); SERIES] = [
            ("", "", ""),
            ("rotate(45)", "M0 2.5H5", "1.5"),
            ("", "M1.5 2.5H3.5", "2"),
            ("", "M0 2.5H5M2.5 0V5", "1"),
            ("", "M0 2.5H5", "1.5"),
            ("rotate(-45)", "M0 2.5H5", "1"),
        ];
        if !self.has_patterns() {
            return;
        }
        markup.open("defs", &[]);
        for (index, (turn, path, stroke)) in FORMS.iter().enumerate().skip(1) {
            if !self.layers.iter().any(|layer| layer.look == index) {
                continue;
            }
            let (id, class) = (format!("{}-{index}", self.id), format!("h s{index}"));
            let mut attributes: Vec<Attribute<'_>> = vec![
                ("id", &id),
                ("width", &"5"),
                ("height", &"5"),
                ("patternUnits", &"userSpaceOnUse"),
            ];
            if !turn.is_empty() {
                attributes.push(("patternTransform", turn));
            }
            markup.open("pattern", &attributes);
            markup.empty("rect", &[("width", &"5"), ("height", &"5"), ("class", &"w")]);
            let tint = format!("s{index}");
            markup.empty(
                "rect",
                &[("width", &"5"), ("height", &"5"), ("class", &tint), ("fill-opacity", &"0.35")],
            );
            markup.empty("path", &[("d", path), ("class", &class), ("stroke-width", stroke)]);
            markup.close_line();
        }
        markup.close_line();
    }

    fn axes(&self, markup: &mut Markup) {
        let Frame { left, right, bottom, top, scales, .. } = self.frame;
        for tick in &self.frame.y_ticks {
            let y = scales.y.at(tick.at);
            let line = format!("M{} {}H{}", px(*left), px(y), px(*right));
            markup.empty("path", &[("d", &line), ("class", &"g")]);
            text(markup, (left - 6.0, y + 4.0), "end", "q", &tick.label);
        }
        // The label of y is above its numbers and reads from left to right.
        text(
            markup,
            (0.0, top - self.keyed() - 9.0),
            "start",
            "q",
            &cut(&visible(&self.plot.y.label), 48),
        );
        let mut beyond = f64::NEG_INFINITY;
        for tick in &self.frame.x_ticks {
            let x = scales.x.at(tick.at);
            let half = length(&tick.label).max(tick.day.as_deref().map_or(0.0, length)) / 2.0;
            let end = (x + half).min(self.frame.width);
            let middle = (end - half).max(half);
            let line = format!("M{} {}v4", px(x), px(*bottom));
            markup.empty("path", &[("d", &line), ("class", &"g")]);
            if middle - half < beyond {
                continue;
            }
            beyond = middle + half + 8.0;
            text(markup, (middle, bottom + LINE + 2.0), "middle", "q", &tick.label);
            if let Some(day) = &tick.day {
                text(markup, (middle, bottom + 2.0 * LINE + 1.0), "middle", "q", day);
            }
        }
        let words = cut(&visible(&self.plot.x.label), 48);
        text(markup, (*right, self.frame.height - 4.0), "end", "q", &words);
    }

    /// The height of the key.
    fn keyed(&self) -> f64 {
        match (self.frame.keys.first(), self.frame.keys.last()) {
            (Some(first), Some(last)) => last.y - first.y + LINE,
            _ => 0.0,
        }
    }

    /// Areas and bars. Stacked ones are drawn from the highest to the lowest, each down to zero.
    fn surfaces(&self, markup: &mut Markup) {
        let is_surface =
            |layer: &&Layer<'_>| matches!(layer.series.shape, Shape::Area | Shape::Bars);
        let surfaces: Vec<&Layer<'_>> = self.layers.iter().filter(is_surface).collect();
        let count = if self.plot.is_stacked { 1 } else { surfaces.len() };
        for (slot, layer) in surfaces.iter().enumerate().rev() {
            let slot = if self.plot.is_stacked { 0 } else { slot };
            let is_bars = layer.series.shape == Shape::Bars;
            let bars = is_bars.then(|| layer.bars(&self.frame.scales, slot, count)).flatten();
            let path = bars.unwrap_or_else(|| layer.surface(&self.frame.scales));
            let (class, style) = (format!("s{}", layer.look), self.fill(layer.look));
            let is_thin = !is_bars && !self.plot.is_stacked;
            let opacity = if is_thin { "0.18" } else { "1" };
            let mut attributes: Vec<Attribute<'_>> =
                vec![("d", &path), ("class", &class), ("fill-opacity", &opacity)];
            if !style.is_empty() {
                attributes.push(("style", &style));
            }
            if !path.is_empty() {
                markup.empty("path", &attributes);
            }
        }
    }

    fn lines(&self, markup: &mut Markup) {
        for layer in self.layers.iter().filter(|layer| layer.series.shape != Shape::Bars) {
            let path = layer.line(&self.frame.scales);
            if path.is_empty() || self.plot.is_stacked && layer.series.shape == Shape::Area {
                continue;
            }
            let class = format!("l s{}", layer.look);
            markup.empty("path", &[("d", &path), ("class", &class)]);
            if layer.series.shape == Shape::Line && layer.points.len() <= MOST_MARKERS {
                let (path, class) = (layer.markers(&self.frame.scales), format!("s{}", layer.look));
                markup.empty("path", &[("d", &path), ("class", &class)]);
            }
        }
    }

    fn marks(&self, markup: &mut Markup) {
        let Frame { left, right, top, bottom, scales, .. } = self.frame;
        for mark in &self.plot.marks {
            let words = name(&mark.name);
            let line = if mark.is_level {
                let y = scales.y.at(mark.at);
                if self.frame.ends.is_empty() {
                    text(markup, (*right, y - 4.0), "end", "q o", &words);
                }
                format!("M{} {}H{}", px(*left), px(y), px(*right))
            } else {
                let x = scales.x.at(mark.at);
                let is_left = x + 4.0 + length(&words) > *right;
                let (place, anchor) = if is_left { (x - 4.0, "end") } else { (x + 4.0, "start") };
                text(markup, (place, top + 8.0), anchor, "q o", &words);
                format!("M{} {}V{}", px(x), px(*bottom), px(*top))
            };
            markup.empty("path", &[("d", &line), ("class", &"m")]);
        }
    }

    fn look(&self, place: usize) -> usize {
        self.layers.get(place).map_or(0, |layer| layer.look)
    }

    fn names(&self, markup: &mut Markup) {
        for Label { x, y, text: words, series } in &self.frame.ends {
            let class =
                series.map_or_else(|| "q".to_owned(), |place| format!("s{}", self.look(place)));
            text(markup, (*x, *y), "start", &class, words);
        }
        for Label { x, y, text: words, series } in &self.frame.keys {
            let Some(layer) = series.and_then(|place| self.layers.get(place)) else { continue };
            self.sample(markup, (*x, *y), layer);
            text(markup, (x + SAMPLE, *y), "start", &format!("s{}", layer.look), words);
        }
    }

    /// The sample of a series in the key.
    fn sample(&self, markup: &mut Markup, (x, y): (f64, f64), layer: &Layer<'_>) {
        let is_filled = layer.series.shape == Shape::Bars || self.plot.is_stacked;
        if is_filled {
            let path = format!("M{} {}h18v-10h-18z", px(x), px(y + 1.0));
            let (class, style) = (format!("s{}", layer.look), self.fill(layer.look));
            if style.is_empty() {
                markup.empty("path", &[("d", &path), ("class", &class)]);
            } else {
                markup.empty("path", &[("d", &path), ("class", &class), ("style", &style)]);
            }
        } else {
            let path = format!("M{} {}h18", px(x), px(y - 4.0));
            markup.empty("path", &[("d", &path), ("class", &format!("l s{}", layer.look))]);
        }
    }
}

fn text(markup: &mut Markup, (x, y): (f64, f64), anchor: &str, class: &str, words: &str) {
    let (x, y) = (px(x), px(y));
    markup.element(
        "text",
        &[("x", &x), ("y", &y), ("text-anchor", &anchor), ("class", &class)],
        words,
    );
}
