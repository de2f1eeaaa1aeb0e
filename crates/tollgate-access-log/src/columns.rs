//! Lines of columns: separated by tabs, or by commas with the quotes of RFC 4180.
//!
//! Invariant: a line with more columns than names can be read in more than one way, and is
//! rejected; one that ends early is valid when it has the wanted columns. Tab-separated columns
//! have no quotes and no escapes.

use memchr::{memchr, memchr_iter};

use crate::counts::Cause;
use crate::draft::{Action, Draft, Piece};
use crate::escape::Escape;
use crate::field::{Field, Wanted};
use crate::names::{Map, all_known};
use crate::source::{Ranked, actions, contains};

/// Columns a line may have.
const MOST: usize = 1000;

/// The description of the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) kind: ColumnKind,
    /// Their names; `None` until a first line has supplied them.
    pub(crate) names: Option<Vec<String>>,
    /// The first line of every file has the names.
    pub(crate) has_header: bool,
    pub(crate) map: Map,
}

/// The separator of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Tabs,
    Commas,
}

impl ColumnKind {
    const fn separator(self) -> u8 {
        match self {
            Self::Tabs => b'\t',
            Self::Commas => b',',
        }
    }

    const fn escape(self) -> Escape {
        match self {
            Self::Tabs => Escape::None,
            Self::Commas => Escape::Doubled,
        }
    }
}

impl Columns {
    /// Reads `[a,b,c],client=a`: names where the files have no header line, and a map.
    pub(crate) fn parse(kind: ColumnKind, words: &str) -> Result<Self, String> {
        let mut columns = Self { kind, names: None, has_header: true, map: Map::default() };
        let mut map = words.trim();
        if let Some(inner) = map.strip_prefix('[') {
            let Some((names, rest)) = inner.split_once(']') else {
                return Err("has a \"[\" without its \"]\"".to_owned());
            };
            columns.names = Some(names.split(',').map(|name| name.trim().to_owned()).collect());
            columns.has_header = false;
            map = rest;
        }
        columns.map.add(map)?;
        columns.check()?;
        Ok(columns)
    }

    /// These columns with the names of a header line.
    pub(crate) fn with_header(&self, line: &[u8]) -> Result<Self, String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (mut names, mut rest) = (Vec::new(), Some(line));
        while let Some(text) = rest.filter(|_| names.len() < MOST) {
            let (column, after) = self.kind.first(text).ok_or("has an open quote")?;
            let mut name = Vec::new();
            if !crate::escape::unescape(column.text, self.kind.escape(), &mut name) {
                name.extend_from_slice(column.text);
            }
            names.push(String::from_utf8_lossy(&name).trim().to_owned());
            rest = after;
        }
        let columns = Self { names: Some(names), ..self.clone() };
        columns.check()?;
        Ok(columns)
    }

    /// Checks that every mapped name exists.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(names) = &self.names else { return Ok(()) };
        match self.map.unknown(names) {
            None => Ok(()),
            Some(name) => {
                let shown: Vec<String> =
                    names.iter().take(20).map(|n| n.escape_debug().to_string()).collect();
                Err(format!("has no column {name:?}, but {}", shown.join(", ")))
            }
        }
    }

    fn sources(&self) -> Vec<Ranked> {
        let names = self.names.as_deref().unwrap_or_default();
        let mut sources = all_known(names.iter().map(String::as_str));
        for (name, source) in names.iter().zip(&mut sources) {
            if let Some(mapped) = self.map.get(name) {
                *source = mapped;
            }
        }
        sources
    }

    pub(crate) fn contains(&self, field: &Field) -> bool {
        contains(&self.sources(), field)
    }

    pub(crate) fn program(&self, wanted: &Wanted) -> ColumnProgram {
        let mut actions = actions(&self.sources(), wanted);
        let columns = actions.len();
        let last = actions.iter().rposition(|action| *action != Action::Skip);
        actions.truncate(last.map_or(0, |last| last.wrapping_add(1)));
        ColumnProgram { kind: self.kind, actions, columns }
    }
}

/// Columns, prepared to read the wanted fields.
#[derive(Clone, Debug)]
pub(crate) struct ColumnProgram {
    kind: ColumnKind,
    actions: Vec<Action>,
    columns: usize,
}

impl ColumnProgram {
    /// Reads the wanted fields of `line`.
    pub(crate) fn read(&self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        let mut rest = Some(line);
        for action in &self.actions {
            let text = rest.ok_or(Cause::Form)?;
            let (column, after) = self.kind.first(text).ok_or(Cause::Form)?;
            let from = line.len().wrapping_sub(text.len()).wrapping_add(column.from);
            let piece = Piece { text: column.text, from };
            draft.take(*action, piece, self.kind.escape())?;
            rest = after;
        }
        self.count_others(rest)
    }

    /// Checks that there are not more columns after the wanted ones than have names.
    fn count_others(&self, rest: Option<&[u8]>) -> Result<(), Cause> {
        let Some(mut text) = rest else { return Ok(()) };
        let named = self.columns.saturating_sub(self.actions.len());
        let mut others = 1_usize;
        if self.kind == ColumnKind::Tabs || memchr(b'"', text).is_none() {
            let separators = memchr_iter(self.kind.separator(), text).count();
            others = others.saturating_add(separators);
        } else {
            while let Some(after) = self.kind.first(text).ok_or(Cause::Form)?.1 {
                others = others.saturating_add(1);
                text = after;
            }
        }
        if others > named { Err(Cause::Ambiguous) } else { Ok(()) }
    }
}

impl ColumnKind {
    /// The first column of `text`, and the rest after its separator; `None` when a quote is open or
    /// is followed by other text.
    fn first(self, text: &[u8]) -> Option<(Piece<'_>, Option<&[u8]>)> {
        if let (Self::Commas, Some(quoted)) = (self, text.strip_prefix(b"\"")) {
            let end = closing_quote(quoted)?;
            let after = quoted.get(end.wrapping_add(1)..)?;
            let rest = match after.split_first() {
                None => None,
                Some((b',', rest)) => Some(rest),
                Some(_) => return None,
            };
            return Some((Piece { text: quoted.get(..end)?, from: 1 }, rest));
        }
        let Some(end) = memchr(self.separator(), text) else {
            return Some((Piece { text, from: 0 }, None));
        };
        let (column, rest) = text.split_at_checked(end)?;
        Some((Piece { text: column, from: 0 }, rest.get(1..)))
    }
}

/// The position of the first quote that is not doubled.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut from = 0_usize;
    loop {
        let at = from.wrapping_add(memchr(b'"', text.get(from..)?)?);
        if text.get(at.wrapping_add(1)) != Some(&b'"') {
            return Some(at);
        }
        from = at.wrapping_add(2);
    }
}
