//! The filter's own requests to a cluster of the host, as a trait: sent now, and answered later.
//!
//! Invariant: a call belongs to the context that is current when it is sent. Its response comes to
//! that context, or never. A host that sends it later may report then that it could not
//! (`Filter::on_call_not_sent`). When a call fails (no healthy host, a timeout), the host generates
//! a response, with or without a status. Deliberately absent: the content of requests.

/// A request to a cluster.
pub struct HttpCall<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// In the host's serialisation of a map, with `:method`, `:path` and `:authority`.
    pub headers: &'a [u8],
    /// The body; empty for none.
    pub body: &'a [u8],
    /// After this long the host generates a response.
    pub timeout_ms: u32,
    /// The most bytes of the response's body that are read; a longer one is of no use.
    pub most_body: usize,
}

/// The headers of responses that are read.
pub const ANSWER_HEADERS: [&str; 4] =
    [":status", "etag", "tollgate-policy-version", "x-envoy-overloaded"];

/// The reason why the host does not send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The host takes no such request: there is no such cluster.
    Refused,
    /// It failed at once: no host of the cluster is healthy, or as many requests as its circuit
    /// breaker allows are in flight. The ABI does not distinguish these.
    Failed,
    /// Requests of this process are in flight, and there is no room for another one.
    Full,
}

impl NotSent {
    /// The reason, for the log.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Refused => "Envoy has no such cluster",
            Self::Failed | Self::Full => "no healthy host, or circuit breaker open",
        }
    }
}

/// The host's client.
pub trait Calls {
    /// Sends a request for the current context and returns the number that its response will have.
    /// A number is not used again while its call may be answered.
    ///
    /// # Errors
    /// It was not sent.
    fn call(&self, call: &HttpCall<'_>) -> Result<u32, NotSent>;
    /// A header of the response that is being handed over; `None` when the response does not have
    /// it.
    fn answer_header(&self, name: &str) -> Option<Vec<u8>>;
    /// The first `len` bytes of its body; empty when the host does not give them.
    fn answer_body(&self, len: usize) -> Vec<u8>;
}
