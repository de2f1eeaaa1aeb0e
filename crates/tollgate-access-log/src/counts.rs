//! The results of reading lines: counted by cause, with a few samples.
//!
//! Invariant: `lines` is the sum of `records`, `empty` and all unparsable lines. However many lines
//! are wrong and however long they are, the memory kept for them is bounded.

use std::fmt;

/// Why a line could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It is longer than a line may be.
    TooLong,
    /// It does not have the form of the format.
    Form,
    /// It can be read in more than one way.
    Ambiguous,
    /// It is not a JSON object.
    Json,
    /// Its JSON is nested too deep.
    TooDeep,
    /// It has a quote that is not closed.
    OpenQuote,
    /// It has no time in a known form.
    Time,
    /// Its time is before 1970 or after 2554, which no limiter sees.
    TimeOutOfRange,
    /// It has no HTTP request: servers write such lines for requests that they reject unread. A
    /// line without a method is one of these, where the format has methods.
    NoRequest,
}

/// Every cause, in the order of the counts.
const CAUSES: [Cause; 9] = [
    Cause::TooLong,
    Cause::Form,
    Cause::Ambiguous,
    Cause::Json,
    Cause::TooDeep,
    Cause::OpenQuote,
    Cause::Time,
    Cause::TimeOutOfRange,
    Cause::NoRequest,
];

impl Cause {
    /// The cause in one word or two, for a column: `too-long`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too-long",
            Self::Form => "form",
            Self::Ambiguous => "ambiguous",
            Self::Json => "json",
            Self::TooDeep => "too-deep",
            Self::OpenQuote => "open-quote",
            Self::Time => "time",
            Self::TimeOutOfRange => "time-out-of-range",
            Self::NoRequest => "no-request",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "longer than a line can be",
            Self::Form => "not in the form of the format",
            Self::Ambiguous => "can be read in more than one way",
            Self::Json => "not a JSON object",
            Self::TooDeep => "JSON nested too deep",
            Self::OpenQuote => "a quote that is not closed",
            Self::Time => "no time in a known format",
            Self::TimeOutOfRange => "a time before 1970 or after 2554",
            Self::NoRequest => "not an HTTP request",
        })
    }
}

/// Samples of one cause that are kept.
const SAMPLES_PER_CAUSE: u64 = 3;
/// Bytes of a line that a sample shows.
const SAMPLE_BYTES: usize = 160;

/// One line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its number in its file, from 1; a header line and lines within quotes count here.
    pub line: u64,
    /// Why it could not be read.
    pub cause: Cause,
    /// Its first 160 bytes; every byte that is not printable ASCII is escaped, `\x1b`.
    pub text: String,
}

/// The results of reading lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that were read.
    pub bytes: u64,
    /// Lines in all, without a header line; a quoted line end does not end a line.
    pub lines: u64,
    /// Lines that became records.
    pub records: u64,
    /// Empty lines.
    pub empty: u64,
    unparsable: [u64; CAUSES.len()],
    samples: Vec<Sample>,
    /// The number of the current line in its file.
    pub(crate) line: u64,
}

impl Counts {
    /// The number of unparsable lines, for each cause that occurred.
    pub fn unparsable(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        CAUSES.into_iter().zip(self.unparsable).filter(|(_, count)| *count > 0)
    }

    /// The first three lines of each cause, in the order of the log.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Counts a line that became a record.
    pub(crate) const fn record(&mut self) {
        self.lines = self.lines.wrapping_add(1);
        self.records = self.records.wrapping_add(1);
    }

    pub(crate) const fn empty(&mut self) {
        self.lines = self.lines.wrapping_add(1);
        self.empty = self.empty.wrapping_add(1);
    }

    #[cold]
    pub(crate) fn unreadable(&mut self, cause: Cause, line: &[u8]) {
        self.lines = self.lines.wrapping_add(1);
        let Some((_, count)) =
            CAUSES.into_iter().zip(&mut self.unparsable).find(|(known, _)| *known == cause)
        else {
            debug_assert!(false, "{cause:?} is not among the causes");
            return;
        };
        *count = count.wrapping_add(1);
        if *count <= SAMPLES_PER_CAUSE {
            let shown = line.get(..SAMPLE_BYTES).unwrap_or(line);
            let text = shown.escape_ascii().to_string();
            self.samples.push(Sample { line: self.line, cause, text });
        }
    }
}
