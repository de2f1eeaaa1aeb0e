//! The bounds on waiting requests.
//!
//! Invariant: finite, whatever a document contains.

/// The bounds on waiting requests of one policy, per Envoy worker or per isolate of the Worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that wait for one key.
    pub per_key: usize,
    /// Requests in total.
    pub total: usize,
    /// Bytes of memory of the waiting requests.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_key: 1_000, total: 10_000, bytes: 64 << 20 }
    }
}
