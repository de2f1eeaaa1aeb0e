//! Where text goes.
//!
//! Invariant: a reader that leaves early (`tollgate schema | head`) is no error and no panic. What a policy of somebody else
//! holds moves no cursor and changes no colour of a terminal: only a new line is itself, every other control character is shown.

use std::io::Write as _;

use serde::Serialize;

/// Writes `text` to the standard output.
pub(crate) fn out(text: &str) {
    let _ = std::io::stdout().write_all(visible(text).as_bytes());
}

/// Writes `text` to the standard error.
pub(crate) fn err(text: &str) {
    let _ = std::io::stderr().write_all(visible(text).as_bytes());
}

/// Writes `report` to the standard output as indented JSON.
pub(crate) fn json(report: &impl Serialize) {
    let text = serde_json::to_string_pretty(report).unwrap_or_default();
    // Not made visible: programs read it, and it would be JSON no more.
    let _ = std::io::stdout().write_all(format!("{text}\n").as_bytes());
}

/// The text with its control characters, and those that turn the direction of writing, as `\u{1b}`.
fn visible(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::visible;

    // A policy may match by any text: `{"query": {"q": "\u001b[2J"}}`.
    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(visible("a é\n\"b\"\n"), "a é\n\"b\"\n");
        let hostile = "\u{1b}[2J \r \t \u{7f} \u{9b}31m \u{202e} \u{2066}";
        let shown = r"\u{1b}[2J \u{d} \u{9} \u{7f} \u{9b}31m \u{202e} \u{2066}";
        assert_eq!(visible(hostile), shown);
    }
}
