//! The requests for one key, and the reasons why one fails.
//!
//! Invariant: a request has the same effect as in an object of the Worker with the same bytes. A
//! request that returns units is never applied twice, because a client would profit from it.

use tollgate_storage::{Answered, Clock, Counts, WireError};

use crate::commit::call::Fault;
use crate::commit::mutation::{self, Mutation};

/// A request for one key, as bytes of the policy crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRequest {
    /// The bytes of `Partition::request`, `peek_request` or `settle_request`: [`Counts::answer`].
    Check(Vec<u8>),
    /// Takes back the charge for `request`, whose reply was `reply`: [`Counts::refund`].
    Refund {
        /// The request.
        request: Vec<u8>,
        /// Its reply.
        reply: Vec<u8>,
    },
    /// The bytes of `GivenKey::request`: [`Counts::operate`].
    Operate(Vec<u8>),
    /// The bytes of `InFlightReport::request`: [`Counts::report_in_flight`].
    InFlight(Vec<u8>),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failed {
    /// Its bytes are not a request. Nothing was charged.
    Malformed,
    /// The stored value is damaged: it is removed, and the key starts empty.
    Corrupt,
    /// Too many requests wait already, or this one has waited for too long. Respond with 503 and
    /// `Retry-After`, whatever `on_failure` is; otherwise a flood would open the gate.
    Overloaded,
    /// The engine did not apply it, or it is unknown whether it did: `on_failure` decides. An
    /// uncertain charge stays.
    Engine(Fault),
    /// The engine did not reply recently and gets no calls now: `on_failure` decides.
    Open,
}

impl KeyRequest {
    /// Applies the request to the counts of the key.
    pub(crate) fn apply(&self, counts: &mut Counts, clock: &Clock) -> Result<Answered, Failed> {
        let answered = match self {
            Self::Check(request) => counts.answer(request, *clock),
            Self::Refund { request, reply } => counts.refund(request, reply, *clock),
            Self::Operate(request) => counts.operate(request, *clock),
            Self::InFlight(request) => counts.report_in_flight(request, *clock),
        };
        answered.map_err(|error| match error {
            WireError::Malformed
            | WireError::OtherPolicy
            | WireError::OtherEntry
            | WireError::Newer(_) => Failed::Malformed,
        })
    }

    /// True when the response may depend on an earlier commit that too few replicas are known to
    /// have: for a settlement, an operator's request, and a report about a request in flight.
    pub(crate) fn depends_on_earlier(&self) -> bool {
        match self {
            Self::Check(request) => Counts::settles(request),
            Self::Refund { .. } => false,
            Self::Operate(_) | Self::InFlight(_) => true,
        }
    }

    /// True when applying it twice is at most too strict. An operator's request and a report about
    /// a request in flight may be repeated.
    pub(crate) fn is_repeatable(&self) -> bool {
        if mutation::is(Mutation::GivesBackAgain) {
            return true;
        }
        match self {
            Self::Check(request) => !Counts::gives_back(request),
            Self::Refund { .. } => false,
            Self::Operate(_) | Self::InFlight(_) => true,
        }
    }
}
