//! The operator's settings of a committer, with their defaults.

use tollgate_core::Span;

/// Bounds and tolerances of a [`Committer`](crate::commit::Committer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The engine rejects a decision when its time and the engine's differ by more. In
    /// milliseconds, because the engine's numbers cannot hold nanoseconds since 1970.
    pub tolerance_ms: u64,
    /// A commit counts only when replicas have it ([`Reply::Alone`](crate::commit::Reply::Alone)).
    /// A commit that is found stored is no evidence about replicas.
    pub is_replicated: bool,
    /// The most requests that wait for one key; the next is answered as overload.
    pub max_waiting: usize,
    /// The most requests that are under way for all keys together.
    pub max_asks: usize,
    /// How long a request may wait before it is decided, and again after lost races; then it is
    /// answered as overload.
    pub max_wait: Span,
    /// Bytes of remembered values, and of the table that finds them.
    pub max_remembered: usize,
    /// The most calls to one node of the engine at a time: more would wait there, and be rejected
    /// because their decisions are too old.
    pub max_calls: u32,
    /// This number of consecutive failures opens the circuit of a node.
    pub failures_to_open: u32,
    /// How long it is open the first time; twice as long after each probe that failed.
    pub open_for: Span,
    /// The longest time that it is open.
    pub longest_open: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tolerance_ms: 50,
            is_replicated: false,
            max_waiting: 4_096,
            max_asks: 65_536,
            max_wait: Span::from_secs(5),
            max_remembered: 64 << 20,
            max_calls: 256,
            failures_to_open: 5,
            open_for: Span::from_millis(100),
            longest_open: Span::from_secs(5),
        }
    }
}
