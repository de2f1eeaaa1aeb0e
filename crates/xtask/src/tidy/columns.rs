//! The width of documents: lines of prose that fit next to a page of code.
//!
//! Invariant: a finding is a line that can be broken. Exempt are code blocks, which show output as
//! it is, rows of tables (except in the README), pictures, and all that a program writes, between
//! `<!-- made: x -->` and `<!-- end -->`.

use super::finding::Finding;

const MOST_COLUMNS: usize = 120;

/// The lines of a Markdown file that are too wide and have a place to break.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let (mut is_code, mut is_made) = (false, false);
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        is_code ^= start.starts_with("```");
        if let Some(comment) = start.strip_prefix("<!--").and_then(|rest| rest.split_once("-->")) {
            let words = comment.0.trim();
            is_made = words.starts_with("made:") || words.ends_with(": made");
        }
        let is_row = start.starts_with('|') && path != "README.md";
        let is_picture = ["<picture", "<source", "<img"].iter().any(|tag| start.starts_with(tag));
        if !(is_code || is_made || is_row || is_picture) && is_too_wide(line) {
            let message =
                format!("more than {MOST_COLUMNS} columns: break the line at a blank before that");
            findings.push(Finding::new(path, index + 1, message));
        }
    }
    findings
}

/// True when `line` is too wide and has a blank within the width, outside of `code` and behind the
/// mark of a list or a quotation.
fn is_too_wide(line: &str) -> bool {
    let is_mark = |c: char| " -*>.".contains(c) || c.is_ascii_digit();
    let words = line.trim_start_matches(is_mark);
    let mark = line.len() - words.len(); // of ASCII alone, so bytes are columns
    let mut is_code = false;
    let is_place = |c: char| {
        is_code ^= c == '`';
        c == ' ' && !is_code
    };
    let place = words.chars().position(is_place);
    line.chars().count() > MOST_COLUMNS && place.is_some_and(|place| mark + place <= MOST_COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(path, text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn prose_has_120_columns() {
        let words = |columns: usize| "é".repeat(columns - 5) + " word";
        assert!(check("a.md", &words(120)).is_empty(), "columns are characters, not bytes");
        assert!(check("a.md", &words(121))[0].message.starts_with("more than 120 columns: break"));
        assert_eq!(lines("a.md", &format!("# A\n\n- {}\n", words(119))), [3]);
        assert_eq!(lines("a.md", &format!("<a id=\"x\"></a>{}\n", words(119))), [1]);
    }

    #[test]
    fn what_cannot_be_broken_may_be_wider() {
        let wide = "x".repeat(130);
        let link = format!("1. [{wide}](https://example.com/)\n- `a {wide}`\n{wide} a\n");
        assert!(lines("a.md", &link).is_empty());
        let code = format!("```text\na {wide}\n```\n<picture><img alt=\"a {wide}\"></picture>\n");
        assert!(lines("a.md", &code).is_empty());
        let made = format!("<!-- made: day -->\na {wide}\n<!-- end -->\na {wide}\n");
        assert_eq!(lines("a.md", &made), [4]);
        let row = format!("| a | {wide} |\n");
        assert_eq!((lines("docs/a.md", &row), lines("README.md", &row)), (vec![], vec![1]));
    }
}
