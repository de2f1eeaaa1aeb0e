//! A queue without its own timer: every waiter polls.
//!
//! For the Worker, where only a request's own timer can wake it, and where a request whose client
//! has disconnected may be stopped without notice. So each waiter states the time of its next poll,
//! and is dropped when it does not poll.
//!
//! Invariant: the same line, order and times as with [`Queue::pop`]. The time that a waiter gets is
//! never later than its turn if those ahead of it stay.

use tollgate_core::{Span, Timestamp};

use crate::pipeline::plan::Full;

use super::pace::Pace;
use super::queue::{Due, Kind, Queue, Ticket};

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// It is its turn: decide it again, then call [`Queue::done`] or [`Queue::again`].
    Decide,
    /// Its time has come, and it has left the queue.
    Go,
    /// Poll again at this time.
    Wait(Timestamp),
    /// Its deadline has come, and it has left the queue: deny it for this reason.
    Over(Full),
}

impl<K: Ord + Clone, T> Queue<K, T> {
    /// The next step of `ticket` at `now`.
    pub fn poll(&mut self, ticket: Ticket, now: Timestamp) -> Poll {
        let Some(waiter) = self.waiters.get(&ticket.0) else {
            return Poll::Over(Full::Late(Span::ZERO));
        };
        let (id, cost, deadline) = (waiter.line, waiter.cost, waiter.deadline);
        let Some(line) = self.lines.get_mut(&id) else { return Poll::Over(Full::Late(Span::ZERO)) };
        let turn = match &mut line.kind {
            Kind::Places(places) => match places.nth(line.order.before(ticket.0).count()) {
                Some(at) if at > now => return Poll::Wait(at),
                _ => {
                    places.go();
                    let _ = self.remove_waiter(ticket.0, now, None);
                    return Poll::Go;
                }
            },
            // Its time is not known: the surface wakes it when it is the first.
            Kind::Turns { pace: Some(pace), .. }
                if pace.needs_place() && line.order.first() != Some(ticket.0) =>
            {
                (false, deadline)
            }
            Kind::Turns { pace, .. } => {
                let before = line.order.before(ticket.0);
                let ahead = before.filter_map(|ticket| self.waiters.get(&ticket)).map(|w| w.cost);
                let ahead = ahead.fold(0, u64::saturating_add);
                let fits_at = pace.as_ref().map_or(now, |pace| pace.fits_at(ahead, cost));
                let is_first = line.order.first() == Some(ticket.0);
                let first_at = line.entry.map_or(now, |(at, ..)| at);
                (is_first && line.entry.is_some(), fits_at.max(first_at))
            }
        };
        match turn {
            (true, at) if at <= now && at <= deadline => {
                self.agenda.remove(self.lines.get_mut(&id).and_then(|line| line.entry.take()));
                match self.wake(id, now) {
                    Some(Due::Decide(_)) => Poll::Decide,
                    _ => Poll::Wait(now),
                }
            }
            _ if deadline <= now => match self.give_up(ticket.0, now) {
                Some(Due::Over(_, full)) => Poll::Over(full),
                _ => Poll::Over(Full::Late(Span::ZERO)),
            },
            (_, at) => Poll::Wait(at.min(deadline)),
        }
    }

    /// How many are ahead of `ticket` in its line, counted up to `most`, if that waits for a place
    /// among the requests in flight: for a surface that cannot wake a waiter when one has ended.
    #[must_use]
    pub fn ahead_for_place(&self, ticket: Ticket, most: usize) -> Option<usize> {
        let line = self.lines.get(&self.waiters.get(&ticket.0)?.line)?;
        let needs_place = line.pace().is_some_and(Pace::needs_place);
        needs_place.then(|| line.order.before(ticket.0).take(most).count())
    }

    /// Drops every waiter for which `is_there` returns false.
    pub fn retain(&mut self, now: Timestamp, mut is_there: impl FnMut(&T) -> bool) {
        let gone: alloc::vec::Vec<u64> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| !is_there(&waiter.value))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in gone {
            let _ = self.leave(Ticket(ticket), now);
        }
    }
}
