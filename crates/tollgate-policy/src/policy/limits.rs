//! How much may wait.
//!
//! Invariant: finite, whatever a document says.

/// How much may wait: in one Envoy worker or one isolate of the Worker, by one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that wait for one key.
    pub per_key: usize,
    /// Requests in all.
    pub total: usize,
    /// Bytes that they hold.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_key: 1_000, total: 10_000, bytes: 64 << 20 }
    }
}
