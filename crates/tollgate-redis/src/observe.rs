//! Reports round trips to an observer.
//!
//! Invariant: no request waits for an observer, and without one nothing is collected. Deliberately
//! absent: the meaning of a tag; it is returned as it was given.

use std::fmt::Debug;
use std::time::Duration;

use crate::commit::{Fault, Reply};
use tollgate_core::Span;

/// Identifies a request to its caller.
pub type Tag = [u8; 24];

/// One call to the engine, which may have answered many requests.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    /// Its duration. It ended now.
    pub took: Duration,
    /// How many requests it answered.
    pub answered: usize,
    /// Its result.
    pub result: &'static str,
    /// The tags of the requests that it answered, where they had one.
    pub tags: Vec<Tag>,
}

impl RoundTrip {
    pub(crate) fn of(
        took: Span,
        result: &'static str,
        answers: impl Iterator<Item = Option<Tag>> + Clone,
    ) -> Self {
        let took = Duration::from_nanos(took.as_nanos());
        let (answered, tags) = (answers.clone().count(), answers.flatten().collect());
        Self { took, answered, result, tags }
    }
}

/// Receives round trips. It is called during request handling: it must not block.
pub trait Observer: Debug + Send + Sync {
    /// A round trip has ended.
    fn observe(&self, trip: RoundTrip);
}

/// A reply as one word.
pub(crate) fn result(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done { .. } => "done",
        Reply::Alone { .. } => "alone",
        Reply::Mismatch { .. } => "race",
        Reply::OtherTime { .. } => "late",
        Reply::Stored(_) => "stands",
        Reply::NoScript => "no_script",
        Reply::Elsewhere { .. } => "elsewhere",
        Reply::Refused(fault) | Reply::Unknown(fault) => Fault::label(*fault),
    }
}
