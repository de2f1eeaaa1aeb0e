//! Output to the terminal, to pipes and to programs.
//!
//! Invariant: a failed write is an error, unless the reader closes early (`tollgate schema | head`)
//! because it has enough. The text of a foreign policy moves no cursor and changes no colour of a
//! terminal: only a new line is written as it is, every other control character is shown escaped.
//! Colours are used on a terminal, or on request.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};

use anstream::stream::{AsLockedWrite, RawStream};
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::error::CommandError;

pub(crate) const HEADING: Style = Style::new().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// A text for people, with its colours.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

impl Page {
    /// Adds text.
    pub(crate) fn push_str(&mut self, text: &str) {
        self.0.push_str(&visible(text));
    }

    /// Adds emphasised text.
    pub(crate) fn push_styled(&mut self, style: Style, text: &str) {
        if !text.is_empty() {
            self.0.push_str(&format!("{style}{}{style:#}", visible(text)));
        }
    }

    /// Writes it to the standard output.
    pub(crate) fn out(&self) -> Result<(), CommandError> {
        write(std::io::stdout().lock(), &self.0)
    }

    /// Writes it to the standard error; a failure is ignored, because it cannot be reported.
    pub(crate) fn err(&self) {
        let _ = write(std::io::stderr().lock(), &self.0);
    }
}

/// Writes `text` to the standard output as it is: for programs.
pub(crate) fn raw(text: &str) -> Result<(), CommandError> {
    written(write_all(&mut std::io::stdout().lock(), text))
}

/// Writes `bytes` to the standard output: for programs.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), CommandError> {
    written(write_bytes(&mut std::io::stdout().lock(), bytes))
}

/// Writes a text that already contains its colours.
pub(crate) fn ansi(text: &str) -> Result<(), CommandError> {
    write(std::io::stdout().lock(), text)
}

/// Writes `report` to the standard output as indented JSON.
pub(crate) fn json(report: &impl Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(report).unwrap_or_default();
    raw(&format!("{}\n", visible_json(&text)))
}

/// JSON in which every hidden character is an escape. Hidden characters occur in texts only, where
/// an escape means the same, so a program reads the same JSON.
pub(crate) fn visible_json(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c > '\u{7e}' && is_hidden(c)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c > '\u{7e}' && is_hidden(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c)); // cannot fail
        } else {
            out.push(c);
        }
    }
    out.into()
}

fn write(stream: impl RawStream + AsLockedWrite, text: &str) -> Result<(), CommandError> {
    let choice = match ColorChoice::global() {
        ColorChoice::Auto => AutoStream::choice(&stream),
        chosen => chosen,
    };
    written(write_all(&mut AutoStream::new(stream, choice), text))
}

fn write_all(stream: &mut impl Write, text: &str) -> std::io::Result<()> {
    write_bytes(stream, text.as_bytes())
}

fn write_bytes(stream: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

fn written(done: std::io::Result<()>) -> Result<(), CommandError> {
    match done {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CommandError::Output(error)),
        _ => Ok(()),
    }
}

/// The text with its control characters, and those that change the writing direction, shown as
/// `\u{1b}`.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    out
}

/// True for control characters except the new line, and for those that change the writing
/// direction.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control() && c != '\n'
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{visible, visible_json};

    #[test]
    fn json_is_the_same_and_shows_everything() {
        for text in
            ["a é\n \u{1f600}", "\u{85}\u{7f}\u{9b}31m\u{202e}\u{2066}\u{61c}\u{200f}\u{1b}\t"]
        {
            let json = serde_json::to_string_pretty(&[text]).unwrap();
            let shown = visible_json(&json);
            assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [text]);
            assert!(!shown.chars().any(super::is_hidden), "{shown}");
        }
    }

    // A policy may match by any text: `{"query": {"q": "\u001b[2J"}}`.
    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(visible("a é\n\"b\"\n"), "a é\n\"b\"\n");
        let hostile = "\u{1b}[2J \r \t \u{7f} \u{9b}31m \u{202e} \u{2066}";
        let shown = r"\u{1b}[2J \u{d} \u{9} \u{7f} \u{9b}31m \u{202e} \u{2066}";
        assert_eq!(visible(hostile), shown);
    }
}
