//! A response in the origin's place, as Envoy takes it.
//!
//! Invariant: it has the headers of the filter's reply, and those that the filter sets when the
//! response comes. Not here: when it is sent.

use tollgate_filter::host::reply::Reply;
use tollgate_filter::wire::header_map::HeaderMap;

use crate::abi::{HeaderKind, Stream};

/// A response in the origin's place, as Envoy takes it.
pub(crate) struct LocalReply {
    pub(crate) status: u16,
    pub(crate) details: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) is_grpc: bool,
}

/// True for what Envoy's own responses take for gRPC.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+"))
}

impl LocalReply {
    /// Replaces a header, or appends it.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.headers.retain(|(other, _)| other != name);
        self.add(name, value);
    }

    /// Appends a header line.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    /// Sends it. Envoy makes a response to gRPC of a request with one of two content types alone;
    /// for any other the headers are sent as they are, without `details`.
    pub(crate) fn send(mut self, stream: Stream) {
        let is_envoys = stream.header(HeaderKind::Request, "content-type", is_grpc) == Some(true);
        if self.is_grpc && !is_envoys {
            self.headers.insert(0, (":status".to_owned(), self.status.to_string()));
            return stream.respond_with_headers(&self.headers);
        }
        if is_envoys && !self.is_grpc {
            // Without one of ours, Envoy would send 0, which means success.
            self.add("grpc-status", grpc_status(self.status));
        }
        stream.respond(self.status, &self.headers, &self.body, &self.details);
    }

    /// The response to a request in which a hook was left by a panic.
    pub(crate) fn after_panic() -> Self {
        let (headers, body, details) = (Vec::new(), Vec::new(), "tollgate_panic".to_owned());
        Self { status: 503, details, headers, body, is_grpc: false }
    }
}

/// The gRPC status of a response that is not about a limit: UNAVAILABLE or UNKNOWN, as gRPC's table
/// of HTTP statuses has it.
const fn grpc_status(status: u16) -> &'static str {
    if status == 503 { "14" } else { "2" }
}

impl From<&Reply> for LocalReply {
    fn from(reply: &Reply) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let map = HeaderMap::new(reply.headers.clone());
        let mut headers: Vec<_> =
            map.pairs().map(|(name, value)| (text(name), text(value))).collect();
        let is_grpc = reply.grpc_status >= 0;
        if is_grpc {
            headers.push(("grpc-status".to_owned(), reply.grpc_status.to_string()));
        }
        Self {
            status: reply.status,
            details: reply.details.clone().into_owned(),
            headers,
            body: reply.body.clone(),
            is_grpc,
        }
    }
}
