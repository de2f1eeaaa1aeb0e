//! What a round trip was, for who wants to show it.
//!
//! Invariant: nobody waits for an observer, and without one nothing is gathered. Deliberately
//! absent: what a tag means; it comes back as it was given.

use std::fmt::Debug;
use std::time::Duration;

use crate::commit::{Fault, Reply};
use tollgate_core::Span;

/// What a request is known by to whoever asked.
pub type Tag = [u8; 24];

/// One call to the engine, which may have answered many requests.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    /// How long it took. It ended now.
    pub took: Duration,
    /// How many requests it answered.
    pub answered: usize,
    /// What came of it.
    pub result: &'static str,
    /// Those of the requests that it answered, where they had one.
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

/// Who is told of round trips. It is called in their midst: it must not wait.
pub trait Observer: Debug + Send + Sync {
    /// One is over.
    fn observe(&self, trip: RoundTrip);
}

/// A reply in a word.
pub(crate) fn result(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done { .. } => "done",
        Reply::Alone { .. } => "alone",
        Reply::Mismatch { .. } => "race",
        Reply::OtherTime { .. } => "late",
        Reply::Stands(_) => "stands",
        Reply::NoScript => "no_script",
        Reply::Elsewhere { .. } => "elsewhere",
        Reply::Refused(fault) | Reply::Unknown(fault) => Fault::label(*fault),
    }
}
