//! A line on its way to a record: what has been found of it so far.
//!
//! Invariant: nothing is copied but what is escaped. Every format fills this one form, so what a
//! method, a client or a missing value is, is said once, here.

use crate::address;
use crate::counts::Cause;
use crate::escape::{Escape, unescape};
use crate::field::{Field, Wanted, fixed_place};
use crate::record::{Client, Place, Record, Texts, Time};
use crate::time;

/// How a column writes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// As the text looks.
    Any,
    /// The common log format's.
    Common,
    /// ISO 8601.
    Iso,
    /// Seconds since 1970 and their parts.
    Epoch,
}

/// What is done with a piece of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Skip,
    Time(TimeForm),
    Status,
    /// A request line: its method, its target, or both.
    Request {
        method: bool,
        target: bool,
    },
    /// A text, to this place.
    Text(usize),
    /// A path without its query, to the target's place.
    Path,
    /// A query without its question mark, to the end of the target.
    Query,
}

/// What a line told.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    time: Option<Time>,
    status: Option<u16>,
    places: Vec<Place>,
    unescaped: Vec<u8>,
    /// Where in `unescaped` a path and a query are that make the target together.
    path: Option<(usize, usize)>,
    query: Option<(usize, usize)>,
    /// The last time read and its text: many lines have the same.
    known: Option<(Time, Vec<u8>)>,
}

/// A piece of a line and where in the line it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) from: usize,
}

impl Piece<'_> {
    const fn place(self) -> Place {
        Place::Line(self.from, self.from.wrapping_add(self.text.len()))
    }
}

impl Draft {
    pub(crate) fn new(wanted: &Wanted) -> Self {
        let places = vec![Place::Absent; wanted.values()];
        let (unescaped, path, query) = (Vec::new(), None, None);
        Self { time: None, status: None, places, unescaped, path, query, known: None }
    }

    /// Forgets the line before.
    pub(crate) fn clear(&mut self) {
        self.time = None;
        self.status = None;
        self.places.fill(Place::Absent);
        self.unescaped.clear();
        self.path = None;
        self.query = None;
    }

    /// Takes what `action` makes of a piece.
    pub(crate) fn take(
        &mut self,
        action: Action,
        piece: Piece<'_>,
        escape: Escape,
    ) -> Result<(), Cause> {
        match action {
            Action::Skip => {}
            Action::Time(form) => self.time = Some(self.read_time(piece.text, form)?),
            Action::Status => self.status = status(piece.text)?,
            Action::Request { method, target } => {
                let (found_method, found_target) = request_line(piece).ok_or(Cause::NoRequest)?;
                if method {
                    self.put(fixed_place(&Field::Method), found_method, escape);
                }
                if target {
                    self.put(fixed_place(&Field::Target), found_target, escape);
                }
            }
            Action::Text(place) => self.put(Some(place), piece, escape),
            Action::Path => self.path = self.copied(piece.text, escape),
            Action::Query => self.query = self.copied(piece.text, escape),
        }
        Ok(())
    }

    /// Puts a text to its place; `-` and nothing are how logs say that there is none.
    fn put(&mut self, place: Option<usize>, piece: Piece<'_>, escape: Escape) {
        let Some(place) = place.and_then(|place| self.places.get_mut(place)) else { return };
        if matches!(piece.text, b"" | b"-") {
            return;
        }
        let from = self.unescaped.len();
        *place = if unescape(piece.text, escape, &mut self.unescaped) {
            Place::Unescaped(from, self.unescaped.len())
        } else {
            piece.place()
        };
    }

    /// Copies a text without its escapes, and gives where it is; `None` for `-` and nothing.
    fn copied(&mut self, text: &[u8], escape: Escape) -> Option<(usize, usize)> {
        if matches!(text, b"" | b"-") {
            return None;
        }
        let from = self.unescaped.len();
        if !unescape(text, escape, &mut self.unescaped) {
            self.unescaped.extend_from_slice(text);
        }
        Some((from, self.unescaped.len()))
    }

    /// Makes the target of its path and its query, where they came apart.
    fn join_target(&mut self) {
        let Some((from, to)) = self.path else { return };
        let place = match self.query {
            None => Place::Unescaped(from, to),
            Some(query) => {
                let start = self.unescaped.len();
                self.unescaped.extend_from_within(from..to);
                self.unescaped.push(b'?');
                self.unescaped.extend_from_within(query.0..query.1);
                Place::Unescaped(start, self.unescaped.len())
            }
        };
        if let Some(target) = fixed_place(&Field::Target).and_then(|at| self.places.get_mut(at)) {
            *target = place;
        }
    }

    fn read_time(&mut self, text: &[u8], form: TimeForm) -> Result<Time, Cause> {
        if let Some((time, known)) = &self.known
            && is_same(known, text)
        {
            return Ok(*time);
        }
        let time = match form {
            TimeForm::Any => time::any(text),
            TimeForm::Common => time::common(text),
            TimeForm::Iso => time::iso(text),
            TimeForm::Epoch => time::epoch(text),
        }?;
        let (known, kept) = self.known.get_or_insert_default();
        *known = time;
        kept.clear();
        kept.extend_from_slice(text);
        Ok(time)
    }

    /// The record, if the line told a time.
    pub(crate) fn record<'a>(
        &'a mut self,
        line: &'a [u8],
        wanted: &'a Wanted,
    ) -> Result<Record<'a>, Cause> {
        self.join_target();
        let texts = Texts { wanted, line, unescaped: &self.unescaped, places: &self.places };
        let time = self.time.ok_or(Cause::Time)?;
        let text_of = |field| fixed_place(field).and_then(|place| texts.get(place));
        let client = text_of(&Field::Client).and_then(address::client);
        let peer = match text_of(&Field::Peer).and_then(address::client) {
            Some(Client::Address(address)) => Some(address),
            Some(Client::Name(_)) | None => None,
        };
        Ok(Record { time, client, peer, status: self.status, texts })
    }
}

/// `one == other`, for texts of some twenty bytes that are nearly always the same: eight of them at a
/// time, without a call.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (ones, one_rest) = one.as_chunks::<8>();
    let (others, other_rest) = other.as_chunks::<8>();
    let differing = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b);
    one.len() == other.len()
        && ones.iter().zip(others).fold(0, |bits, pair| bits | differing(pair)) == 0
        && one_rest.iter().zip(other_rest).all(|(a, b)| a == b)
}

/// A status of three digits; `-`, nothing, `0` and `000` are no answer.
fn status(text: &[u8]) -> Result<Option<u16>, Cause> {
    match *text {
        [] | [b'-'] | [b'0'] => Ok(None),
        [a, b, c] => {
            let number = time::number([a, b, c]).ok_or(Cause::Form)?;
            Ok(u16::try_from(number).ok().filter(|number| *number > 0))
        }
        _ => Err(Cause::Form),
    }
}

/// The method and the target of `GET /a HTTP/1.1`; the version may be missing. `None` for what
/// begins with no method, and for a target with control bytes or nothing in it.
fn request_line(line: Piece<'_>) -> Option<(Piece<'_>, Piece<'_>)> {
    let end = memchr::memchr(b' ', line.text)?;
    let (method, rest) = line.text.split_at_checked(end)?;
    let (_, rest) = rest.split_first()?;
    let is_token = |b: &u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b'_');
    if method.is_empty() || !method.iter().all(is_token) {
        return None;
    }
    let target = match memchr::memrchr(b' ', rest).and_then(|at| rest.split_at_checked(at)) {
        Some((target, version)) if version.starts_with(b" HTTP/") => target,
        _ => rest,
    };
    if target.is_empty() {
        return None;
    }
    let from = line.from.wrapping_add(end).wrapping_add(1);
    Some((Piece { text: method, from: line.from }, Piece { text: target, from }))
}
