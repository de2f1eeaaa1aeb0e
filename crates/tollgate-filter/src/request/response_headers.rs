//! The headers of the response of the current context, for rules whose cost they show.
//!
//! Invariant: the host is asked once, and only by a rule that reads a header. Its call for one
//! header returns the first line alone, which would hide a second cost; the call for all returns
//! every line.

use std::borrow::Cow;
use std::cell::OnceCell;

use tollgate_policy::ResponseFacts;

use crate::host::proxy::Proxy;
use crate::wire::header_map::HeaderMap;

/// The headers of a response, not yet read.
pub struct ResponseHeaders<'h, H> {
    host: &'h H,
    headers: OnceCell<HeaderMap>,
}

impl<'h, H> ResponseHeaders<'h, H> {
    /// Those of the current context.
    pub const fn new(host: &'h H) -> Self {
        Self { host, headers: OnceCell::new() }
    }
}

impl<H: Proxy> ResponseFacts for ResponseHeaders<'_, H> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let read = || HeaderMap::new(self.host.response_headers().unwrap_or_default());
        self.headers.get_or_init(read).joined(name.as_bytes())
    }
}
