//! What an operator may set of it, with the values that hold without that.

use tollgate_core::Span;

/// Bounds and tolerances of a [`Committer`](crate::commit::Committer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A decision is refused by the engine when its time and the engine's differ by more. In
    /// milliseconds, as the engine's numbers hold no nanoseconds since 1970.
    pub tolerance_ms: u64,
    /// A commit counts only when replicas have it ([`Reply::Alone`](crate::commit::Reply::Alone)).
    /// One that is found in the engine says nothing of them.
    pub is_replicated: bool,
    /// The most requests that wait for one key; the next is answered as overload.
    pub max_waiting: usize,
    /// The most requests that are under way for all keys together.
    pub max_asks: usize,
    /// How long a request may wait before it is decided, and again after races that it lost; then
    /// it is answered as overload.
    pub max_wait: Span,
    /// Bytes of values that are remembered, and of what it takes to find them.
    pub max_remembered: usize,
    /// The most calls to one node of the engine at a time: more would wait there, and be refused
    /// because they were decided too long ago.
    pub max_calls: u32,
    /// So many failures in a row open the circuit of a node.
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
