//! Plain text for a terminal or a file.
//!
//! Invariant: no line is wider than the given width (at least 40 columns), except for lines to be
//! copied unchanged; numbers are right-aligned under the names of their columns. A table that is
//! too wide has its texts cut; one whose numbers do not fit either is written row by row.

use crate::model::{Block, Figures, Report};
use crate::plot::Plot;
use crate::rows::Rows;
use crate::table::Table;
use crate::visible::{cut, visible, visible_line, width};

/// Below this width nothing is laid out.
const LEAST_WIDTH: usize = 40;
/// The least width of a cut text when a table is too wide.
const LEAST_COLUMN: usize = 12;
/// The gap between two columns.
const GAP: usize = 2;
/// Columns of a plot in a line of text.
const MOST_BARS: usize = 60;

/// A piece of a report in text: whole lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'t> {
    /// The title, or the heading of a section.
    Heading(&'t str),
    /// Everything else.
    Plain(&'t str),
}

impl Report {
    /// The report in lines of at most `width` columns. Plots are rows of bars.
    #[must_use]
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        self.each_part(width, |part| match part {
            Part::Heading(text) | Part::Plain(text) => out.push_str(text),
        });
        out
    }

    /// The same piece by piece, so that a terminal can highlight headings.
    pub fn each_part(&self, width: usize, mut emit: impl FnMut(Part<'_>)) {
        let width = width.max(LEAST_WIDTH);
        emit(Part::Heading(&wrapped(&visible(&self.title), width)));
        for section in &self.sections {
            if !section.heading.is_empty() {
                emit(Part::Plain("\n"));
                emit(Part::Heading(&wrapped(&visible(&section.heading), width)));
            }
            for (index, block) in section.blocks.iter().enumerate() {
                if index > 0 || section.heading.is_empty() {
                    emit(Part::Plain("\n"));
                }
                emit(Part::Plain(&of_block(block, width)));
            }
        }
        if !self.footer.is_empty() {
            emit(Part::Plain("\n"));
            emit(Part::Plain(&wrapped(&visible(&self.footer), width)));
        }
    }
}

impl Table {
    /// The table alone, without its caption, in lines of at most `width` columns.
    #[must_use]
    pub fn to_text(&self, width: usize) -> String {
        of_table(self, width.max(LEAST_WIDTH))
    }
}

fn of_block(block: &Block, width: usize) -> String {
    match block {
        Block::Text(text) => wrapped(&visible(text), width),
        Block::Code(code) => {
            code.lines().fold(String::new(), |out, line| out + "    " + &visible_line(line) + "\n")
        }
        Block::Figures(figures) => of_figures(figures, width),
        Block::Table(table) => {
            let caption = visible(&table.caption);
            let head = if caption.is_empty() { caption } else { wrapped(&caption, width) };
            head + &of_table(table, width)
        }
        Block::Plot(plot) => of_plot(plot, width),
    }
}

/// `name  value  note`, values aligned right; where that is too wide, the note is below.
fn of_figures(figures: &Figures, most: usize) -> String {
    let rows: Vec<[String; 3]> = figures
        .figures
        .iter()
        .map(|figure| [&figure.label, &figure.value.words(2), &figure.note].map(|s| visible(s)))
        .collect();
    let widest =
        |of: fn(&[String; 3]) -> &String| rows.iter().map(|row| width(of(row))).max().unwrap_or(0);
    let (labels, values) = (widest(|[label, ..]| label), widest(|[_, value, _]| value));
    let notes = widest(|[.., note]| note);
    let columns = labels.saturating_add(values).saturating_add(GAP);
    let mut out = String::new();
    for [label, value, note] in &rows {
        if columns > most {
            out.push_str(&named(label, value, labels, most));
        } else {
            let line = left(label, labels) + "  " + &right(value, values);
            let is_same_line = columns.saturating_add(GAP).saturating_add(notes) <= most;
            let suffix = if is_same_line { format!("  {note}") } else { String::new() };
            out.push_str((line + &suffix).trim_end());
            out.push('\n');
            if is_same_line {
                continue;
            }
        }
        if !note.is_empty() {
            out.push_str(&indented(note, most));
        }
    }
    out
}

fn of_table(table: &Table, most: usize) -> String {
    let names: Vec<String> = table.columns.iter().map(|column| visible(&column.name)).collect();
    let rows: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| table.words(row).map(|(_, words)| visible(&words)).collect())
        .collect();
    let mut out = match fitted(table, &names, &rows, most) {
        Some(widths) => aligned(table, &names, &rows, &widths),
        None => one_by_one(&names, &rows, most),
    };
    if let Some(more) = table.more() {
        out.push_str(&more);
        out.push('\n');
    }
    out
}

/// The width of each column, or `None` when the numbers alone are too wide.
fn fitted(
    table: &Table,
    names: &[String],
    rows: &[Vec<String>],
    most: usize,
) -> Option<Vec<usize>> {
    let mut widths: Vec<usize> = names.iter().map(|name| width(name)).collect();
    for row in rows {
        for (widest, words) in widths.iter_mut().zip(row) {
            *widest = (*widest).max(width(words));
        }
    }
    let gaps = widths.len().saturating_sub(1).saturating_mul(GAP);
    loop {
        let total = widths.iter().fold(gaps, |sum, width| sum.saturating_add(*width));
        let over = total.checked_sub(most).filter(|over| *over > 0);
        let Some(over) = over else { return Some(widths) };
        // The widest text is cut first, so that short ones stay whole.
        let texts = widths.iter_mut().zip(&table.columns).filter(|(_, column)| !column.is_right());
        let widest = texts.map(|(width, _)| width).max_by_key(|width| **width)?;
        if *widest <= LEAST_COLUMN {
            return None;
        }
        let step = over.min(widest.saturating_sub(LEAST_COLUMN)).min(8);
        *widest = widest.saturating_sub(step);
    }
}

fn aligned(table: &Table, names: &[String], rows: &[Vec<String>], widths: &[usize]) -> String {
    let mut out = String::new();
    for row in std::iter::once(names).chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::new();
        for ((words, column), width) in row.iter().zip(&table.columns).zip(widths) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line += &if column.is_right() { right(words, *width) } else { left(words, *width) };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// `name  value` in a line each, an empty line between rows.
fn one_by_one(names: &[String], rows: &[Vec<String>], most: usize) -> String {
    let widest = names.iter().map(|name| width(name)).max().unwrap_or(0).min(most.div_euclid(2));
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        for (name, words) in names.iter().zip(row) {
            out.push_str(&named(name, words, widest, most));
        }
    }
    out
}

/// `name  words`, or the words below their name where they do not fit next to it.
fn named(name: &str, words: &str, widest: usize, most: usize) -> String {
    let line = left(name, widest.min(most)) + "  " + words;
    if width(&line) <= most {
        format!("{}\n", line.trim_end())
    } else {
        wrapped(name, most) + &indented(words, most)
    }
}

/// Lines that are indented by two columns.
fn indented(text: &str, most: usize) -> String {
    let lines = wrapped(text, most.saturating_sub(GAP));
    lines.lines().fold(String::new(), |out, line| out + "  " + line + "\n")
}

/// A row of bars for each series, each as high as the greatest value of its stretch; then the range
/// of x that they cover.
fn of_plot(plot: &Plot, most: usize) -> String {
    let mut out = wrapped(&visible(&plot.title), most);
    let Some(rows) = Rows::of(plot) else { return out + "no points\n" };
    let names: Vec<String> = plot.series.iter().map(|s| cut(&visible(&s.name), 20)).collect();
    let widest = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let bars = most.saturating_sub(widest).saturating_sub(20).clamp(10, MOST_BARS);
    for (name, row) in names.iter().zip(rows.bars(bars)) {
        let line = format!("{}  {}  up to {}", left(name, widest), row.bars, row.peak);
        out.push_str(cut(&line, most).trim_end());
        out.push('\n');
    }
    out + &wrapped(&format!("{}: {} to {}", visible(&plot.x.label), rows.from(), rows.to()), most)
}

fn left(text: &str, most: usize) -> String {
    let text = cut(text, most);
    let free = most.saturating_sub(width(&text));
    text + &" ".repeat(free)
}

fn right(text: &str, most: usize) -> String {
    let text = cut(text, most);
    " ".repeat(most.saturating_sub(width(&text))) + &text
}

/// Lines broken at spaces; a word that is too long is broken anywhere.
fn wrapped(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut used = 0_usize;
    for word in text.split(' ') {
        let mut rest = word;
        while width(rest) > most {
            if used > 0 {
                out.push('\n');
            }
            let end = prefix(rest, most);
            let (head, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
            out.push_str(head);
            (used, rest) = (most, tail);
        }
        let columns = width(rest);
        if used > 0 && used.saturating_add(1).saturating_add(columns) > most {
            out.push('\n');
            used = 0;
        }
        if used > 0 {
            out.push(' ');
            used = used.saturating_add(1);
        }
        out.push_str(rest);
        used = used.saturating_add(columns);
    }
    out.push('\n');
    out
}

/// The bytes at the beginning of `text` that take at most `most` columns.
fn prefix(text: &str, most: usize) -> usize {
    let mut used = 0_usize;
    for (index, c) in text.char_indices() {
        used = used.saturating_add(width(c.encode_utf8(&mut [0; 4])));
        if used > most {
            return index;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Cell, Column, Series, Shape};

    fn table() -> Table {
        let mut table = Table::new("keys", "Who was limited most")
            .column(Column::text("client"))
            .column(Column::count("denied"))
            .column(Column::share("share"));
        table.push([Cell::text("192.0.2.1"), Cell::Count(1_027), Cell::share(1_027, 61_000)]);
        table.push([Cell::text("日本.example"), Cell::Count(3), Cell::share(3, 61_000)]);
        table
    }

    #[test]
    fn numbers_stand_right_under_their_names() {
        assert_eq!(
            table().and_omitted(12).to_text(80),
            "client        denied    share\n\
             192.0.2.1      1,027   1.68 %\n\
             日本.example       3  <0.01 %\n\
             and 12 more\n"
        );
    }

    #[test]
    fn no_line_is_too_wide() {
        let mut report = Report::new("A title of some words, which is rather long for a terminal");
        let mut wide = table();
        wide.push([Cell::text("x".repeat(5_000)), Cell::Count(u64::MAX), Cell::Empty]);
        wide.push([Cell::text("\u{1b}[2J\n"), Cell::Empty, Cell::Empty]);
        let numbers = (0..9).fold(Table::new("n", "numbers"), |table, i| {
            table.column(Column::count(format!("column {i}")))
        });
        let mut numbers = numbers;
        numbers.push((0..9).map(Cell::Count));
        let plot = Plot::new("p", "title", Axis::duration("time"), Axis::count("requests"))
            .series(Series::new("a".repeat(90), Shape::Line).points([(0.0, 1.0), (1.0, 3.0)]));
        let figures = Figures::new("f").figure("y".repeat(99), Cell::Count(1), "z".repeat(99));
        report.section("Heading").table(wide).table(numbers).plot(plot).figures(figures);
        for most in [0, 40, 41, 60, 80, 200] {
            let text = report.to_text(most);
            for line in text.lines() {
                assert!(width(line) <= most.max(40), "{most}: {line:?}");
                assert!(line.chars().all(|c| !c.is_control()));
            }
            assert!(text.contains("column 8"));
        }
    }

    #[test]
    fn a_plot_is_rows_of_bars() {
        let mut report = Report::new("t");
        let steps = (0..8).map(|x| (f64::from(x), f64::from(x)));
        let plot = Plot::new("p", "Requests", Axis::duration("time"), Axis::count("requests"))
            .series(Series::new("offered", Shape::Line).points(steps))
            .series(Series::new("x", Shape::Step).points([(6.0, 1.0)]));
        report.section("").plot(plot);
        assert_eq!(
            report.to_text(40),
            "t\n\nRequests\n\
             offered   ▂ ▃ ▄ ▅ ▆ ▇█  up to 7\n\
             x                   ▂▂  up to 1\n\
             time: 0 s to 7 s\n"
        );
    }
}
