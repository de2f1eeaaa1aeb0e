//! The requests that wait in this isolate: one line per key of a rule. Abandoned ones are removed.
//!
//! Invariant: the platform may stop a request without notice when its client has left. So a waiter
//! that does not poll again in time is removed, and its turn passes to the next one. Deliberately
//! absent: the order of turns; the queue of `tollgate-policy` decides it.

use std::cell::{Cell, RefCell};

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Limits, Queue, Ticket};
use tollgate_service::drive::waiting::LONGEST_SLEEP;

/// A waiter that is this late to poll again is gone: a timer of a busy isolate may be late, too.
const PATIENCE: Span = Span::from_secs(10);

/// The sleep of the first waiter of a line that waits for a place. Those behind it sleep longer,
/// each by as much, the tenth and all others equally.
const PLACE_SLEEP: Span = Span::from_millis(25);
/// So that a waiter that becomes the first is awake within a quarter of a second.
const LONGER_SLEEPS: usize = 9;
/// The most decisions in vain for one request: each calls the objects of its keys, and the platform
/// bounds the calls of one request.
pub(crate) const MOST_LOOKS: u32 = 100;

/// The object's name, and the rule or tier.
pub(crate) type Line = (String, u32);

/// The waiting requests of this isolate.
pub(crate) struct Lines {
    /// Each with the time until which it will have polled again. Not borrowed across an await.
    pub(crate) queue: RefCell<Queue<Line, Timestamp>>,
    swept_at: Cell<Timestamp>,
}

impl Lines {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self { queue: RefCell::new(Queue::new(limits)), swept_at: Cell::new(Timestamp::ZERO) }
    }

    /// Sets how many may wait from now on; those that already wait continue to wait.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.queue.borrow_mut().set_limits(limits);
    }

    /// Removes, from time to time, the waiters that are gone.
    pub(crate) fn sweep(&self, now: Timestamp) {
        if now.since(self.swept_at.get()) >= LONGEST_SLEEP {
            self.swept_at.set(now);
            self.queue.borrow_mut().retain(now, |asks_until| *asks_until >= now);
        }
    }

    /// A request in flight that this count has released: the first requests that wait for its
    /// place have their turn with their next poll.
    pub(crate) fn place_freed(&self, name: &str, now: Timestamp) {
        let mut queue = self.queue.borrow_mut();
        if queue.is_empty() {
            return;
        }
        let line = |record| (name.to_owned(), record);
        for line in queue.lines_between(&line(0), &line(u32::MAX)) {
            let _ = queue.place_freed(&line, now);
        }
    }

    /// The longest sleep of a waiter, if its line waits for a place: it is not woken when one ends
    /// here.
    pub(crate) fn longest_sleep(&self, ticket: Ticket) -> Option<Span> {
        let ahead = self.queue.borrow().ahead_for_place(ticket, LONGER_SLEEPS)?;
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        Some(PLACE_SLEEP.saturating_mul(ahead.saturating_add(1)))
    }

    /// Records that the waiter will have polled again soon after `at`.
    pub(crate) fn expect(&self, ticket: Ticket, at: Timestamp) {
        if let Some(asks_until) = self.queue.borrow_mut().value_mut(ticket) {
            *asks_until = at.saturating_add(PATIENCE);
        }
    }
}
