//! CSV (RFC 4180): every table of the report in one rectangular file.
//!
//! The first field of each record is the name of its table, and the first record of each table
//! contains the names of its columns: `grep ^keys,` prints one table with its head. Records are
//! filled up to the same number of fields. Figures are a table of three columns, a plot is a table
//! of its points. Paragraphs are left out.
//!
//! Spreadsheets execute text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return, and
//! split at other characters than this file does. So a text that begins with such a character, or
//! has one after `;`, `|` or `"`, gets an apostrophe before it, which a spreadsheet takes for "this
//! is text". Tabs and line ends are written as `\u{9}`, `\u{d}` and `\u{a}`, like all control
//! characters. Our own numbers are unchanged. A program that needs the exact texts uses JSON.
//!
//! Invariant: untrusted text becomes no formula, no further field and no further record.

use crate::model::{Block, Figures, Report};
use crate::table::{Cell, Table};
use crate::visible::visible;

impl Report {
    /// All tables, figures and plots as CSV in UTF-8, each line ended by CR and LF. Texts are made
    /// visible, formulas defused (see the head of this file).
    #[must_use]
    pub fn to_csv(&self) -> String {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        let records: Vec<Vec<String>> = blocks.flat_map(of_block).collect();
        let most = records.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = String::new();
        for mut record in records {
            record.resize(most, String::new());
            out.push_str(&record.join(","));
            out.push_str("\r\n");
        }
        out
    }
}

fn of_block(block: &Block) -> Vec<Vec<String>> {
    match block {
        Block::Text(_) | Block::Code(_) => Vec::new(),
        Block::Figures(figures) => of_figures(figures),
        Block::Table(table) => of_table(table),
        Block::Plot(plot) => of_table(&plot.to_full_table()),
    }
}

fn of_figures(Figures { name, figures }: &Figures) -> Vec<Vec<String>> {
    let head = ["figure", "value", "note"];
    let mut records = vec![record(name, head.map(str::to_owned))];
    for figure in figures {
        let cells = [text(&figure.label), field(&figure.value), text(&figure.note)];
        records.push(std::iter::once(text(name)).chain(cells).collect());
    }
    records
}

fn of_table(table: &Table) -> Vec<Vec<String>> {
    let names = table.columns.iter().map(|column| text(&column.raw_name()));
    let mut records = vec![record(&table.name, names)];
    for row in &table.rows {
        records.push(record(&table.name, row.iter().map(field)));
    }
    records
}

fn record(name: &str, fields: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(text(name)).chain(fields).collect()
}

fn field(cell: &Cell) -> String {
    if let Cell::Text(words) = cell { text(words) } else { cell.raw() }
}

/// A text as a field.
fn text(words: &str) -> String {
    let safe = defused(&visible(words));
    if safe.contains(['"', ',', ';', '|', '\t', '\r', '\n', '\'']) || safe.starts_with(' ') {
        format!("\"{}\"", safe.replace('"', "\"\""))
    } else {
        safe
    }
}

/// The text with an apostrophe before each character that would begin a formula.
fn defused(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    let mut is_begin = true;
    for c in words.chars() {
        // The wide forms count, too, where the system's language uses them.
        if is_begin && matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠') {
            out.push('\'');
        }
        is_begin = matches!(c, ';' | '|' | '"') || is_begin && c.is_whitespace();
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Figures};

    fn one(words: &str) -> String {
        text(words)
    }

    #[test]
    fn formulas_are_defused() {
        for (hostile, safe) in [
            ("=1+1", "\"'=1+1\""),
            ("+1", "\"'+1\""),
            ("-2+3", "\"'-2+3\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1", r"\u{9}=1"),
            ("\r=1", r"\u{d}=1"),
            ("  =1", "\"  '=1\""),
            ("a;=1", "\"a;'=1\""),
            ("\"=1", "\"\"\"'=1\""),
            ("＝1", "\"'＝1\""),
            ("a=1", "a=1"),
            ("192.0.2.1", "192.0.2.1"),
            ("/a-b", "/a-b"),
        ] {
            assert_eq!(one(hostile), safe);
        }
    }

    #[test]
    fn a_text_is_one_field_of_one_record() {
        assert_eq!(one("a,b"), "\"a,b\"");
        assert_eq!(one("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(one("a\r\nb"), r"a\u{d}\u{a}b");
    }

    #[test]
    fn every_table_by_its_name_in_one_rectangle() {
        let mut table = Table::new("keys", "Clients")
            .column(Column::text("client"))
            .column(Column::share("share"))
            .column(Column::duration("wait"))
            .column(Column::time("first"))
            .column(Column::change("more"));
        table.push([
            Cell::text("=a"),
            Cell::share(1, 8),
            Cell::Duration(1_500_000_000),
            Cell::Time(0),
            Cell::Change(-3),
        ]);
        let mut report = Report::new("r");
        let figures = Figures::new("summary").figure("denied", Cell::Count(1_027), "");
        report.section("s").text("not here").figures(figures).table(table);
        assert_eq!(
            report.to_csv(),
            "summary,figure,value,note,,\r\n\
             summary,denied,1027,,,\r\n\
             keys,client,share (of 1),wait (s),first,more\r\n\
             keys,\"'=a\",0.125,1.5,1970-01-01T00:00:00.000Z,-3\r\n"
        );
    }
}
