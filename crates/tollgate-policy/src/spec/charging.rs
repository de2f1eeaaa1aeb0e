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
    /// True when a request that ended like this is charged.
    pub fn charges(&self, ending: Ending) -> bool {
        match ending {
            Ending::Response(status) => {
                self.response_status.0.iter().any(|pattern| pattern.matches(status))
            }
            Ending::Disconnect => self.on_abort != Some(OnAbort::Skip),
            Ending::NotSent => false,
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
