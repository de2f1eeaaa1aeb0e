//! The numbers at some places of a JSON body, found while the body passes: of a document, of the
//! documents in lines, or of the events in a stream.
//!
//! Invariant: the memory that it takes is that of the pointers, whatever the body is, and its time
//! is linear in the body. Nothing fails on any bytes. Of several documents each pointer has its
//! value in the last one that has a value there; one that is not JSON (`[DONE]`) is skipped.

use crate::event_stream::{EventStream, Part};
use crate::json_pointer::{Found, Places};
use crate::json_text::JsonText;

/// The forms of a body that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFormat {
    /// One document.
    Document,
    /// A document in each line.
    Lines,
    /// A document in the data of each event.
    Events,
}

impl JsonFormat {
    /// The form of a body with this `content-type`, whatever its parameters and its case; `None`
    /// for any other type, and for several that are not of one form.
    #[must_use]
    pub fn of(content_type: &[u8]) -> Option<Self> {
        let mut forms = content_type.split(|byte| *byte == b',').map(Self::of_one);
        let first = forms.next()??;
        forms.all(|form| form == Some(first)).then_some(first)
    }

    fn of_one(content_type: &[u8]) -> Option<Self> {
        let name = content_type.split(|byte| *byte == b';').next()?.trim_ascii();
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let suffix = name.len().checked_sub(SUFFIX.len()).and_then(|from| name.get(from..));
        let has_suffix = suffix.is_some_and(|it| it.eq_ignore_ascii_case(SUFFIX));
        match name {
            _ if is("text/event-stream") => Some(Self::Events),
            _ if is("application/x-ndjson") => Some(Self::Lines),
            _ if is("application/json") || has_suffix && name.contains(&b'/') => {
                Some(Self::Document)
            }
            _ => None,
        }
    }
}

/// The end of the types of formats in JSON (RFC 6839, 3.1).
const SUFFIX: &[u8] = b"+json";

/// The mark before a text in UTF-8, which is not part of it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A body in progress.
pub struct JsonBody {
    format: JsonFormat,
    json: JsonText,
    events: EventStream,
    /// Bytes of a [`BYTE_ORDER_MARK`] that have come; `None` after the body's beginning.
    mark: Option<usize>,
}

impl JsonBody {
    /// A body of this form whose numbers at these pointers (RFC 6901) are wanted.
    #[must_use]
    pub fn new<'a>(format: JsonFormat, pointers: impl Iterator<Item = &'a str>) -> Self {
        let json = JsonText::new(Places::new(pointers));
        Self { format, json, events: EventStream::new(), mark: Some(0) }
    }

    /// Its next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let (Some(len), Some((byte, rest))) = (self.mark, bytes.split_first()) {
            if BYTE_ORDER_MARK.get(len) == Some(byte) {
                self.mark = Some(len.saturating_add(1));
                bytes = rest;
            } else {
                self.mark = None;
                if len < BYTE_ORDER_MARK.len() {
                    self.push_text(BYTE_ORDER_MARK.get(..len).unwrap_or_default());
                }
            }
        }
        self.push_text(bytes);
    }

    fn push_text(&mut self, bytes: &[u8]) {
        let Self { format, json, events, .. } = self;
        match format {
            JsonFormat::Document => json.push(bytes),
            JsonFormat::Lines => {
                let mut lines = bytes.split(|byte| *byte == b'\n');
                json.push(lines.next().unwrap_or_default());
                for line in lines {
                    json.end(true);
                    json.push(line);
                }
            }
            JsonFormat::Events => events.push(bytes, &mut |part| match part {
                Part::Data(bytes) => json.push(bytes),
                Part::End => drop(json.end(true)),
            }),
        }
    }

    /// Its end. `is_whole` is false where it broke off. A document that is not complete has no
    /// values. The last line, and the last event without the empty line after it, count if they are
    /// complete documents.
    pub fn end(&mut self, is_whole: bool) {
        if let (Some(why), JsonFormat::Document) = (self.json.end(is_whole), self.format) {
            self.json.places.fail(why);
        }
    }

    /// The number at one of the pointers, as far as the body's documents have ended.
    #[must_use]
    pub fn found(&self, pointer: &str) -> Found {
        self.json.places.found(pointer)
    }
}
