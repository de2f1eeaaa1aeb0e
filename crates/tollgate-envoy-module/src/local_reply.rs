//! A response in the origin's place, as Envoy takes it.
//!
//! Invariant: it has the headers of the filter's reply, and those that the filter sets when the
//! response comes. Not here: when it is sent.

use tollgate_filter::host::reply::Reply;

use crate::abi::{HeaderKind, HeaderList, Stream};

/// A response in the origin's place, as Envoy takes it.
#[derive(Default)]
pub(crate) struct LocalReply {
    pub(crate) status: u16,
    details: String,
    lines: Vec<Line>,
    /// The names and values of the lines.
    text: Vec<u8>,
    body: String,
    list: HeaderList,
    is_grpc: bool,
    /// The request is not gRPC.
    is_for_http: bool,
}

/// Where a header line is in the text: its name, and then its value.
#[derive(Clone, Copy)]
struct Line {
    start: usize,
    value: usize,
    end: usize,
}

/// True for what Envoy's own responses take for gRPC.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+"))
}

impl LocalReply {
    /// Makes it that of the filter, in the memory of an earlier one.
    pub(crate) fn fill(&mut self, reply: Reply<'_>) {
        self.lines.clear();
        self.text.clear();
        reply.fields(&mut |name, value| self.add(name, value));
        self.is_grpc = reply.grpc_status >= 0;
        if self.is_grpc {
            self.add("grpc-status", &reply.grpc_status.to_string());
        }
        self.is_for_http = reply.is_for_http();
        self.status = reply.status;
        self.details.clear();
        reply.write_details(&mut self.details);
        self.body.clear();
        reply.write_body(&mut self.body);
    }

    /// Makes it the response to a request in which a hook was left by a panic.
    pub(crate) fn fill_after_panic(&mut self) {
        *self = Self { status: 503, details: "tollgate_panic".into(), ..Self::default() };
    }

    /// Replaces a header, or appends it.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        let text = &self.text;
        self.lines.retain(|line| text.get(line.start..line.value) != Some(name.as_bytes()));
        self.add(name, value);
    }

    /// Appends a header line.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        let start = self.text.len();
        self.text.extend_from_slice(name.as_bytes());
        let middle = self.text.len();
        self.text.extend_from_slice(value.as_bytes());
        self.lines.push(Line { start, value: middle, end: self.text.len() });
    }

    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let part = |from, to| self.text.get(from..to).unwrap_or_default();
        let line = move |it: &Line| (part(it.start, it.value), part(it.value, it.end));
        self.lines.iter().map(line)
    }

    /// Sends it. Envoy makes a response to gRPC of a request with one of two content types alone;
    /// for any other the headers are sent as they are, without `details`.
    pub(crate) fn send(&mut self, stream: Stream) {
        let is_envoys = !self.is_for_http
            && stream.header(HeaderKind::Request, "content-type", is_grpc) == Some(true);
        let mut list = core::mem::take(&mut self.list);
        if self.is_grpc && !is_envoys {
            let status = self.status.to_string();
            let status = (&b":status"[..], status.as_bytes());
            let lines = core::iter::once(status).chain(self.lines());
            stream.respond_with_headers((&mut list, lines));
        } else {
            if is_envoys && !self.is_grpc {
                // Without one of ours, Envoy would send 0, which means success.
                self.add("grpc-status", grpc_status(self.status));
            }
            let lines = (&mut list, self.lines());
            stream.respond(self.status, lines, self.body.as_bytes(), &self.details);
        }
        self.list = list;
    }
}

/// The gRPC status of a response that is not about a limit: UNAVAILABLE or UNKNOWN, as gRPC's table
/// of HTTP statuses has it.
const fn grpc_status(status: u16) -> &'static str {
    if status == 503 { "14" } else { "2" }
}
