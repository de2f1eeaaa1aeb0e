//! When a request is charged.
//!
//! Invariant: the document lists the responses that are charged; they are never guessed.

use alloc::vec::Vec;

/// The event that charges a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Charging {
    /// When it is allowed.
    Request,
    /// By its response.
    Response(ResponseCharge),
}

/// Charging by response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseCharge {
    /// The statuses that are charged.
    pub response_status: Statuses,
    /// Hold the cost from the request on, and give it back when the response is not charged; false
    /// by default.
    pub reserve: Option<bool>,
    /// The charge for a request without a response; charged by default.
    pub on_abort: Option<OnAbort>,
}

impl ResponseCharge {
    /// True when a response with this status is charged; `None` when the client left before a
    /// response.
    pub fn charges(&self, status: Option<u16>) -> bool {
        match status {
            Some(status) => self.response_status.0.iter().any(|pattern| pattern.matches(status)),
            None => self.on_abort != Some(OnAbort::Skip),
        }
    }

    /// True when units are reserved until the response.
    pub const fn reserves(&self) -> bool {
        matches!(self.reserve, Some(true))
    }
}

/// The charge for a request that never had a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAbort {
    /// The same as for a status that is charged.
    Charge,
    /// Nothing.
    Skip,
}

/// The statuses that are charged: at least one. The field is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(pub Vec<StatusPattern>);

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
