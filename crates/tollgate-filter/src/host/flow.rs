//! Whether a request continues or stops.
//!
//! Invariant: the number that is returned to the host stops a body, too.

/// Whether the host continues or stops a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The request continues.
    Continue,
    /// The request stops, its body and trailers too.
    Stop,
}

impl Flow {
    /// The ABI's number for it. Not 1, which stops the headers alone under
    /// `allow_on_headers_stop_iteration`: the body would then send the request on. 4 stops
    /// everything, whatever the operator has set.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Continue => 0,
            Self::Stop => 4,
        }
    }
}
