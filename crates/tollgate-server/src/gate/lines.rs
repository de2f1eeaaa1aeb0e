//! Who waits in this server: one line for each key of a rule.
//!
//! Invariant: whoever is gone stands in nobody's way: a place is given up when what holds it is
//! dropped, as it is when the client leaves. Deliberately absent: whose turn is when; that is the
//! queue's of `tollgate-policy`.

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
pub(crate) struct Place<'a> {
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

    /// From now on so many may wait; those who do already go on waiting.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.queue().set_limits(limits);
    }

    pub(crate) const fn hold<'a>(&'a self, clock: &'a Clock, ticket: Ticket) -> Place<'a> {
        Place { lines: self, clock, ticket }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let now: Timestamp = self.clock.now();
        // Whoever has its answer is not in it any more.
        let _ = self.lines.queue().leave(self.ticket, now);
    }
}
