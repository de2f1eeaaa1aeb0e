//! Markdown in GitHub's dialect.
//!
//! Invariant: untrusted text stays text: it begins no table cell, link, image, emphasis, code, list
//! or HTML. A mention (`@name`) or an automatic link is broken up by an escape.

use crate::model::{Block, Figures, Report};
use crate::table::{Cell, Column, Kind, Table};
use crate::visible::{visible, visible_line};

impl Report {
    /// The report in Markdown: a plot is its table. Lines are not wrapped.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut out = format!("# {}\n", escaped(&self.title));
        for section in &self.sections {
            if !section.heading.is_empty() {
                out.push_str(&format!("\n## {}\n", escaped(&section.heading)));
            }
            for block in &section.blocks {
                out.push('\n');
                out.push_str(&of_block(block));
            }
        }
        if !self.footer.is_empty() {
            out.push_str(&format!("\n{}\n", escaped(&self.footer)));
        }
        out
    }
}

impl Table {
    /// The table alone, without its caption: for a document that a program writes. Every cell is
    /// escaped.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| escaped(&column.name)).collect();
        let rules =
            self.columns.iter().map(|column| if column.is_right() { "---:" } else { "---" });
        let mut out = line(names) + &line(rules.map(str::to_owned));
        for row in &self.rows {
            out.push_str(&line(self.words(row).map(|(_, words)| of_cell(&words))));
        }
        if let Some(more) = self.more() {
            out.push_str(&format!("\n{more}\n"));
        }
        out
    }
}

fn of_block(block: &Block) -> String {
    match block {
        Block::Text(text) => format!("{}\n", escaped(text)),
        Block::Code(code) => fenced(code),
        Block::Figures(figures) => of_figures(figures).to_markdown(),
        Block::Table(table) => captioned(table),
        Block::Plot(plot) => {
            let description = escaped(&plot.description);
            let gap = if description.is_empty() { "" } else { "\n\n" };
            format!("{description}{gap}{}", captioned(&plot.to_table()))
        }
    }
}

fn captioned(table: &Table) -> String {
    format!("{}\n\n{}", escaped(&table.caption), table.to_markdown())
}

fn of_figures(Figures { name, figures }: &Figures) -> Table {
    let has_notes = figures.iter().any(|figure| !figure.note.is_empty());
    let mut table = Table::new(name.clone(), "")
        .column(Column::text("figure"))
        .column(Column::new("value", Kind::Text));
    if has_notes {
        table = table.column(Column::text("note"));
    }
    for figure in figures {
        let cells = [&figure.label, &figure.value.words(2), &figure.note];
        let wanted = if has_notes { 3 } else { 2 };
        table.push(cells.into_iter().take(wanted).map(|text| Cell::text(text.clone())));
    }
    table
}

/// The dash of an empty cell begins no list there.
fn of_cell(words: &str) -> String {
    if words == "-" { words.to_owned() } else { escaped(words) }
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Lines in a fence that is longer than any run of backticks in them.
fn fenced(code: &str) -> String {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.saturating_add(1).max(3));
    let lines: Vec<String> = code.lines().map(visible_line).collect();
    format!("{fence}text\n{}\n{fence}\n", lines.join("\n"))
}

/// The text with a backslash before each character that Markdown, or GitHub's dialect, would
/// interpret.
fn escaped(text: &str) -> String {
    let shown = visible(text);
    let mut out = String::with_capacity(shown.len());
    let mut before = String::new();
    for (index, c) in shown.char_indices() {
        let rest = shown.get(index..).unwrap_or_default();
        let is_first = before.trim_start().is_empty();
        let is_markup = match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '&' | '~' | '$' | '@' => true,
            ':' => rest.starts_with("://") || rest.starts_with(":+1"),
            '.' | ')' => {
                // `1. ` begins a list, `www.` links.
                let is_item = rest.chars().nth(1).is_none_or(char::is_whitespace);
                is_item && !is_first && before.trim_start().bytes().all(|b| b.is_ascii_digit())
                    || before.to_ascii_lowercase().ends_with("www")
            }
            '#' | '+' | '-' | '=' => is_first,
            _ => false,
        };
        if is_markup {
            out.push('\\');
        }
        out.push(c);
        before.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text() {
        for (hostile, safe) in [
            ("a|b", r"a\|b"),
            ("<script>", r"\<script\>"),
            ("[x](javascript:y)", r"\[x\](javascript:y)"),
            ("![x](y)", r"!\[x\](y)"),
            ("https://evil.example", r"https\://evil.example"),
            ("www.evil.example", r"www\.evil.example"),
            ("@everybody a@b.c", r"\@everybody a\@b.c"),
            ("# head", r"\# head"),
            ("- item", r"\- item"),
            ("1. item", r"1\. item"),
            ("10.5 and 192.0.2.1", "10.5 and 192.0.2.1"),
            ("&lt; $x$ ~~y~~", r"\&lt; \$x\$ \~\~y\~\~"),
            ("a\nb", r"a\\u{a}b"),
            ("per-client 10", "per-client 10"),
        ] {
            assert_eq!(escaped(hostile), safe);
        }
    }

    #[test]
    fn an_empty_cell_is_a_dash() {
        assert_eq!([of_cell("-"), of_cell("- item")], ["-", r"\- item"]);
    }

    #[test]
    fn a_fence_is_longer_than_what_it_holds() {
        assert_eq!(fenced("a\n```\nb"), "````text\na\n```\nb\n````\n");
    }
}
