//! The requests that wait in this server: one line for each key of a rule.
//!
//! Invariant: a request that has left delays no other: its place is given up when its holder is
//! dropped, as happens when the client leaves, and the next one is woken. Deliberately absent: the
//! order of turns; that is in the queue of `tollgate-policy`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate_core::Timestamp;
use tollgate_policy::waiting::{Limits, Queue, Ticket};

use crate::clock::Clock;
use crate::store::Name;

/// The name of the key's count, and the rule or tier.
pub(crate) type Line = (Name, u32);

/// The waiting requests, each with its means to be woken.
#[derive(Debug)]
pub(crate) struct Lines(Mutex<Queue<Line, Arc<Notify>>>);

/// The place of a waiting request.
pub(crate) struct WaitingSlot<'a> {
    lines: &'a Lines,
    clock: &'a Clock,
    pub(crate) ticket: Ticket,
    /// Its line.
    pub(crate) line: Line,
    /// Wakes it when its turn may have come early.
    pub(crate) wakes: Arc<Notify>,
}

impl Lines {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self(Mutex::new(Queue::new(limits)))
    }

    /// The queue. Never held across an await.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue<Line, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many may wait from now on; requests that already wait continue to wait.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.queue().set_limits(limits);
    }

    /// A request in flight that this count has released: the first requests that wait for its
    /// place have their turn.
    pub(crate) fn place_freed(&self, name: &Name, now: Timestamp) {
        let mut queue = self.queue();
        if queue.is_empty() {
            return;
        }
        for line in queue.lines_between(&(*name, 0), &(*name, u32::MAX)) {
            if let Some(first) = queue.place_freed(&line, now) {
                first.notify_one();
            }
        }
    }

    pub(crate) const fn hold<'a>(
        &'a self,
        clock: &'a Clock,
        (ticket, line): (Ticket, Line),
        wakes: Arc<Notify>,
    ) -> WaitingSlot<'a> {
        WaitingSlot { lines: self, clock, ticket, line, wakes }
    }
}

impl WaitingSlot<'_> {
    /// It continues to wait in this line: the next one of an earlier line is the first there.
    pub(crate) fn moved(&mut self, line: Line) {
        let earlier = std::mem::replace(&mut self.line, line);
        if earlier != self.line
            && let Some(first) = self.lines.queue().first(&earlier)
        {
            first.notify_one();
        }
    }
}

impl Drop for WaitingSlot<'_> {
    fn drop(&mut self) {
        let now: Timestamp = self.clock.now();
        // A request that has its decision is no longer in it.
        let mut queue = self.lines.queue();
        let _ = queue.leave(self.ticket, now);
        if let Some(first) = queue.first(&self.line) {
            first.notify_one();
        }
    }
}
