//! One key that something is asked of: who waits, and the call that is under way.
//!
//! Invariant: at most one call at a time, and everybody is in exactly one place: waiting, or in the
//! batch of that call.

use std::collections::VecDeque;

use tollgate_core::Span;
#[cfg(test)]
use tollgate_core::Timestamp;

use crate::commit::ask::{Ask, Failed};
use crate::commit::batch::Decided;
use crate::commit::call::{CallId, Fault};
use crate::commit::remembered::Seen;
use crate::commit::value::Tag;

/// The most that is decided at a time: a thousand decisions take about a millisecond.
const MAX_BATCH: usize = 1_024;

/// A request that has no answer yet.
#[derive(Debug)]
pub(crate) struct Asked<T> {
    pub(crate) ask: Ask,
    pub(crate) who: T,
    /// When it came.
    pub(crate) since: Span,
    /// What it was decided in a call of which nobody knows whether it was done.
    pub(crate) doubt: Option<Doubt>,
    #[cfg(test)]
    pub(crate) number: u64,
}

/// An attempt of which nobody knows whether it was done.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) call: CallId,
    pub(crate) tag: Tag,
    pub(crate) reply: Vec<u8>,
}

/// What is under way.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    /// The call that is under way.
    pub(crate) id: CallId,
    /// The call that commits it, which a look follows.
    pub(crate) call: CallId,
    pub(crate) sent: Span,
    pub(crate) batch: Vec<Asked<T>>,
    pub(crate) decided: Decided,
    pub(crate) tag: Tag,
    /// The engine's time that it was decided at.
    #[cfg(test)]
    pub(crate) now: Timestamp,
    /// The call brought the script along.
    pub(crate) has_script: bool,
    /// Why nobody knows whether it was done; what is under way is a look at what stands there.
    pub(crate) doubt: Option<Fault>,
}

/// A key.
#[derive(Debug)]
pub(crate) struct Key<T> {
    pub(crate) lane: usize,
    pub(crate) waiting: VecDeque<Asked<T>>,
    /// The bytes that stand there, as far as is known; nothing, otherwise.
    pub(crate) stands: Option<Seen>,
    pub(crate) flight: Option<Flight<T>>,
    /// It stands in its lane's line.
    pub(crate) is_ready: bool,
    /// Calls in a row that the engine refused for their time or for want of the script.
    pub(crate) refusals: u32,
}

impl<T> Key<T> {
    pub(crate) fn new(lane: usize, stands: Option<Seen>) -> Self {
        let waiting = VecDeque::new();
        Self { lane, waiting, stands, flight: None, is_ready: false, refusals: 0 }
    }

    /// The first of those who wait, to be decided together.
    pub(crate) fn take_batch(&mut self) -> Vec<Asked<T>> {
        let len = self.waiting.len().min(MAX_BATCH);
        self.waiting.drain(..len).collect()
    }

    /// Those of a batch that have no answer go before all others, in their order.
    pub(crate) fn put_back(&mut self, batch: Vec<Asked<T>>) {
        for asked in batch.into_iter().rev() {
            self.waiting.push_front(asked);
        }
    }

    /// Everybody who waits or is in `flight`.
    pub(crate) fn everybody(&mut self, flight: Option<Flight<T>>) -> Vec<Asked<T>> {
        let mut all = flight.map_or_else(Vec::new, |flight| flight.batch);
        all.extend(self.waiting.drain(..));
        all
    }
}

/// What an answer is made of.
pub(crate) type Answer = Result<Vec<u8>, Failed>;
