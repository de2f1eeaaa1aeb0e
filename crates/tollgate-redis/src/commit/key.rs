//! One key with requests: the waiting ones, and the call that is under way.
//!
//! Invariant: at most one call at a time, and every request is in exactly one place: waiting, or in
//! the batch of that call.

use std::collections::VecDeque;

use tollgate_core::Span;
#[cfg(test)]
use tollgate_core::Timestamp;

use crate::commit::batch::BatchResult;
use crate::commit::call::{CallId, Fault};
use crate::commit::request::{Failed, KeyRequest};
use crate::commit::value::Tag;
use crate::commit::value_memory::KnownValue;

/// The most requests decided at a time: a thousand decisions take about a millisecond.
const MAX_BATCH: usize = 1_024;

/// A request that has no response yet.
#[derive(Debug)]
pub(crate) struct PendingRequest<T> {
    pub(crate) ask: KeyRequest,
    pub(crate) caller: T,
    /// When it arrived.
    pub(crate) since: Span,
    /// Its answer in an earlier call whose result is unknown.
    pub(crate) doubt: Option<Doubt>,
    #[cfg(test)]
    pub(crate) number: u64,
}

/// An attempt whose result is unknown.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) call: CallId,
    pub(crate) tag: Tag,
    pub(crate) reply: Vec<u8>,
}

/// A batch whose call is under way.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    /// The call that is under way.
    pub(crate) id: CallId,
    /// The call that commits the batch; a read may follow it.
    pub(crate) call: CallId,
    pub(crate) sent: Span,
    pub(crate) batch: Vec<PendingRequest<T>>,
    pub(crate) decided: BatchResult,
    pub(crate) tag: Tag,
    /// The engine's time of the decision.
    #[cfg(test)]
    pub(crate) now: Timestamp,
    /// The call contained the script.
    pub(crate) has_script: bool,
    /// Why the result is unknown; the call under way is a read of the stored bytes.
    pub(crate) doubt: Option<Fault>,
}

/// A key.
#[derive(Debug)]
pub(crate) struct Key<T> {
    pub(crate) lane: usize,
    pub(crate) waiting: VecDeque<PendingRequest<T>>,
    /// The stored bytes, as far as they are known.
    pub(crate) stored: Option<KnownValue>,
    pub(crate) flight: Option<Flight<T>>,
    /// The key is in the queue of its lane.
    pub(crate) is_ready: bool,
    /// Consecutive calls that the engine rejected for their time or for the missing script.
    pub(crate) refusals: u32,
}

impl<T> Key<T> {
    pub(crate) fn new(lane: usize, stored: Option<KnownValue>) -> Self {
        let waiting = VecDeque::new();
        Self { lane, waiting, stored, flight: None, is_ready: false, refusals: 0 }
    }

    /// Takes the first waiting requests, to be decided together.
    pub(crate) fn take_batch(&mut self) -> Vec<PendingRequest<T>> {
        let len = self.waiting.len().min(MAX_BATCH);
        self.waiting.drain(..len).collect()
    }

    /// Puts the requests of a batch that have no response before all others, in their order.
    pub(crate) fn put_back(&mut self, batch: Vec<PendingRequest<T>>) {
        for pending in batch.into_iter().rev() {
            self.waiting.push_front(pending);
        }
    }

    /// All requests that wait or are in `flight`.
    pub(crate) fn take_requests(&mut self, flight: Option<Flight<T>>) -> Vec<PendingRequest<T>> {
        let mut all = flight.map_or_else(Vec::new, |flight| flight.batch);
        all.extend(self.waiting.drain(..));
        all
    }
}

/// The content of a response.
pub(crate) type Answer = Result<Vec<u8>, Failed>;
