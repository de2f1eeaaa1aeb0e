//! A response in the form of a corpus file: one header per line, an empty line, and a body.
//!
//! Invariant: any bytes are a response. A line `:bytes: 7` is not a header but the number of bytes
//! that were sent, and so are `:duration: 7` in milliseconds, and `:metadata.filter/name: 7`; with
//! a line `:trailers:` the headers are shown at the end only. The body is read as JSON in pieces.

use std::borrow::Cow;

use tollgate_policy::spec::JsonCost;
use tollgate_policy::{ActualUnits, BodyScan, ResponseFacts};

use super::request::split_once;

/// The length of a piece of the body.
const PIECE: usize = 7;

/// The facts of one response.
#[derive(Clone, Debug, Default)]
pub struct Response<'b> {
    /// Names in lower case.
    lines: Vec<(String, &'b [u8])>,
    body: &'b [u8],
}

impl<'b> Response<'b> {
    /// Reads any bytes.
    pub fn read(bytes: &'b [u8]) -> Self {
        let end = bytes.windows(2).position(|two| two == b"\n\n");
        let (head, body) = match end {
            Some(end) => (&bytes[..end], &bytes[end + 2..]),
            None => (bytes, &b""[..]),
        };
        let line = |line: &'b [u8]| {
            let (name, value) = split_once(line.strip_prefix(b":").unwrap_or(line), b':')?;
            let mark = if line.starts_with(b":") { ":" } else { "" };
            let name = String::from_utf8_lossy(name).to_lowercase();
            Some((format!("{mark}{name}"), value.trim_ascii()))
        };
        Self { lines: head.split(|b| *b == b'\n').filter_map(line).collect(), body }
    }

    /// Its end, when `scan` has read the body.
    pub fn end<'r>(&'r self, mut scan: Option<Box<BodyScan>>) -> ResponseEnd<'r> {
        if let Some(scan) = &mut scan {
            self.body.chunks(PIECE).for_each(|piece| scan.push(piece));
            scan.end(true);
        }
        ResponseEnd { response: self, scan }
    }

    fn value(&self, wanted: &str) -> Option<Cow<'_, [u8]>> {
        let lines = self.lines.iter().filter(|(name, _)| name == wanted);
        let values: Vec<&[u8]> = lines.map(|(_, value)| *value).collect();
        (!values.is_empty()).then(|| values.join(&b", "[..]).into())
    }

    fn number(&self, name: &str) -> Option<u64> {
        std::str::from_utf8(&self.value(name)?).ok()?.parse().ok()
    }
}

/// The head of the response.
impl ResponseFacts for Response<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let is_later = self.may_have_trailers() && !name.starts_with("content-");
        self.value(name).filter(|_| !is_later)
    }

    fn may_have_trailers(&self) -> bool {
        self.value(":trailers").is_some()
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// The end of the response.
pub struct ResponseEnd<'r> {
    response: &'r Response<'r>,
    scan: Option<Box<BodyScan>>,
}

impl ResponseFacts for ResponseEnd<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.response.value(name)
    }

    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        self.response.value(&format!(":metadata.{}", path.join("/")))
    }

    fn body_bytes(&self) -> Option<u64> {
        self.response.number(":bytes")
    }

    fn duration_ms(&self) -> Option<u64> {
        self.response.number(":duration")
    }

    fn json(&self, cost: &JsonCost) -> Option<ActualUnits> {
        self.scan.as_ref()?.units(cost)
    }

    fn has_ended(&self) -> bool {
        true
    }
}
