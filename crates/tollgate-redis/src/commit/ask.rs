//! What is asked of one key, and why it may have no answer.
//!
//! Invariant: what is done is what an object of the Worker does with the same bytes. What gives
//! units back is never done twice: of that a client would profit.

use tollgate_policy::{Answered, Clock, Counts, WireError};

use crate::commit::call::Fault;
use crate::commit::mutation::{self, Mutation};

/// A request for one key, as bytes of the policy crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Of `Partition::request`, `peek_request` or `settle_request`: [`Counts::answer`].
    Check(Vec<u8>),
    /// Takes back what was charged for `request` when it was answered `reply`: [`Counts::refund`].
    Refund {
        /// What was asked.
        request: Vec<u8>,
        /// What was answered.
        reply: Vec<u8>,
    },
    /// Of `GivenKey::request`: [`Counts::operate`].
    Operate(Vec<u8>),
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failed {
    /// Its bytes are no request. Nothing was charged.
    Malformed,
    /// The stored value is damaged: it is removed, and the key starts again.
    Corrupt,
    /// Too many wait already, or it has waited for too long: answer 503 with `Retry-After`,
    /// whatever `on_failure` says, or a flood would open the gate.
    Overloaded,
    /// The engine did not do it, or it is not known whether it did: `on_failure` decides. A charge
    /// that is not known stays.
    Engine(Fault),
    /// The engine did not answer of late and is not asked: `on_failure` decides.
    Open,
}

impl Ask {
    /// Does it on what the key has used.
    pub(crate) fn step(&self, counts: &mut Counts, clock: &Clock) -> Result<Answered, Failed> {
        let answered = match self {
            Self::Check(request) => counts.answer(request, *clock),
            Self::Refund { request, reply } => counts.refund(request, reply, *clock),
            Self::Operate(request) => counts.operate(request, *clock),
        };
        answered.map_err(|error| match error {
            WireError::Malformed
            | WireError::OtherPolicy
            | WireError::OtherEntry
            | WireError::Newer(_) => Failed::Malformed,
        })
    }

    /// True when who asks again may be told what an earlier commit did, of which too few replicas
    /// are known to have it: what is settled, and what an operator does.
    pub(crate) fn tells_of_earlier(&self) -> bool {
        match self {
            Self::Check(request) => Counts::settles(request),
            Self::Refund { .. } => false,
            Self::Operate(_) => true,
        }
    }

    /// True when doing it twice is at most too strict. What an operator does may be repeated.
    pub(crate) fn is_repeatable(&self) -> bool {
        if mutation::is(Mutation::GivesBackAgain) {
            return true;
        }
        match self {
            Self::Check(request) => !Counts::gives_back(request),
            Self::Refund { .. } => false,
            Self::Operate(_) => true,
        }
    }
}
