//! What becomes of a request at once.
//!
//! Invariant: the number that the host is told stops a body, too.

/// What the host is to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It stops, its body and trailers too.
    Stop,
}

impl Flow {
    /// The ABI's number for it. Not 1, which stops the headers alone under
    /// `allow_on_headers_stop_iteration`: the body would take the request on. 4 stops everything,
    /// whatever the operator has set.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Continue => 0,
            Self::Stop => 4,
        }
    }
}
