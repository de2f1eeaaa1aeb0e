//! Who waits in this isolate: one line for each key of a rule, and who of them is gone.
//!
//! Invariant: a request whose client has left may be stopped without a word, so whoever does not
//! ask again in time is forgotten, and its turn is the next one's. Deliberately absent: whose turn
//! is when; that is the queue's of `tollgate-policy`.

use std::cell::{Cell, RefCell};

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Limits, Poll, Queue, Ticket};

/// A waiter asks again at least so often, because those ahead of it may have left.
pub(crate) const LONGEST_SLEEP: Span = Span::from_secs(1);
/// Whoever is so late to ask again is gone: a timer of a busy isolate may be late, too.
const PATIENCE: Span = Span::from_secs(10);

/// The object's name, and the rule or tier.
pub(crate) type Line = (String, u32);

/// The waiting requests of this isolate.
pub(crate) struct Lines {
    /// With each the time until which it will have asked again. Not borrowed across an await.
    pub(crate) queue: RefCell<Queue<Line, Timestamp>>,
    swept_at: Cell<Timestamp>,
}

impl Lines {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self { queue: RefCell::new(Queue::new(limits)), swept_at: Cell::new(Timestamp::ZERO) }
    }

    /// From now on so many may wait; those who do already go on waiting.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.queue.borrow_mut().set_limits(limits);
    }

    /// Forgets, once in a while, whoever is gone.
    pub(crate) fn sweep(&self, now: Timestamp) {
        if now.since(self.swept_at.get()) >= LONGEST_SLEEP {
            self.swept_at.set(now);
            self.queue.borrow_mut().retain(now, |asks_until| *asks_until >= now);
        }
    }

    /// What the waiter is to do.
    pub(crate) fn poll(&self, ticket: Ticket, now: Timestamp) -> Poll {
        self.sweep(now);
        self.queue.borrow_mut().poll(ticket, now)
    }

    /// The waiter will have asked again soon after `at`.
    pub(crate) fn expect(&self, ticket: Ticket, at: Timestamp) {
        if let Some(asks_until) = self.queue.borrow_mut().value_mut(ticket) {
            *asks_until = at.saturating_add(PATIENCE);
        }
    }
}
