//! The requests to a store about one partition, and the reasons for a missing reply.
//!
//! Invariant: values only.

use tollgate_service::CountRequest;

/// The name of a count: a hash of its key under a secret.
pub type Name = [u8; 32];

/// The clock that a count is decided by. An engine decides all by its own, which is a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// The clock that never goes back.
    Steady,
    /// The wall clock: a quota counts by a calendar.
    Wall,
}

/// The reason that a store returned no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// It did not reply in time; it may still carry out the request.
    Late,
    /// It could not carry out the request: the reason.
    Failed(String),
    /// The stored bytes cannot be read: the key, and the handling of it.
    Unreadable(String),
    /// Too many requests wait for this key, or in all: the request is denied with 503, whatever
    /// `on_failure` is.
    Overloaded,
}

/// An operation on a partition.
#[derive(Clone, Copy, Debug)]
pub enum StoreRequest<'a> {
    /// Decide this request.
    Check(&'a [u8]),
    /// Refund the charge of `request`, whose response was `reply`. Sent once.
    Refund {
        /// The request.
        request: &'a [u8],
        /// Its response.
        reply: &'a [u8],
    },
    /// Carry out an operator's request for the key
    /// ([`GivenKey::request`](tollgate_policy::GivenKey::request)).
    Operate(&'a [u8]),
    /// Carry out a report about a request in flight
    /// ([`InFlightReport::request`](tollgate_storage::InFlightReport::request)).
    InFlight(&'a [u8]),
}

impl<'a> From<CountRequest<'a>> for StoreRequest<'a> {
    fn from(request: CountRequest<'a>) -> Self {
        match request {
            CountRequest::Peek(request) | CountRequest::Charge(request) => Self::Check(request),
            CountRequest::Refund(request, reply) => Self::Refund { request, reply },
        }
    }
}
