//! Lines of comma-separated values.
//!
//! Invariant: a line has one field for each value and ends with CR LF (RFC 4180, 2), whatever the
//! values contain. No part of a value that a spreadsheet may take for the beginning of a cell
//! begins a formula: there an apostrophe comes first, which spreadsheets do not show. Removing it
//! restores the value, because an apostrophe in such a place gets one, too. Source of the
//! characters: OWASP, "CSV Injection".

use alloc::string::String;

/// Appends a line with these values.
pub(crate) fn write_line<'v>(values: impl IntoIterator<Item = &'v str>, out: &mut String) {
    for (i, value) in values.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_field(value, out);
    }
    out.push_str("\r\n");
}

fn write_field(value: &str, out: &mut String) {
    let is_quoted = value.contains([',', '"', '\r', '\n', ';', '\t', '|']);
    if is_quoted {
        out.push('"');
    }
    let mut begins_cell = true;
    for c in value.chars() {
        if begins_cell && begins_formula(c) {
            out.push('\'');
        }
        // A program that separates at another character takes the rest for a cell.
        begins_cell = matches!(c, ',' | ';' | '|' | '"') || c.is_control() || c.is_whitespace();
        out.push(c);
        if c == '"' {
            out.push('"');
        }
    }
    if is_quoted {
        out.push('"');
    }
}

/// True for the characters with which a formula begins, also in their wide forms, and for the
/// apostrophe that protects from them.
const fn begins_formula(c: char) -> bool {
    matches!(c, '=' | '+' | '-' | '@' | '\'' | '\u{ff1d}' | '\u{ff0b}' | '\u{ff0d}' | '\u{ff20}')
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    fn line(values: &[&str]) -> String {
        let mut out = String::new();
        write_line(values.iter().copied(), &mut out);
        out
    }

    #[test]
    fn fields_are_quoted_where_rfc_4180_requires_it() {
        assert_eq!(line(&["a", "", "b c"]), "a,,b c\r\n");
        assert_eq!(line(&["a,b", "say \"hi\"", "x\ny"]), "\"a,b\",\"say \"\"hi\"\"\",\"x\ny\"\r\n");
        assert_eq!(
            line(&["ann@example.com", "2026-11-30", "1-2"]),
            "ann@example.com,2026-11-30,1-2\r\n"
        );
    }

    /// Guards: a client whose name is a formula, which the spreadsheet of an invoice computes.
    #[test]
    fn no_cell_begins_a_formula() {
        for (value, expected) in [
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("'=1", "''=1"),
            ("\t=1", "\"\t'=1\""),
            (" =1", " '=1"),
            ("a;=1", "\"a;'=1\""),
            ("a\";=1", "\"a\"\";'=1\""),
            ("\"=1", "\"\"\"'=1\""),
            ("\u{ff1d}1", "'\u{ff1d}1"),
        ] {
            assert_eq!(line(&[value]), alloc::format!("{expected}\r\n"), "{value:?}");
        }
    }

    /// The values of the only line of `text`, as a reader of RFC 4180 finds them.
    fn read(text: &str) -> Vec<String> {
        let mut values = Vec::from([String::new()]);
        let mut chars = text.strip_suffix("\r\n").expect("an end").chars().peekable();
        let mut is_quoted = false;
        while let Some(c) = chars.next() {
            match c {
                '"' if is_quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    values.last_mut().expect("one").push('"');
                }
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => values.push(String::new()),
                c => values.last_mut().expect("one").push(c),
            }
        }
        values
    }

    /// The value without the apostrophes that protect it.
    fn unprotected(value: &str) -> String {
        let (mut out, mut begins_cell) = (String::new(), true);
        let mut chars = value.chars();
        while let Some(c) = chars.next() {
            let c = if begins_cell && c == '\'' { chars.next().expect("protected") } else { c };
            begins_cell = matches!(c, ',' | ';' | '|' | '"') || c.is_control() || c.is_whitespace();
            out.push(c);
        }
        out
    }

    proptest! {
        #[test]
        fn a_reader_gets_the_values_back(
            values in prop::collection::vec("[-=+@',;|\" a\r\n\t\u{ff1d}]{0,8}", 1..5),
        ) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let read: Vec<String> = read(&line(&values)).iter().map(|it| unprotected(it)).collect();
            prop_assert_eq!(read, values);
        }
    }
}
