//! The requests that wait in this server: one line for each key of a rule.
//!
//! Invariant: a request that has left delays no other: its place is given up when its holder is
//! dropped, as happens when the client leaves. Deliberately absent: the order of turns; that is in
//! the queue of `tollgate-policy`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::Timestamp;
use tollgate_policy::waiting::{Limits, Queue, Ticket};

use crate::clock::Clock;

/// A hash of the key, and the rule or tier.
pub(crate) type Line = (u128, u32);

/// The waiting requests.
#[derive(Debug)]
pub(crate) struct Lines(Mutex<Queue<Line, ()>>);

/// The place of a waiting request.
pub(crate) struct WaitingSlot<'a> {
    lines: &'a Lines,
    clock: &'a Clock,
    pub(crate) ticket: Ticket,
}

impl Lines {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self(Mutex::new(Queue::new(limits)))
    }

    /// The queue. Never held across an await.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue<Line, ()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many may wait from now on; requests that already wait continue to wait.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.queue().set_limits(limits);
    }

    pub(crate) const fn hold<'a>(&'a self, clock: &'a Clock, ticket: Ticket) -> WaitingSlot<'a> {
        WaitingSlot { lines: self, clock, ticket }
    }
}

impl Drop for WaitingSlot<'_> {
    fn drop(&mut self) {
        let now: Timestamp = self.clock.now();
        // A request that has its decision is no longer in it.
        let _ = self.lines.queue().leave(self.ticket, now);
    }
}
