//! The options of a replay, besides the policy and the log.
//!
//! Invariant: everything here has a default, and none of it changes a decision of the policy. The
//! options select the requests to decide and the data to show.

use tollgate_core::Timestamp;

/// Statuses in the log of requests that the server of the log had already denied.
pub const REFUSED: [u16; 2] = [429, 503];

/// The options of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Also replay requests that the log shows as denied: [`REFUSED`].
    pub include_refused: bool,
    /// Requests before it are left out.
    pub since: Option<Timestamp>,
    /// Requests from it on are left out.
    pub until: Option<Timestamp>,
    /// Show keyed hashes where keys, clients and lines of the log would be shown.
    pub is_private: bool,
    /// The secret for hashing keys. It is random for each run where another party wrote the log,
    /// because that party could otherwise choose keys that collide.
    pub secret: [u8; 16],
    /// The most clients that are counted separately; 24 bytes and a place in a table each.
    pub max_clients: usize,
    /// The most limited keys that are counted separately.
    pub max_limited_keys: usize,
    /// How many limited keys, and examples, are shown.
    pub top: usize,
}

impl Default for Options {
    /// Everything except denied requests; 10,000,000 clients, 65,536 limited keys, the first 20 of
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
