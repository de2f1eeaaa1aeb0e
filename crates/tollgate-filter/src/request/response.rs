//! The response of the current context, for rules whose cost it shows: its headers when they come,
//! its body and trailers when they have passed, and what the host knows at its end.
//!
//! Invariant: the host is asked only by a rule that reads the fact. Its call for one header returns
//! the first line alone, which would hide a second cost; the call for all returns every line. At
//! the end the host has no headers any more.

use std::borrow::Cow;
use std::cell::OnceCell;

use tollgate_policy::spec::JsonCost;
use tollgate_policy::{ActualUnits, BodyScan, ResponseFacts};

use crate::host::headers::HeaderLines;
use crate::host::proxy::Proxy;
use crate::request::facts::{Metadata, Purpose};

/// Nanoseconds in a millisecond.
const MILLISECOND: u64 = 1_000_000;

/// The head of a response, not yet read.
pub struct ResponseHeaders<'h, H: Proxy> {
    host: &'h H,
    headers: OnceCell<Option<H::Lines>>,
}

impl<'h, H: Proxy> ResponseHeaders<'h, H> {
    /// That of the current context.
    pub const fn new(host: &'h H) -> Self {
        Self { host, headers: OnceCell::new() }
    }
}

impl<H: Proxy> ResponseFacts for ResponseHeaders<'_, H> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let lines = self.headers.get_or_init(|| self.host.response_headers());
        lines.as_ref()?.joined(name)
    }

    fn may_have_trailers(&self) -> bool {
        H::READS_BODIES
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// The end of a response's body.
pub struct ResponseTail<'h, H: Proxy> {
    host: &'h H,
    scan: Option<&'h BodyScan>,
    /// `None` when there are no trailers.
    trailers: Option<OnceCell<Option<H::Lines>>>,
}

impl<'h, H: Proxy> ResponseTail<'h, H> {
    /// That of the current context, with the numbers of its body.
    pub fn new(host: &'h H, scan: Option<&'h BodyScan>, has_trailers: bool) -> Self {
        Self { host, scan, trailers: has_trailers.then(OnceCell::new) }
    }
}

impl<H: Proxy> ResponseFacts for ResponseTail<'_, H> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let lines = self.trailers.as_ref()?.get_or_init(|| self.host.response_trailers());
        lines.as_ref()?.joined(name)
    }

    fn json(&self, cost: &JsonCost) -> Option<ActualUnits> {
        self.scan?.units(cost)
    }

    fn has_ended(&self) -> bool {
        false
    }
}

/// A response at its end.
pub struct EndedResponse<'h, H> {
    host: &'h H,
    scan: Option<&'h BodyScan>,
    metadata: Metadata,
}

impl<'h, H: Proxy> EndedResponse<'h, H> {
    /// That of the current context, which is about to be deleted, with the numbers of its body.
    pub const fn new(host: &'h H, scan: Option<&'h BodyScan>) -> Self {
        Self { host, scan, metadata: Metadata::new(Purpose::Number) }
    }

    /// A property that is a whole number.
    fn number(&self, path: &[u8]) -> Option<u64> {
        let bytes = self.host.property(path)?;
        u64::try_from(i64::from_le_bytes(bytes.try_into().ok()?)).ok()
    }
}

impl<H: Proxy> ResponseFacts for EndedResponse<'_, H> {
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        let (filter, path) = path.split_first()?;
        self.metadata.value(self.host, filter, path.iter().map(String::as_str))?.text()
    }

    fn body_bytes(&self) -> Option<u64> {
        self.number(b"response\0size")
    }

    fn duration_ms(&self) -> Option<u64> {
        Some(self.number(b"request\0duration")?.div_ceil(MILLISECOND))
    }

    fn json(&self, cost: &JsonCost) -> Option<ActualUnits> {
        self.scan.filter(|_| H::READS_BODIES)?.units(cost)
    }

    fn has_ended(&self) -> bool {
        true
    }
}
