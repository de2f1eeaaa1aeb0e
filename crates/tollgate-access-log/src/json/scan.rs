//! Reads JSON, one value at a time.
//!
//! Invariant: nesting has a limit, and nothing here recurses. Numbers and strings are only checked
//! for their end; the text between values is checked.

use memchr::memchr2;

use crate::counts::Cause;
use crate::draft::Piece;
use crate::escape::{Escape, unescape};

/// How deep objects and lists may be nested.
const DEEPEST: u32 = 64;
/// Parts of a path: each may be a part of a key or a key.
pub(super) const MOST_PARTS: usize = 6;

/// A JSON value that is at most one piece of the line.
pub(super) enum Value<'a> {
    String(Piece<'a>),
    /// A number, `true` or `false`.
    Bare(Piece<'a>),
    Null,
    /// The inside of an object follows.
    Object,
    /// The inside of a list follows.
    List,
}

pub(super) struct Scanner<'a> {
    line: &'a [u8],
    pub(super) rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    pub(super) const fn new(line: &'a [u8]) -> Self {
        Self { line, rest: line }
    }

    pub(super) fn space(&mut self) {
        while let Some((b' ' | b'\t' | b'\r' | b'\n', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn piece(&self, text: &'a [u8]) -> Piece<'a> {
        // `text` ends where `rest` begins, except for a closing quote.
        let end = self.line.len().wrapping_sub(self.rest.len());
        Piece { text, from: end.wrapping_sub(text.len()) }
    }

    /// The inside of a string whose opening quote was read.
    fn string(&mut self) -> Result<Piece<'a>, Cause> {
        let start = self.rest;
        let mut length = 0_usize;
        loop {
            let found = memchr2(b'"', b'\\', start.get(length..).unwrap_or_default());
            let at = length.wrapping_add(found.ok_or(Cause::Json)?);
            let (text, rest) = start.split_at_checked(at).ok_or(Cause::Json)?;
            if rest.first() == Some(&b'"') {
                self.rest = rest;
                let piece = self.piece(text);
                self.rest = rest.get(1..).unwrap_or_default();
                return Ok(piece);
            }
            length = at.wrapping_add(2);
        }
    }

    pub(super) fn value(&mut self) -> Result<Value<'a>, Cause> {
        let (first, rest) = self.rest.split_first().ok_or(Cause::Json)?;
        match first {
            b'"' => {
                self.rest = rest;
                self.string().map(Value::String)
            }
            b'{' => {
                self.rest = rest;
                Ok(Value::Object)
            }
            b'[' => {
                self.rest = rest;
                Ok(Value::List)
            }
            _ => {
                let is_bare = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
                let end = self.rest.iter().position(|b| !is_bare(b)).unwrap_or(self.rest.len());
                let (text, rest) = self.rest.split_at_checked(end).ok_or(Cause::Json)?;
                self.rest = rest;
                match text {
                    b"null" => Ok(Value::Null),
                    b"true" | b"false" => Ok(Value::Bare(self.piece(text))),
                    [b'-' | b'0'..=b'9', ..] => Ok(Value::Bare(self.piece(text))),
                    _ => Err(Cause::Json),
                }
            }
        }
    }

    /// A key and the colon after it; `None` at the end of the object.
    pub(super) fn key(&mut self, is_first: bool) -> Result<Option<Piece<'a>>, Cause> {
        self.space();
        if self.eat(b'}') {
            return Ok(None);
        }
        if !is_first {
            if !self.eat(b',') {
                return Err(Cause::Json);
            }
            self.space();
        }
        if !self.eat(b'"') {
            return Err(Cause::Json);
        }
        let key = self.string()?;
        self.space();
        if !self.eat(b':') {
            return Err(Cause::Json);
        }
        self.space();
        Ok(Some(key))
    }

    /// Skips the rest of an object or a list, whatever it contains.
    pub(super) fn skip(&mut self, inside: Inside) -> Result<(), Cause> {
        // One bit for each level, the innermost the lowest: whether it is an object.
        let (mut levels, mut depth) = (u64::from(inside == Inside::Object), 1_u32);
        let mut is_first = true;
        while depth > 0 {
            self.space();
            let is_object = levels & 1 == 1;
            if self.eat(if is_object { b'}' } else { b']' }) {
                levels >>= 1;
                depth = depth.wrapping_sub(1);
                is_first = false;
                continue;
            }
            if is_object {
                if self.key(is_first)?.is_none() {
                    return Err(Cause::Json);
                }
            } else if !is_first && !self.eat(b',') {
                return Err(Cause::Json);
            }
            self.space();
            let value = self.value()?;
            is_first = matches!(value, Value::Object | Value::List);
            if is_first {
                if depth == DEEPEST {
                    return Err(Cause::TooDeep);
                }
                levels = levels.wrapping_shl(1) | u64::from(matches!(value, Value::Object));
                depth = depth.wrapping_add(1);
            }
        }
        Ok(())
    }

    /// Calls `on_value` for all values that are not objects, with their paths.
    pub(super) fn walk(
        &mut self,
        on_value: &mut impl FnMut(String, Value<'a>),
    ) -> Result<(), Cause> {
        self.space();
        if !self.eat(b'{') {
            return Err(Cause::Json);
        }
        // The beginnings of paths, one for each open object.
        let mut prefixes = vec![String::new()];
        let mut is_first = true;
        while let Some(prefix) = prefixes.last() {
            let Some(key) = self.key(is_first)? else {
                prefixes.pop();
                is_first = false;
                continue;
            };
            is_first = false;
            let path = format!("{prefix}{}", plain(key.text));
            match self.value()? {
                Value::Object if prefixes.len() < MOST_PARTS => {
                    prefixes.push(format!("{path}."));
                    is_first = true;
                }
                Value::Object => self.skip(Inside::Object)?,
                Value::List => {
                    self.skip(Inside::List)?;
                    on_value(path, Value::List);
                }
                other => on_value(path, other),
            }
        }
        Ok(())
    }
}

/// A string of JSON without its escapes.
pub(super) fn plain(text: &[u8]) -> String {
    let mut out = Vec::new();
    let is_escaped = unescape(text, Escape::Json, &mut out);
    String::from_utf8_lossy(if is_escaped { &out } else { text }).into_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    Object,
    List,
}
