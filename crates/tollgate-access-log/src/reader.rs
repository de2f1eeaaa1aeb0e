//! From bytes to records.
//!
//! Invariant: however the bytes are cut into pieces, the records are the same. A line that is
//! within one piece is read without copying; only a line that a piece cuts is stored, and never
//! more bytes than a line may have.

use std::fmt;

use crate::counts::{Cause, Counts};
use crate::draft::{Draft, MethodUse};
use crate::field::{Field, Wanted};
use crate::format::{Format, LineProgram};
use crate::lines::{Line, Lines, Utf16};
use crate::record::Record;

/// The limits of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a line before its line feed; the rest of a longer one is skipped. Default 64 KiB,
    /// which is above what nginx, Apache and Envoy accept as a whole request head.
    pub line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: 64 * 1024 }
    }
}

/// Why a log cannot be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is UTF-16, by its byte order mark.
    Utf16,
    /// Its format does not contain the time.
    NoTime,
    /// Its header line lacks a column that an earlier file has.
    OtherColumns,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Utf16 => {
                "the log is UTF-16; convert it to UTF-8, as with iconv -f UTF-16 -t UTF-8"
            }
            Self::OtherColumns => "the header line lacks a column that is needed",
            Self::NoTime => "the format has no time of the request",
        })
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Why a log that begins with `head` cannot be read in any format, if so: for a caller that
    /// found no fitting format.
    #[must_use]
    pub fn by_head(head: &[u8]) -> Option<Self> {
        let is_utf16 = head.starts_with(b"\xFF\xFE") || head.starts_with(b"\xFE\xFF");
        is_utf16.then_some(Self::Utf16)
    }
}

/// Reads the lines of logs of one format.
#[derive(Clone, Debug)]
pub struct Reader {
    lines: Lines,
    parser: Parser,
}

/// Parses lines into records.
#[derive(Clone, Debug)]
struct Parser {
    wanted: Wanted,
    format: Format,
    program: LineProgram,
    /// A line may contain line ends within quotes.
    has_quotes: bool,
    /// The next line contains the names of the columns.
    expects_header: bool,
    refused: Option<Refused>,
    draft: Draft,
    counts: Counts,
}

impl Reader {
    /// A reader of lines of `format` that parses only the fields of `wanted`.
    ///
    /// # Errors
    /// The format does not contain the time.
    pub fn new(format: &Format, wanted: Wanted, limits: Limits) -> Result<Self, Refused> {
        if !format.contains(&Field::Time) {
            return Err(Refused::NoTime);
        }
        let method = match (format.contains(&Field::Method), wanted.has(&Field::Method)) {
            (false, _) => MethodUse::NotInFormat,
            (true, false) => MethodUse::Checked,
            (true, true) => MethodUse::Wanted,
        };
        let parser = Parser {
            program: format.program(&with_method(&wanted)),
            draft: Draft::new(&wanted, format.times(), method),
            wanted,
            counts: Counts::default(),
            has_quotes: format.has_quotes(),
            expects_header: format.has_header(),
            refused: None,
            format: format.clone(),
        };
        Ok(Self { lines: Lines::new(limits.line_bytes, format.has_quotes()), parser })
    }

    /// Reads the next bytes of a file, and passes every line that ends in them to `on_record`.
    ///
    /// # Errors
    /// The file cannot be read in this format at all; no part of it was read.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        on_record: &mut impl FnMut(Record<'_>),
    ) -> Result<(), Refused> {
        let fed = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.parser.counts.bytes = self.parser.counts.bytes.wrapping_add(fed);
        let parser = &mut self.parser;
        let read = self.lines.feed(bytes, &mut |line| parser.line(line, on_record));
        read.map_err(|Utf16| Refused::Utf16)?;
        parser.refused.map_or(Ok(()), Err)
    }

    /// Ends a file: its last line may have no end. The next bytes belong to another file.
    ///
    /// # Errors
    /// As for [`feed`](Self::feed).
    pub fn finish(&mut self, on_record: &mut impl FnMut(Record<'_>)) -> Result<(), Refused> {
        let parser = &mut self.parser;
        self.lines.finish(&mut |line| parser.line(line, on_record));
        parser.expects_header = parser.format.has_header();
        parser.counts.line = 0;
        parser.refused.take().map_or(Ok(()), Err)
    }

    /// The results of reading lines so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.parser.counts
    }
}

/// The fields to search for in a line, with the method: a line without a method is not a request.
fn with_method(wanted: &Wanted) -> Wanted {
    Wanted::new(wanted.fields().iter().cloned().chain([Field::Method]))
}

impl Parser {
    fn line(&mut self, line: Line<'_>, on_record: &mut impl FnMut(Record<'_>)) {
        self.counts.line = self.counts.line.wrapping_add(1);
        match line {
            Line::Whole(line) if self.expects_header => self.header(line),
            _ if self.refused.is_some() => {}
            Line::Whole(line) => self.whole(line, on_record),
            Line::TooLong(beginning) => self.counts.unreadable(Cause::TooLong, beginning),
            Line::OpenQuote(line) => self.counts.unreadable(Cause::OpenQuote, line),
        }
    }

    /// Reads the header, which defines where the wanted columns of this file are.
    fn header(&mut self, line: &[u8]) {
        self.expects_header = false;
        let needed = self.wanted.fields().iter().filter(|field| self.format.contains(field));
        match self.format.fit(line) {
            Ok(fitted) if needed.into_iter().all(|field| fitted.contains(field)) => {
                self.program = fitted.program(&with_method(&self.wanted));
            }
            Ok(_) | Err(_) => self.refused = Some(Refused::OtherColumns),
        }
    }

    fn whole(&mut self, line: &[u8], on_record: &mut impl FnMut(Record<'_>)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.counts.empty();
            return;
        }
        self.draft.clear();
        let read = self.program.read(line, &mut self.draft);
        match read.and_then(|()| self.draft.record(line, &self.wanted)) {
            Ok(record) => {
                self.counts.record();
                on_record(record);
            }
            Err(cause) => self.counts.unreadable(cause, line),
        }
        if self.has_quotes {
            let within = memchr::memchr_iter(b'\n', line).count();
            let within = u64::try_from(within).unwrap_or(u64::MAX);
            self.counts.line = self.counts.line.wrapping_add(within);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Client;

    #[test]
    fn a_line_of_the_combined_format_becomes_a_record() {
        let fields = ["client", "method", "target", "status", "header.user-agent", "user"];
        let wanted = Wanted::new(fields.iter().filter_map(|words| Field::parse(words)));
        let format = Format::parse("combined").unwrap();
        let mut reader = Reader::new(&format, wanted, Limits::default()).unwrap();
        let log = br#"192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=\x22 HTTP/1.1" 429 7 "-" "curl \"8\"""#;
        let mut records = 0;
        let mut check = |record: Record<'_>| {
            records += 1;
            assert_eq!(record.time.unix_ns, 971_211_336_000_000_000);
            assert_eq!(record.client, Some(Client::Address("192.0.2.1".parse().unwrap())));
            assert_eq!(record.method(), Some(&b"GET"[..]));
            assert_eq!(record.target(), Some(&b"/a?b=\""[..]));
            assert_eq!(record.status, Some(429));
            assert_eq!(record.header("user-agent"), Some(&b"curl \"8\""[..]));
            assert_eq!(record.user(), None);
        };
        reader.feed(log, &mut check).unwrap();
        reader.finish(&mut check).unwrap();
        assert_eq!(records, 1);
        assert_eq!((reader.counts().lines, reader.counts().records), (1, 1));
    }

    #[test]
    fn samples_have_the_number_of_their_line_in_its_file() {
        let format = Format::parse("csv").unwrap().fit(b"time,client\n").unwrap();
        let wanted = Wanted::new([Field::Client]);
        let mut reader = Reader::new(&format, wanted, Limits::default()).unwrap();
        for log in ["time,client\n1,\"a\nb\"\nx,c\n\n", "time,client\nx,d"] {
            reader.feed(log.as_bytes(), &mut |_| {}).unwrap();
            reader.finish(&mut |_| {}).unwrap();
        }
        let lines: Vec<u64> = reader.counts().samples().iter().map(|sample| sample.line).collect();
        assert_eq!(lines, [4, 2]);
        // Another file of other columns is rejected, and one in another order is read.
        let mut clients = vec![];
        let mut keep = |record: Record<'_>| clients.push(format!("{:?}", record.client));
        let refused = reader.feed(b"time,ip address\n1,a\n", &mut keep);
        assert_eq!(refused, Err(Refused::OtherColumns));
        assert_eq!(reader.finish(&mut keep), Err(Refused::OtherColumns));
        reader.feed(b"client,time\n192.0.2.1,1\n", &mut keep).unwrap();
        assert_eq!(clients, ["Some(Address(192.0.2.1))"]);
    }
}
