//! Pointers into a JSON document (RFC 6901), followed while the document passes.
//!
//! Invariant: of the document only a position is kept: how much of each pointer the current place
//! matches. Names are compared as they come, so a name or a value may have any length.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The most containers in one another that are followed.
pub const MAX_DEPTH: usize = 64;

/// The most digits of a number that is read; more are more than any maximum.
const MAX_DIGITS: u8 = 15;

/// True for a pointer that a document of at most [`MAX_DEPTH`] containers can have (RFC 6901, 3).
#[must_use]
pub fn is_pointer(text: &str) -> bool {
    let begins = text.is_empty() || text.starts_with('/');
    let mut after_tilde = text.split('~').skip(1);
    let is_escaped = after_tilde.all(|rest| rest.starts_with(['0', '1']));
    begins && is_escaped && text.split('/').count() <= MAX_DEPTH.saturating_add(1)
}

/// The number that a document has at a pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Found {
    /// Nothing is there.
    #[default]
    Absent,
    /// A number of digits alone. 16 digits or more are `u64::MAX`.
    Number(u64),
    /// Anything else, or a document that is not JSON.
    Unreadable,
    /// One document has two different values there.
    Conflicting,
    /// The body ended before its document did.
    Incomplete,
}

/// The places of all pointers.
pub(crate) struct Places {
    places: Vec<Place>,
    /// The most levels that one of them matches.
    deepest: usize,
    digits: Digits,
}

/// One pointer, and how much of it the current place matches.
struct Place {
    pointer: Box<str>,
    /// Bytes of it that match.
    matched: usize,
    /// Levels of it that match.
    levels: usize,
    /// The end of the bytes that match the current name; `None` once one does not.
    compared: Option<usize>,
    /// The number of the current element, in an array on the way.
    index: u32,
    /// In the current document.
    seen: Found,
    /// In the last document that was valid and had a value there.
    last: Found,
}

/// A number in digits.
#[derive(Default)]
struct Digits {
    value: u64,
    count: u8,
}

impl Digits {
    fn push(&mut self, digit: u8) {
        self.count = self.count.saturating_add(1);
        let digit = u64::from(digit.saturating_sub(b'0'));
        self.value = self.value.saturating_mul(10).saturating_add(digit);
    }

    const fn found(&self) -> Found {
        Found::Number(if self.count > MAX_DIGITS { u64::MAX } else { self.value })
    }
}

impl Places {
    pub(crate) fn new<'a>(pointers: impl Iterator<Item = &'a str>) -> Self {
        let place = |pointer: &str| Place {
            pointer: pointer.into(),
            matched: 0,
            levels: 0,
            compared: None,
            index: 0,
            seen: Found::Absent,
            last: Found::Absent,
        };
        Self { places: pointers.map(place).collect(), deepest: 0, digits: Digits::default() }
    }

    /// The value at `pointer` in the last valid document that has one there.
    pub(crate) fn found(&self, pointer: &str) -> Found {
        let place = self.places.iter().find(|place| &*place.pointer == pointer);
        place.map_or(Found::Absent, |place| place.last)
    }

    /// Those that an element of a container at `depth` may be on the way of.
    fn on_the_way(&mut self, depth: usize) -> impl Iterator<Item = &mut Place> {
        let above = depth.checked_sub(1);
        let is_near = above.is_some_and(|above| above <= self.deepest);
        let places = if is_near { self.places.as_mut_slice() } else { &mut [] };
        places.iter_mut().filter(move |place| Some(place.levels) == above)
    }

    pub(crate) fn begin_name(&mut self, depth: usize) {
        for place in self.on_the_way(depth) {
            place.compared = place
                .pointer
                .get(place.matched..)
                .and_then(|rest| rest.starts_with('/').then_some(place.matched.saturating_add(1)));
        }
    }

    /// Bytes of the current name, its escapes decoded.
    pub(crate) fn name(&mut self, bytes: &[u8], depth: usize) {
        for place in self.on_the_way(depth) {
            for byte in bytes {
                let Some(at) = place.compared else { break };
                place.compared = place.after(at, *byte);
            }
        }
    }

    pub(crate) fn end_name(&mut self, depth: usize) {
        let mut deepest = 0;
        for place in self.on_the_way(depth) {
            if let Some(end) = place.compared.take().filter(|end| place.is_token_end(*end)) {
                place.matched = end;
                place.levels = depth;
                deepest = depth;
            }
        }
        self.deepest = self.deepest.max(deepest);
    }

    /// An array begins, whose elements are at `depth`.
    pub(crate) fn begin_array(&mut self, depth: usize) {
        self.on_the_way(depth).for_each(|place| place.index = 0);
    }

    /// An element of an array at `depth` begins.
    pub(crate) fn begin_element(&mut self, depth: usize) {
        let mut deepest = 0;
        for place in self.on_the_way(depth) {
            if let Some((end, index)) = place.next_index()
                && index == place.index
            {
                place.matched = end;
                place.levels = depth;
                deepest = depth;
            }
        }
        self.deepest = self.deepest.max(deepest);
    }

    /// Another element of an array at `depth` follows.
    pub(crate) fn next_element(&mut self, depth: usize) {
        self.on_the_way(depth).for_each(|place| place.index = place.index.saturating_add(1));
    }

    /// A value in a container at `depth` has ended.
    pub(crate) fn end_value(&mut self, depth: usize) {
        if depth == 0 || depth > self.deepest {
            return;
        }
        self.deepest = depth.saturating_sub(1);
        for place in self.places.iter_mut().filter(|place| place.levels == depth) {
            place.levels = depth.saturating_sub(1);
            let before = place.pointer.get(..place.matched).and_then(|text| text.rfind('/'));
            place.matched = before.unwrap_or_default();
            // In an array, its place among the elements.
            place.index = place.next_index().map_or(0, |(_, index)| index);
        }
    }

    /// A value in a container at `depth` begins which is not a number of digits.
    pub(crate) fn note_other(&mut self, depth: usize) {
        self.note(depth, Found::Unreadable);
    }

    /// A number begins with this digit.
    pub(crate) fn begin_digits(&mut self, digit: u8) {
        self.digits = Digits::default();
        self.digits.push(digit);
    }

    pub(crate) fn digit(&mut self, digit: u8) {
        self.digits.push(digit);
    }

    /// A number of these digits has ended.
    pub(crate) fn note_digits(&mut self, depth: usize) {
        self.note(depth, self.digits.found());
    }

    fn note(&mut self, depth: usize, found: Found) {
        if depth > self.deepest {
            return;
        }
        let at_end =
            |place: &&mut Place| place.levels == depth && place.matched == place.pointer.len();
        for place in self.places.iter_mut().filter(at_end) {
            let is_same = matches!(place.seen, Found::Absent) || place.seen == found;
            place.seen = if is_same { found } else { Found::Conflicting };
        }
    }

    /// The document has ended; its values count if it is valid.
    pub(crate) fn end_document(&mut self, is_valid: bool) {
        self.deepest = 0;
        for place in &mut self.places {
            if is_valid && place.seen != Found::Absent {
                place.last = place.seen;
            }
            place.seen = Found::Absent;
            (place.matched, place.levels, place.compared) = (0, 0, None);
        }
    }

    /// Nothing was found, for this reason.
    pub(crate) fn fail(&mut self, why: Found) {
        self.places.iter_mut().for_each(|place| place.last = why);
    }
}

impl Place {
    /// The place after the byte `byte` of a name, if it is the next one of the pointer.
    fn after(&self, at: usize, byte: u8) -> Option<usize> {
        let rest = self.pointer.as_bytes().get(at..)?;
        let (expected, len) = match rest {
            [b'~', b'0', ..] => (b'~', 2),
            [b'~', b'1', ..] => (b'/', 2),
            [b'/', ..] | [] => return None,
            [other, ..] => (*other, 1),
        };
        (expected == byte).then_some(at.saturating_add(len))
    }

    fn is_token_end(&self, at: usize) -> bool {
        matches!(self.pointer.as_bytes().get(at..), Some([] | [b'/', ..]))
    }

    /// The end of the next token and its number, if it is one of an element (RFC 6901, 4).
    fn next_index(&self) -> Option<(usize, u32)> {
        let token = self.pointer.get(self.matched..)?.strip_prefix('/')?.split('/').next()?;
        let is_canonical = token == "0" || !token.starts_with(['0', '+']);
        let index = token.parse().ok().filter(|_| is_canonical)?;
        Some((self.matched.saturating_add(1).saturating_add(token.len()), index))
    }
}
