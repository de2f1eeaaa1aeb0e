//! Requests of the filter's own to a cluster of the host, as a trait: sent, and answered later.
//!
//! Invariant: a call belongs to the context that is the current one when it is sent, and its answer
//! comes to that context, or never. A failure of the call (no healthy host, a time-out) is an
//! answer of the host's own with a status, or one without. Deliberately absent: what is asked.

/// A request to a cluster.
pub struct HttpCall<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// In the host's serialisation of a map, with `:method`, `:path` and `:authority`.
    pub headers: &'a [u8],
    /// The body; empty for none.
    pub body: &'a [u8],
    /// After so long the host answers in the other's place.
    pub timeout_ms: u32,
}

/// Why the host does not send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// It takes no such request: there is no such cluster.
    Refused,
    /// It failed at once: no host of the cluster is healthy, or as many requests as its circuit
    /// breaker allows are under way. The ABI does not tell these apart.
    Failed,
}

/// The host's client.
pub trait Calls {
    /// Sends a request for the current context; the number that its answer will have.
    ///
    /// # Errors
    /// It was not sent.
    fn call(&self, call: &HttpCall<'_>) -> Result<u32, NotSent>;
    /// A header of the answer that is being handed over; `None` when it has none.
    fn answer_header(&self, name: &str) -> Option<Vec<u8>>;
    /// The first `len` bytes of its body; empty when the host does not give them.
    fn answer_body(&self, len: usize) -> Vec<u8>;
}
