//! What a replay is asked for, besides the policy and the log.
//!
//! Invariant: everything here has a default, and none of it changes what a policy decides about a
//! request; it says which requests are decided, and what is shown of them.

use tollgate_core::Timestamp;

/// Statuses of lines that say that a request was refused already, by whoever wrote the log.
pub const REFUSED: [u16; 2] = [429, 503];

/// What a replay is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Replay the requests, too, that the log says were refused: [`REFUSED`].
    pub include_refused: bool,
    /// Requests before it are left out.
    pub since: Option<Timestamp>,
    /// Requests from it on are left out.
    pub until: Option<Timestamp>,
    /// Show keyed hashes where keys, clients and lines of the log would be shown.
    pub is_private: bool,
    /// What keys are hashed with. Random for each run where somebody else wrote the log, who could
    /// otherwise choose keys that fall together.
    pub secret: [u8; 16],
    /// The most clients that are each counted by itself; 24 bytes and their place in a table each.
    pub max_clients: usize,
    /// The most limited keys that are each counted by itself.
    pub max_limited_keys: usize,
    /// How many limited keys, and examples, are shown.
    pub top: usize,
}

impl Default for Options {
    /// Everything but what was refused; 10,000,000 clients, 65,536 limited keys, the first 20 of
    /// them; a secret of zeros.
    fn default() -> Self {
        Self {
            include_refused: false,
            since: None,
            until: None,
            is_private: false,
            secret: [0; 16],
            max_clients: 10_000_000,
            max_limited_keys: 65_536,
            top: 20,
        }
    }
}
