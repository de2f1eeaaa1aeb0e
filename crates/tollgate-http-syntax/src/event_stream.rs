//! The data of the events in a stream (WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6), passed
//! on while the stream comes in pieces of any size.
//!
//! Invariant: nothing of a line is kept but the place in it. Deliberately absent: the fields
//! `event`, `id` and `retry`.

/// The name of the field with an event's data.
const DATA: &[u8] = b"data";

/// A part of an event.
pub(crate) enum Part<'a> {
    /// Bytes of its data. Lines have a newline between them.
    Data(&'a [u8]),
    /// It is complete.
    End,
}

/// The place in a stream.
pub(crate) struct EventStream {
    at: At,
    /// The last byte was a carriage return, so a newline belongs to that end of a line.
    is_after_return: bool,
    /// The event has a line of data.
    has_data: bool,
}

#[derive(Clone, Copy)]
enum At {
    /// In a field's name, of which this many bytes are those of `data`.
    Name(usize),
    /// After the colon: one space is not data.
    Colon,
    Data,
    /// A comment or another field.
    Other,
}

impl EventStream {
    pub(crate) const fn new() -> Self {
        Self { at: At::Name(0), is_after_return: false, has_data: false }
    }

    /// The next bytes of the stream.
    pub(crate) fn push(&mut self, mut bytes: &[u8], found: &mut impl FnMut(Part<'_>)) {
        while let Some((byte, rest)) = bytes.split_first() {
            if core::mem::take(&mut self.is_after_return) && *byte == b'\n' {
                bytes = rest;
                continue;
            }
            match (self.at, *byte) {
                (_, b'\r' | b'\n') => {
                    self.is_after_return = *byte == b'\r';
                    self.end_line(found);
                    bytes = rest;
                }
                (At::Data | At::Other, _) => {
                    let is_inside = |byte: &&u8| !matches!(**byte, b'\r' | b'\n');
                    let len = bytes.iter().take_while(is_inside).count();
                    let (line, rest) = bytes.split_at_checked(len).unwrap_or_default();
                    if matches!(self.at, At::Data) {
                        found(Part::Data(line));
                    }
                    bytes = rest;
                }
                (At::Colon, b' ') => {
                    self.at = At::Data;
                    bytes = rest;
                }
                (At::Colon, _) => self.at = At::Data,
                (At::Name(len), b':') if len == DATA.len() => {
                    self.begin_data(found);
                    self.at = At::Colon;
                    bytes = rest;
                }
                (At::Name(len), byte) => {
                    let is_next = DATA.get(len) == Some(&byte);
                    self.at = if is_next { At::Name(len.saturating_add(1)) } else { At::Other };
                    bytes = rest;
                }
            }
        }
    }

    fn begin_data(&mut self, found: &mut impl FnMut(Part<'_>)) {
        if core::mem::replace(&mut self.has_data, true) {
            found(Part::Data(b"\n"));
        }
    }

    fn end_line(&mut self, found: &mut impl FnMut(Part<'_>)) {
        match core::mem::replace(&mut self.at, At::Name(0)) {
            At::Name(0) => {
                self.has_data = false;
                found(Part::End);
            }
            // A field without a colon has an empty value.
            At::Name(len) if len == DATA.len() => self.begin_data(found),
            At::Name(_) | At::Colon | At::Data | At::Other => {}
        }
    }
}
