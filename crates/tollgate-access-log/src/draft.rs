//! A record in preparation: the parts of a line that have been found so far.
//!
//! Invariant: only escaped text is copied. Every format fills this one form, so the meaning of a
//! method, a client or a missing value is defined once, here.

use std::net::IpAddr;

use crate::address;
use crate::counts::Cause;
use crate::escape::{Escape, unescape};
use crate::field::{Field, Wanted, fixed_place};
use crate::record::{Client, Place, Record, Texts, Time};
use crate::request_line::request_line;
use crate::strftime::Strftime;
use crate::time;

/// The form of a time in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// Guessed from the text.
    Any,
    /// The common log format's.
    Common,
    /// ISO 8601.
    Iso,
    /// Seconds since 1970 and their parts.
    Epoch,
    /// The form with this number in the format's own list.
    Custom(usize),
}

/// The use of a piece of a line.
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

/// The place of the client's text.
const CLIENT: usize = 7;

/// The purpose for which the method is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodUse {
    /// The format does not contain it.
    NotInFormat,
    /// A line without one is not a request, whichever fields are wanted.
    Checked,
    /// The caller wants it, too.
    Wanted,
}

/// The fields parsed from one log line.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    time: Option<Time>,
    /// The client, where it is an address that needs no further parsing.
    client: Option<IpAddr>,
    status: Option<u16>,
    places: Vec<Place>,
    unescaped: Vec<u8>,
    /// The position in `unescaped` of a path and a query that form the target together.
    path: Option<(usize, usize)>,
    query: Option<(usize, usize)>,
    /// The keys of a JSON object that were found.
    pub(crate) seen: Vec<bool>,
    /// The last time read and its text: many lines have the same.
    known: Option<(Time, Vec<u8>)>,
    /// The literal after that time was found by a search from the time's beginning, so it does not
    /// occur earlier in the same bytes.
    is_found_first: bool,
    times: Vec<Strftime>,
    method: MethodUse,
}

/// A piece of a line and its position in the line.
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
    /// A draft for lines of a format that has its own `times`.
    pub(crate) fn new(wanted: &Wanted, times: Vec<Strftime>, method: MethodUse) -> Self {
        let places = vec![Place::Absent; wanted.values()];
        Self {
            time: None,
            client: None,
            status: None,
            places,
            unescaped: Vec::new(),
            path: None,
            query: None,
            seen: Vec::new(),
            known: None,
            is_found_first: false,
            times,
            method,
        }
    }

    /// Clears the previous line.
    pub(crate) fn clear(&mut self) {
        self.time = None;
        self.status = None;
        self.client = None;
        self.places.fill(Place::Absent);
        self.unescaped.clear();
        self.path = None;
        self.query = None;
    }

    /// Reads a piece according to `action`.
    pub(crate) fn take(
        &mut self,
        action: Action,
        piece: Piece<'_>,
        escape: Escape,
    ) -> Result<(), Cause> {
        match action {
            Action::Skip => {}
            Action::Time(form) => self.time = Some(self.escaped_time(piece.text, form, escape)?),
            Action::Status => self.status = status(piece.text)?,
            Action::Request { method, target } => {
                self.request(piece, escape, RequestParts { method, target })?;
            }
            Action::Text(place) => self.put(Some(place), piece, escape),
            Action::Path => self.path = self.copied(piece.text, escape),
            Action::Query => self.query = self.copied(piece.text, escape),
        }
        Ok(())
    }

    /// Whether `action` can read the piece: a time or a status; a text may be anything.
    pub(crate) fn accepts(&mut self, action: Action, piece: Piece<'_>, escape: Escape) -> bool {
        match action {
            Action::Time(form) => self.escaped_time(piece.text, form, escape).is_ok(),
            Action::Status => status(piece.text).is_ok(),
            Action::Request { .. } | Action::Skip | Action::Text(_) => true,
            Action::Path | Action::Query => true,
        }
    }

    /// Reads the beginning of `rest` if it can be recognised without searching for its end: an
    /// address of version 4, or the same time again. Returns the bytes after it.
    #[inline]
    pub(crate) fn take_at_once<'a>(&mut self, action: Action, rest: &'a [u8]) -> Option<&'a [u8]> {
        match action {
            Action::Text(CLIENT) => {
                let (client, behind) = address::leading_ipv4(rest)?;
                self.client = Some(client);
                Some(behind)
            }
            Action::Time(_) => {
                let (time, known) = self.known.as_ref().filter(|_| self.is_found_first)?;
                let (text, behind) = rest.split_at_checked(known.len())?;
                self.time = is_same(known, text).then_some(*time);
                self.time.is_some().then_some(behind)
            }
            Action::Skip | Action::Status | Action::Request { .. } => None,
            Action::Text(_) | Action::Path | Action::Query => None,
        }
    }

    /// Records that the piece read last ends at the first occurrence of its literal.
    pub(crate) fn found_first(&mut self, action: Action) {
        self.is_found_first |= matches!(action, Action::Time(_));
    }

    /// Discards a piece read at once that was not a whole text.
    pub(crate) const fn forget(&mut self, action: Action) {
        match action {
            Action::Text(CLIENT) => self.client = None,
            Action::Time(_) => self.time = None,
            Action::Skip | Action::Status | Action::Request { .. } => {}
            Action::Text(_) | Action::Path | Action::Query => {}
        }
    }

    /// Stores a text at its place; logs write `-` or nothing for a missing value.
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

    /// Copies a text without its escapes, and returns its position; `None` for `-` and an empty
    /// text.
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

    /// Joins path and query to the target, where the line has them separately.
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

    /// Adds one of several values to a text.
    pub(crate) fn join(&mut self, action: Action, text: &[u8], escape: Escape) {
        let Action::Text(place) = action else { return };
        if place == CLIENT {
            // The last one of a list of clients is the client.
            self.client = None;
        }
        let Some(place) = self.places.get_mut(place) else { return };
        let from = match *place {
            Place::Unescaped(from, _) => {
                self.unescaped.extend_from_slice(b", ");
                from
            }
            Place::Absent | Place::Line(..) => self.unescaped.len(),
        };
        if !unescape(text, escape, &mut self.unescaped) {
            self.unescaped.extend_from_slice(text);
        }
        *place = Place::Unescaped(from, self.unescaped.len());
    }

    /// Reads the parts of a request line.
    fn request(
        &mut self,
        piece: Piece<'_>,
        escape: Escape,
        wanted: RequestParts,
    ) -> Result<(), Cause> {
        let start = self.unescaped.len();
        let is_unescaped = unescape(piece.text, escape, &mut self.unescaped);
        let text =
            if is_unescaped { self.unescaped.get(start..).unwrap_or_default() } else { piece.text };
        let (method, target) = request_line(text, wanted.target).ok_or(Cause::NoRequest)?;
        let place = |(from, to): (usize, usize)| {
            if is_unescaped {
                Place::Unescaped(start.wrapping_add(from), start.wrapping_add(to))
            } else {
                Place::Line(piece.from.wrapping_add(from), piece.from.wrapping_add(to))
            }
        };
        let parts =
            [(wanted.method, Field::Method, method), (wanted.target, Field::Target, target)];
        for (_, field, part) in parts.into_iter().filter(|(is_wanted, _, _)| *is_wanted) {
            if let Some(at) = fixed_place(&field).and_then(|at| self.places.get_mut(at)) {
                *at = place(part);
            }
        }
        Ok(())
    }

    /// Reads a time in which a slash may be escaped, as some JSON writers do.
    fn escaped_time(&mut self, text: &[u8], form: TimeForm, escape: Escape) -> Result<Time, Cause> {
        let read = self.read_time(text, form);
        if read.is_ok() {
            return read;
        }
        let start = self.unescaped.len();
        let Some((from, to)) = self.copied(text, escape) else { return read };
        let plain = self.unescaped.get(from..to).unwrap_or_default().to_vec();
        self.unescaped.truncate(start);
        self.read_time(&plain, form)
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
            TimeForm::Custom(number) => match self.times.get(number) {
                Some(form) => form.read(text),
                None => Err(Cause::Time),
            },
        }?;
        let (known, kept) = self.known.get_or_insert_default();
        *known = time;
        kept.clear();
        kept.extend_from_slice(text);
        self.is_found_first = false;
        Ok(time)
    }

    /// The record, if the line has a time.
    pub(crate) fn record<'a>(
        &'a mut self,
        line: &'a [u8],
        wanted: &'a Wanted,
    ) -> Result<Record<'a>, Cause> {
        self.join_target();
        let time = self.time.ok_or(Cause::Time)?;
        if self.method != MethodUse::NotInFormat
            && let Some(method) = fixed_place(&Field::Method).and_then(|at| self.places.get_mut(at))
        {
            if *method == Place::Absent {
                return Err(Cause::NoRequest);
            }
            if self.method == MethodUse::Checked {
                *method = Place::Absent;
            }
        }
        let texts = Texts { wanted, line, unescaped: &self.unescaped, places: &self.places };
        let text_of = |field| fixed_place(field).and_then(|place| texts.get(place));
        let client = match self.client {
            Some(address) => Some(Client::Address(address)),
            None => text_of(&Field::Client).and_then(address::client),
        };
        let peer = match text_of(&Field::Peer).and_then(address::client) {
            Some(Client::Address(address)) => Some(address),
            Some(Client::Name(_)) | None => None,
        };
        Ok(Record { time, client, peer, status: self.status, texts })
    }
}

/// `one == other`, for texts of some twenty bytes that are nearly always the same: eight of them
/// at a time, without a call.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (ones, one_rest) = one.as_chunks::<8>();
    let (others, other_rest) = other.as_chunks::<8>();
    let differing = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b);
    one.len() == other.len()
        && ones.iter().zip(others).fold(0, |bits, pair| bits | differing(pair)) == 0
        && one_rest.iter().zip(other_rest).all(|(a, b)| a == b)
}

/// A status of three digits; `-`, an empty text, `0` and `000` mean that there was no response.
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

/// The wanted parts of a request line.
#[derive(Clone, Copy)]
struct RequestParts {
    method: bool,
    target: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_place_is_the_clients() {
        assert_eq!(fixed_place(&Field::Client), Some(CLIENT));
    }
}
