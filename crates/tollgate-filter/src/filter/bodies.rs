//! The bodies and trailers of responses, for the requests whose costs they show.
//!
//! Invariant: a body is only read, never held or changed; one that no rule reads costs a look-up.

use super::{Filter, Stream, with};
use crate::host::proxy::Proxy;
use crate::host::streams::StreamMap;
use crate::request::held_request::Pending;

impl<H: Proxy> Filter<H> {
    /// A piece of `len` bytes of the response's body passes, perhaps the last one. It is only read,
    /// and only for a request that needs it.
    pub fn on_response_body(&self, id: u32, len: usize, is_last: bool) {
        self.change_reading(id, |pending| pending.read_body(&self.host, len, is_last));
    }

    /// The response's trailers pass.
    pub fn on_response_trailers(&self, id: u32) {
        self.change_reading(id, Pending::read_trailers);
    }

    /// True for a stream that needs the body or the trailers of its response; other streams need no
    /// call about them.
    pub fn reads_body(&self, id: u32) -> bool {
        let reads = |stream: &Stream<H>| stream.pending.reads_body();
        with(&self.streams, |streams| streams.get(id).is_some_and(reads))
    }

    /// Acts on a stream that needs the body or the trailers of its response.
    fn change_reading(&self, id: u32, act: impl FnOnce(Pending<H>) -> Pending<H>) {
        if self.reads_body(id)
            && let Some(pending) = self.take_pending(id)
        {
            self.set_pending(id, act(pending));
        }
    }
}
