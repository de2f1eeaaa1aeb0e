//! Splits pieces of a file into its lines.
//!
//! Invariant: a line depends on the bytes alone, never on how they were cut into pieces. A line
//! within one piece is returned without copying. Otherwise its beginning is stored, at most as many
//! bytes as a line may have. A byte order mark of UTF-8 is removed; UTF-16 is rejected because of
//! its mark.

use memchr::{memchr, memchr2_iter};

/// The text between two line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    /// The beginning of a line that is longer than it may be.
    TooLong(&'a [u8]),
    /// A line with a quote that is not closed within the length of a line.
    OpenQuote(&'a [u8]),
}

/// A file in UTF-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Utf16;

/// Cuts a file into lines.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// Bytes of a line before its end.
    longest: usize,
    /// A line end between quotes does not end a line.
    has_quotes: bool,
    state: LineState,
    /// The beginning of a line whose end has not been read yet.
    kept: Vec<u8>,
    /// The progress of the search in `kept`.
    scan: Scan,
}

/// The part of a file that the next bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// Only bytes that may be part of a byte order mark were read.
    Start,
    Lines,
    /// The line was too long, and its end has not been read yet.
    Skipping,
    Refused,
}

/// The progress of the search in a line with quotes.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    to: usize,
    is_open: bool,
    first_end: Option<usize>,
}

impl Lines {
    pub(crate) const fn new(longest: usize, has_quotes: bool) -> Self {
        let scan = Scan { to: 0, is_open: false, first_end: None };
        Self { longest, has_quotes, state: LineState::Start, kept: Vec::new(), scan }
    }

    /// Passes on every line that ends in `bytes`.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        on_line: &mut impl FnMut(Line<'_>),
    ) -> Result<(), Utf16> {
        while self.state == LineState::Start {
            let Some((byte, rest)) = bytes.split_first() else { return Ok(()) };
            self.kept.push(*byte);
            bytes = rest;
            self.state = match *self.kept.as_slice() {
                [0xEF] | [0xEF, 0xBB] | [0xFF] | [0xFE] => LineState::Start,
                [0xEF, 0xBB, 0xBF] => {
                    self.kept.clear();
                    LineState::Lines
                }
                [0xFF, 0xFE] | [0xFE, 0xFF] => LineState::Refused,
                _ => {
                    self.feed_kept(on_line);
                    LineState::Lines
                }
            };
        }
        if self.state == LineState::Refused {
            return Err(Utf16);
        }
        if self.has_quotes {
            self.feed_quoted(bytes, on_line);
        } else {
            self.feed_plain(bytes, on_line);
        }
        Ok(())
    }

    /// Ends the file: its last line may have no end. The next bytes belong to another file.
    pub(crate) fn finish(&mut self, on_line: &mut impl FnMut(Line<'_>)) {
        if matches!(self.state, LineState::Start | LineState::Lines) {
            while self.has_quotes && self.kept_is_open() {
                self.give_up(on_line);
                self.split_kept(on_line);
            }
            if !self.kept.is_empty() {
                on_line(Line::Whole(&self.kept));
            }
        }
        self.kept.clear();
        self.scan = Scan::default();
        self.state = LineState::Start;
    }

    /// Up to three bytes were stored because they could be a mark, and they are not one.
    fn feed_kept(&mut self, on_line: &mut impl FnMut(Line<'_>)) {
        let kept = std::mem::take(&mut self.kept);
        if self.has_quotes {
            self.feed_quoted(&kept, on_line);
        } else {
            self.feed_plain(&kept, on_line);
        }
    }

    fn feed_plain(&mut self, mut bytes: &[u8], on_line: &mut impl FnMut(Line<'_>)) {
        if self.state == LineState::Skipping || !self.kept.is_empty() {
            let Some(rest) = self.end_kept(bytes, on_line) else { return };
            bytes = rest;
        }
        while let Some((line, rest)) = split_line(bytes) {
            on_line(self.measured(line));
            bytes = rest;
        }
        self.keep(bytes, on_line);
    }

    /// Ends the stored line with its rest in `bytes`; returns the bytes after it.
    fn end_kept<'a>(
        &mut self,
        bytes: &'a [u8],
        on_line: &mut impl FnMut(Line<'_>),
    ) -> Option<&'a [u8]> {
        let Some((end, rest)) = split_line(bytes) else {
            self.keep(bytes, on_line);
            return None;
        };
        self.keep(end, on_line);
        if self.state == LineState::Lines {
            on_line(Line::Whole(&self.kept));
        }
        self.kept.clear();
        self.state = LineState::Lines;
        Some(rest)
    }

    /// Stores the beginning of a line, unless that is too long already.
    fn keep(&mut self, bytes: &[u8], on_line: &mut impl FnMut(Line<'_>)) {
        if self.state == LineState::Skipping {
            return;
        }
        let room = self.longest.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        if bytes.len() > room {
            on_line(Line::TooLong(&self.kept));
            self.kept.clear();
            self.state = LineState::Skipping;
        }
    }

    fn measured<'a>(&self, line: &'a [u8]) -> Line<'a> {
        match line.get(..self.longest) {
            Some(beginning) if line.len() > self.longest => Line::TooLong(beginning),
            _ => Line::Whole(line),
        }
    }

    fn feed_quoted(&mut self, mut bytes: &[u8], on_line: &mut impl FnMut(Line<'_>)) {
        while !bytes.is_empty() {
            if self.state == LineState::Skipping {
                let Some((_, rest)) = split_line(bytes) else { return };
                self.state = LineState::Lines;
                bytes = rest;
                continue;
            }
            if self.kept.is_empty() {
                let Some(rest) = self.quoted_in_place(bytes, on_line) else { return };
                bytes = rest;
                continue;
            }
            // One line at a time, so that as little as possible is stored.
            let end = memchr(b'\n', bytes).map_or(bytes.len(), |end| end.wrapping_add(1));
            let room = self.longest.saturating_add(1).saturating_sub(self.kept.len());
            let (part, rest) = bytes.split_at_checked(end.min(room)).unwrap_or((bytes, &[]));
            self.kept.extend_from_slice(part);
            bytes = rest;
            self.split_kept(on_line);
        }
    }

    /// Returns the first line of `bytes` without copying, and the bytes after it; `None` when its
    /// end has not been read yet, and it is stored.
    fn quoted_in_place<'a>(
        &mut self,
        bytes: &'a [u8],
        on_line: &mut impl FnMut(Line<'_>),
    ) -> Option<&'a [u8]> {
        let window = bytes.get(..self.longest.saturating_add(1)).unwrap_or(bytes);
        let mut scan = Scan::default();
        if let Some(end) = scan.end(window) {
            on_line(Line::Whole(bytes.get(..end)?));
            return bytes.get(end.wrapping_add(1)..);
        }
        self.kept.extend_from_slice(window);
        self.scan = scan;
        if window.len() > self.longest {
            self.give_up(on_line);
            self.split_kept(on_line);
        }
        bytes.get(window.len()..)
    }

    /// Passes on the complete lines in the stored bytes.
    fn split_kept(&mut self, on_line: &mut impl FnMut(Line<'_>)) {
        while self.state == LineState::Lines && !self.kept.is_empty() {
            if let Some(end) = self.scan.end(&self.kept) {
                on_line(Line::Whole(self.kept.get(..end).unwrap_or_default()));
                self.drop_kept(end);
            } else if self.kept.len() > self.longest {
                self.give_up(on_line);
            } else {
                return;
            }
        }
    }

    /// The stored bytes have no end within the length of a line: their first line is wrong, and the
    /// following bytes may be right.
    fn give_up(&mut self, on_line: &mut impl FnMut(Line<'_>)) {
        match self.scan.first_end {
            Some(end) => {
                on_line(Line::OpenQuote(self.kept.get(..end).unwrap_or_default()));
                self.drop_kept(end);
            }
            None if self.kept.len() > self.longest => {
                self.kept.truncate(self.longest);
                on_line(Line::TooLong(&self.kept));
                self.kept.clear();
                self.scan = Scan::default();
                self.state = LineState::Skipping;
            }
            None => {
                on_line(Line::OpenQuote(&self.kept));
                self.kept.clear();
                self.scan = Scan::default();
            }
        }
    }

    fn drop_kept(&mut self, end: usize) {
        self.kept.drain(..end.saturating_add(1).min(self.kept.len()));
        self.scan = Scan::default();
    }

    /// At the end of a file: whether the stored bytes are not one whole line.
    fn kept_is_open(&mut self) -> bool {
        let end = self.scan.end(&self.kept);
        debug_assert!(end.is_none(), "whole lines are given when they come");
        self.scan.is_open && !self.kept.is_empty()
    }
}

impl Scan {
    /// The end of the first line of `bytes` that has all its quotes closed. Bytes that were
    /// searched are not searched again.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let from = self.to;
        for found in memchr2_iter(b'"', b'\n', bytes.get(from..)?) {
            let at = from.wrapping_add(found);
            if bytes.get(at) == Some(&b'"') {
                self.is_open = !self.is_open;
                continue;
            }
            if !self.is_open {
                return Some(at);
            }
            self.first_end = self.first_end.or(Some(at));
        }
        self.to = bytes.len();
        None
    }
}

/// The first line of `bytes`, and the bytes after its end.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (line, rest) = bytes.split_at_checked(memchr(b'\n', bytes)?)?;
    Some((line, rest.get(1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::as_conversions)]

    use super::*;

    /// The output in words when the bytes come in pieces of `piece`.
    fn read(bytes: &[u8], piece: usize, longest: usize, has_quotes: bool) -> Vec<String> {
        let mut lines = Lines::new(longest, has_quotes);
        let mut read = vec![];
        let mut on_line = |line: Line<'_>| {
            read.push(match line {
                Line::Whole(line) => format!("whole {}", line.escape_ascii()),
                Line::TooLong(line) => format!("long {}", line.escape_ascii()),
                Line::OpenQuote(line) => format!("open {}", line.escape_ascii()),
            });
        };
        let mut refused = Ok(());
        for piece in bytes.chunks(piece) {
            refused = refused.and(lines.feed(piece, &mut on_line));
        }
        lines.finish(&mut on_line);
        assert!(lines.kept.capacity() <= 64 + 2 * longest, "{}", lines.kept.capacity());
        if refused.is_err() {
            read.push("utf-16".to_owned());
        }
        read
    }

    fn in_any_pieces(bytes: &[u8], longest: usize, has_quotes: bool) -> Vec<String> {
        let read_at_once = read(bytes, bytes.len().max(1), longest, has_quotes);
        for piece in 1..bytes.len() {
            let in_pieces = read(bytes, piece, longest, has_quotes);
            assert_eq!(in_pieces, read_at_once, "{} by {piece}", bytes.escape_ascii());
        }
        read_at_once
    }

    #[test]
    fn lines_are_the_same_in_any_pieces() {
        let rows: [(&[u8], &[&str]); 10] = [
            (b"", &[]),
            (b"\n", &["whole "]),
            (b"ab\ncd", &["whole ab", "whole cd"]),
            (b"ab\r\n\ncd\n", &["whole ab\\r", "whole ", "whole cd"]),
            (b"12345\n123456\n1\n", &["whole 12345", "long 12345", "whole 1"]),
            (b"123456789012345", &["long 12345"]),
            (b"\xEF\xBB\xBFa\nb", &["whole a", "whole b"]),
            (b"\xEF\xBBa\n", &["whole \\xef\\xbba"]),
            (b"\xFF", &["whole \\xff"]),
            (b"\xFF\xFEa\0\n\0", &["utf-16"]),
        ];
        for (bytes, expected) in rows {
            assert_eq!(in_any_pieces(bytes, 5, false), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_quoted_line_end_ends_no_line() {
        let rows: [(&[u8], &[&str]); 9] = [
            (b"a,\"b\nc\"\nd\n", &["whole a,\\\"b\\nc\\\"", "whole d"]),
            (b"\"a\"\"\n\"\nb", &["whole \\\"a\\\"\\\"\\n\\\"", "whole b"]),
            // A quote that is never closed costs its own line and no other.
            (
                b"\"a\nb\nc\nd\ne\nf\n",
                &["open \\\"a", "whole b", "whole c", "whole d", "whole e", "whole f"],
            ),
            (b"\"a\nb", &["open \\\"a", "whole b"]),
            (b"\"a", &["open \\\"a"]),
            (b"\"12345678", &["long \\\"1234567"]),
            (b"\"123456789\nb", &["long \\\"1234567", "whole b"]),
            (b"\"1234\n6\"\nb\n", &["whole \\\"1234\\n6\\\"", "whole b"]),
            (b"\"1234\n67\"\nb\n", &["open \\\"1234", "open 67\\\"", "whole b"]),
        ];
        for (bytes, expected) in rows {
            assert_eq!(in_any_pieces(bytes, 8, true), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn all_short_texts_are_the_same_in_any_pieces() {
        const BYTES: [u8; 4] = *b"a\"\n\xEF";
        const LONGEST_TEXT: u32 = 7;
        for number in 0..4_usize.pow(LONGEST_TEXT) {
            let digits = (0..LONGEST_TEXT).map(|i| number / 4_usize.pow(i) % 4);
            let text: Vec<u8> = digits.map(|digit| BYTES[digit]).collect();
            in_any_pieces(&text, 3, false);
            in_any_pieces(&text, 3, true);
        }
    }
}
