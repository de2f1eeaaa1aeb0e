//! Tables: typed columns, and cells in units.
//!
//! Invariant: a row has as many cells as the table has columns. A cell contains the measured value;
//! it is formatted when it is written.

use crate::words;

/// Decimals of a second with which all times of a column are written, once one has milliseconds.
const MILLISECONDS: usize = 3;

/// The content of a column, which defines its format and alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text; aligned left, and cut where a terminal is too narrow.
    Text,
    /// A whole number: `1,027`.
    Count,
    /// A difference: `+12`, `-3`.
    Change,
    /// A number with a fraction: `49.50`.
    Number,
    /// A part of a whole, in percent.
    Share,
    /// A point in time, in UTC.
    Time,
    /// A length of time.
    Duration,
    /// A size in bytes.
    Bytes,
}

/// One value. Its kind is its column's.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// The value is unknown, or does not apply: `-`. Zero is a value.
    Empty,
    /// Untrusted text.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A difference.
    Change(i64),
    /// A number with a fraction.
    Number(f64),
    /// A part of a whole.
    Share {
        /// The part.
        part: u64,
        /// The whole; there is no share if it is 0.
        whole: u64,
    },
    /// Milliseconds since 1970-01-01T00:00:00Z.
    Time(i64),
    /// Nanoseconds.
    Duration(u64),
    /// Bytes.
    Bytes(u64),
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// `part` of `whole`: 1 of 4 is 25 %.
    #[must_use]
    pub const fn share(part: u64, whole: u64) -> Self {
        Self::Share { part, whole }
    }

    /// In words for people, with two decimals: for a note next to another figure.
    #[must_use]
    pub fn to_words(&self) -> String {
        self.words(2)
    }

    /// In words for people, before any escape; `decimals` for shares and numbers.
    pub(crate) fn words(&self, decimals: usize) -> String {
        match self {
            Self::Empty => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Count(number) => words::count(*number),
            Self::Change(number) => words::change(*number),
            Self::Number(number) => words::number(*number, decimals),
            Self::Share { part, whole } => words::share(*part, *whole, decimals),
            Self::Time(at) if decimals >= MILLISECONDS => words::time_ms(*at),
            Self::Time(at) => words::time(*at),
            Self::Duration(nanos) => words::duration(*nanos),
            Self::Bytes(count) => words::bytes(*count),
        }
    }

    /// For programs: plain digits, shares of 1, seconds, bytes, RFC 3339. Empty for
    /// [`Cell::Empty`].
    pub(crate) fn raw(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Text(text) => text.clone(),
            Self::Count(number) | Self::Bytes(number) => number.to_string(),
            Self::Change(number) => number.to_string(),
            Self::Number(number) if !number.is_finite() => String::new(),
            Self::Number(number) => number.to_string(),
            Self::Share { part, whole } => words::raw_share(*part, *whole),
            Self::Time(at) => words::rfc3339(*at),
            Self::Duration(nanos) => words::raw_duration(*nanos),
        }
    }

    const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Empty => None,
            Self::Text(_) => Some(Kind::Text),
            Self::Count(_) => Some(Kind::Count),
            Self::Change(_) => Some(Kind::Change),
            Self::Number(_) => Some(Kind::Number),
            Self::Share { .. } => Some(Kind::Share),
            Self::Time(_) => Some(Kind::Time),
            Self::Duration(_) => Some(Kind::Duration),
            Self::Bytes(_) => Some(Kind::Bytes),
        }
    }
}

/// The head of a column.
#[derive(Clone, Debug)]
pub struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) decimals: usize,
}

impl Column {
    /// A column of any kind; shares and numbers have two decimals.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), kind, decimals: 2 }
    }

    /// Text.
    pub fn text(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Text)
    }

    /// Whole numbers.
    pub fn count(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Count)
    }

    /// Differences.
    pub fn change(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Change)
    }

    /// Numbers with a fraction.
    pub fn number(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Number)
    }

    /// Parts of a whole.
    pub fn share(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Share)
    }

    /// Points in time.
    pub fn time(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Time)
    }

    /// Lengths of time.
    pub fn duration(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Duration)
    }

    /// Sizes.
    pub fn bytes(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Bytes)
    }

    /// How many digits a share or a number has after the point; at most 9.
    #[must_use]
    pub const fn decimals(mut self, decimals: usize) -> Self {
        self.decimals = if decimals > 9 { 9 } else { decimals };
        self
    }

    /// True when the column is aligned right.
    pub(crate) const fn is_right(&self) -> bool {
        !matches!(self.kind, Kind::Text)
    }

    /// The name in a file for programs, with the unit that its kind has there.
    pub(crate) fn raw_name(&self) -> String {
        match self.kind {
            Kind::Duration => format!("{} (s)", self.name),
            Kind::Bytes => format!("{} (bytes)", self.name),
            Kind::Share => format!("{} (of 1)", self.name),
            Kind::Text | Kind::Count | Kind::Change | Kind::Number | Kind::Time => {
                self.name.clone()
            }
        }
    }
}

/// A table with a caption.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) name: String,
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) omitted: u64,
}

impl Table {
    /// A table without columns yet. Programs find it in CSV by `name`, a short word that does not
    /// change; `caption` is for people.
    pub fn new(name: impl Into<String>, caption: impl Into<String>) -> Self {
        let (columns, rows) = (Vec::new(), Vec::new());
        Self { name: name.into(), caption: caption.into(), columns, rows, omitted: 0 }
    }

    /// The table with one more column at its right; before the first row.
    #[must_use]
    pub fn column(mut self, column: Column) -> Self {
        debug_assert!(self.rows.is_empty(), "columns come before rows");
        self.columns.push(column);
        self
    }

    /// Adds a row. Missing cells are empty; cells without a column are left out.
    pub fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = cells.into_iter().collect();
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column: {}", self.name);
        debug_assert!(
            row.iter().zip(&self.columns).all(|(cell, column)| {
                cell.kind().is_none_or(|kind| kind == column.kind || column.kind == Kind::Text)
            }),
            "a cell of another kind than its column: {row:?}"
        );
        row.resize(self.columns.len(), Cell::Empty);
        for (cell, column) in row.iter().zip(&mut self.columns) {
            if matches!(cell, Cell::Time(at) if at.rem_euclid(1_000) != 0) {
                column.decimals = MILLISECONDS;
            }
        }
        self.rows.push(row);
    }

    /// The table with a note at its end that this many more rows were left out.
    #[must_use]
    pub const fn and_omitted(mut self, rows: u64) -> Self {
        self.omitted = rows;
        self
    }

    /// True without rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// `and 1,234 more`, where rows were left out.
    pub(crate) fn more(&self) -> Option<String> {
        (self.omitted > 0).then(|| format!("and {} more", words::count(self.omitted)))
    }

    /// The words of a row's cells, each with its column.
    pub(crate) fn words<'a>(
        &'a self,
        row: &'a [Cell],
    ) -> impl Iterator<Item = (&'a Column, String)> + 'a {
        self.columns.iter().zip(row).map(|(column, cell)| (column, cell.words(column.decimals)))
    }
}
