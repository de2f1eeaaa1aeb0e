//! How a request ended, and the statuses that a document names.
//!
//! Invariant: a pattern is one status or a class of them.

/// How an allowed request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a response of this status.
    Response(u16),
    /// Its client disconnected before there was a response.
    Disconnect,
    /// It did not reach its origin because of an error on this side: no response charges it,
    /// whatever its status is, and the places it holds are released.
    NotSent,
}

/// A status or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusPattern {
    /// The lowest status.
    pub from: u16,
    /// The highest status.
    pub to: u16,
}

impl StatusPattern {
    /// True for one status, or for all of a class.
    pub const fn is_one(&self) -> bool {
        let is_class = self.from.is_multiple_of(100) && self.to == self.from.saturating_add(99);
        self.from >= 100 && self.to <= 599 && (self.from == self.to || is_class)
    }

    /// True when this includes `status`.
    pub const fn matches(self, status: u16) -> bool {
        self.from <= status && status <= self.to
    }
}

impl StatusPattern {
    /// The lowest and the highest status that this includes.
    #[cfg(feature = "explain")]
    pub const fn range(self) -> (u16, u16) {
        (self.from, self.to)
    }
}
