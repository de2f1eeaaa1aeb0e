//! The queue: every waiter has a ticket, is in one line, and has at most two entries in the agenda.
//!
//! Invariant: a line that is not being decided has exactly one entry, for its first waiter. A
//! waiter that waits for its turn and is not being decided has one, for its deadline. `bytes` is
//! the sum of the bytes counted for the waiters and the lines. Within a line, waiters of one rank
//! go by ticket, and tickets only grow.

use tollgate_core::{Span, Timestamp};

use crate::pipeline::plan::Full;
use crate::spec::limits::Limits;

use super::agenda::{Agenda, Entry, Wake};
use super::order::Order;
use super::pace::Pace;
use super::places::Places;
use crate::slab_map::SlabMap;

/// Bytes of a waiter in addition to its own: its places in the maps.
pub(super) const WAITER_BYTES: usize = 256;
/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 768;
/// Bytes of a spare time.
pub(super) const TIME_BYTES: usize = 64;
/// The shortest retry time sent to a client: one second.
pub(super) const SOONEST_RETURN: Span = Span::from_secs(1);

/// Identifies a waiter, so that the surface can remove it when its client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// A request that joins a line to wait for its turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnRequest<K> {
    /// The name of the line: one key, and one rule with its quotas.
    pub key: K,
    /// The cost of the request there.
    pub cost: u64,
    /// The latest time until which it waits.
    pub deadline: Timestamp,
    /// Its priority: 0 goes first.
    pub rank: u8,
    /// Bytes that it uses.
    pub bytes: usize,
}

/// A request with a place in a `leaky-queue` that joins a line.
#[derive(Clone, Copy, Debug)]
pub struct PlaceRequest<K> {
    /// The name of the line: a key and a cost; `None` when the request has more than one such time,
    /// so that no other request can use them.
    pub line: Option<(K, u64)>,
    /// The latest time until which it waits.
    pub deadline: Timestamp,
    /// Its priority: 0 goes first.
    pub rank: u8,
    /// Bytes that it uses.
    pub bytes: usize,
}

/// The next step for a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<T> {
    /// Decide it again, then call [`Queue::done`] or [`Queue::again`]. It is still in its line, and
    /// no other waiter of that line comes up until then.
    Decide(Ticket),
    /// Its time has come: continue the request.
    Go(T),
    /// Its deadline has come: deny it for this reason.
    Over(T, Full),
    /// A time of a `leaky-queue` has passed that no request could use.
    Unused,
}

/// A time that a `leaky-queue` assigned and that has no waiter now.
#[derive(Debug, PartialEq, Eq)]
pub struct Freed<K> {
    /// Refund it in the stored value: the charge that ends at this time.
    pub at: Timestamp,
    line: Option<(K, u64)>,
}

/// The waiting requests of one policy in one worker: `K` is the name of a line, `T` is the
/// surface's value for a waiter.
#[derive(Debug)]
pub struct Queue<K, T> {
    pub(super) limits: Limits,
    pub(super) waiters: SlabMap<u64, Waiter<T>>,
    pub(super) lines: SlabMap<u64, Line<K>>,
    /// Lines by key, and by cost for lines of places.
    pub(super) by_key: SlabMap<(K, Option<u64>), u64>,
    pub(super) agenda: Agenda,
    pub(super) bytes: usize,
    pub(super) issued: u64,
}

#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) line: u64,
    pub(super) cost: u64,
    pub(super) deadline: Timestamp,
    pub(super) rank: u8,
    pub(super) entry: Option<Entry>,
    pub(super) bytes: usize,
    pub(super) value: T,
}

#[derive(Debug)]
pub(super) struct Line<K> {
    pub(super) key: Option<(K, Option<u64>)>,
    pub(super) order: Order,
    /// The total cost of its waiters.
    pub(super) cost: u128,
    pub(super) kind: Kind,
    pub(super) entry: Option<Entry>,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// The first is decided again.
    Turns {
        pace: Option<Pace>,
        /// The waiter that is being decided.
        deciding: Option<u64>,
        /// A request in flight has ended since that decision began.
        is_freed: bool,
    },
    /// Every waiter has a time.
    Places(Places),
}

impl<K: Ord + Clone, T> Queue<K, T> {
    /// A queue without waiters.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiters: SlabMap::new(),
            lines: SlabMap::new(),
            by_key: SlabMap::new(),
            agenda: Agenda::new(),
            bytes: 0,
            issued: 0,
        }
    }

    /// Sets the bounds for new waiters. Existing waiters stay, even if there are more.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// True when there are no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Bytes that are used.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The time at which [`Queue::pop`] has its next result.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        self.agenda.next_at()
    }

    /// True when others wait for their turn in this line: then a new request goes after them,
    /// without a decision.
    #[must_use]
    pub fn has_line(&self, key: &K) -> bool {
        self.by_key.get(&(key.clone(), None)).is_some()
    }

    /// The surface's value for a waiter.
    pub fn value_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.waiters.get_mut(&ticket.0).map(|waiter| &mut waiter.value)
    }

    /// Adds a request that waits for its turn. `pace` is the current pace of the line's quotas, if
    /// they were checked.
    ///
    /// # Errors
    /// It may not wait.
    pub fn join(
        &mut self,
        now: Timestamp,
        turn_request: TurnRequest<K>,
        pace: Option<Pace>,
        value: T,
    ) -> Result<Ticket, (Full, T)> {
        let line = self.by_key.get(&(turn_request.key.clone(), None)).copied();
        if let Err(full) = self.fits(now, &turn_request, line, pace.as_ref()) {
            return Err((full, value));
        }
        let line = line.unwrap_or_else(|| self.open(Some((turn_request.key, None)), Kind::turns()));
        self.set_pace(line, pace);
        let ticket = self.issue();
        let waiter = Waiter {
            line,
            cost: turn_request.cost,
            deadline: turn_request.deadline,
            rank: turn_request.rank,
            entry: None,
            bytes: turn_request.bytes.saturating_add(WAITER_BYTES),
            value,
        };
        self.stand(ticket, waiter, now, false);
        Ok(Ticket(ticket))
    }

    /// A waiter that was decided again must continue to wait: as the first of its line, or in
    /// another one, in the order of its ticket there. Its deadline may be different now.
    ///
    /// # Errors
    /// It may not continue to wait, and has left.
    pub fn again(
        &mut self,
        ticket: Ticket,
        now: Timestamp,
        turn_request: TurnRequest<K>,
        pace: Pace,
    ) -> Result<(), Option<(Full, T)>> {
        let name = (turn_request.key, None);
        let pace = self.decided_again(ticket, &name, pace);
        let mut waiter = self.remove_waiter(ticket.0, now, None).ok_or(None)?;
        let waited_in = waiter.line;
        let known = self.by_key.get(&name).copied();
        let fits_at = pace.fits_at(0, turn_request.cost); // those who came later are not ahead
        let wait = fits_at.since(now).max(SOONEST_RETURN);
        let full = if fits_at > turn_request.deadline {
            Some(Full::Late(wait))
        } else if pace.is_out_of_places() && now >= turn_request.deadline {
            Some(Full::NoPlace) // it has had its last look
        } else {
            self.is_full(known).then_some(Full::Key(wait))
        };
        if let Some(full) = full {
            if let Some(id) = known {
                self.set_pace(id, Some(pace));
                self.schedule(id, now);
            }
            return Err(Some((full, waiter.value)));
        }
        waiter.line = known.unwrap_or_else(|| self.open(Some(name), Kind::turns()));
        waiter.cost = turn_request.cost;
        waiter.deadline = turn_request.deadline;
        waiter.rank = turn_request.rank;
        waiter.bytes = turn_request.bytes.saturating_add(WAITER_BYTES);
        self.set_pace(waiter.line, Some(pace));
        let is_first = waiter.line == waited_in;
        self.stand(ticket.0, waiter, now, is_first);
        Ok(())
    }

    /// A waiter that was decided again is finished. `pace` is the current pace of its line's
    /// quotas.
    pub fn done(&mut self, ticket: Ticket, now: Timestamp, pace: Option<Pace>) -> Option<T> {
        self.remove_waiter(ticket.0, now, pace).map(|waiter| waiter.value)
    }

    /// Adds a request that waits for the time that a `leaky-queue` has assigned to it.
    ///
    /// # Errors
    /// It may not wait.
    pub fn hold(
        &mut self,
        now: Timestamp,
        place_request: PlaceRequest<K>,
        at: Timestamp,
        value: T,
    ) -> Result<Ticket, (Full, T)> {
        self.take_place(now, place_request, Some(at), value)
    }

    /// The next spare time of this line: it was charged to a waiter that left.
    #[must_use]
    pub fn spare(&self, line: &(K, u64)) -> Option<Timestamp> {
        match &self.lines.get(self.by_key.get(&(line.0.clone(), Some(line.1)))?)?.kind {
            Kind::Places(places) => places.next_spare(),
            Kind::Turns { .. } => None,
        }
    }

    /// The same as [`Queue::hold`] for a spare time, which is not charged again.
    ///
    /// # Errors
    /// It may not wait, or there is no spare time.
    pub fn hold_spare(
        &mut self,
        now: Timestamp,
        place_request: PlaceRequest<K>,
        value: T,
    ) -> Result<Ticket, (Full, T)> {
        if place_request.line.as_ref().and_then(|line| self.spare(line)).is_none() {
            return Err((Full::Key(SOONEST_RETURN), value));
        }
        self.take_place(now, place_request, None, value)
    }

    /// Keeps a time that [`Queue::leave`] freed and that could not be refunded in the stored value,
    /// because later times are already assigned: another request may use it. False when it must
    /// stay empty.
    pub fn keep(&mut self, now: Timestamp, freed: Freed<K>) -> bool {
        let Some((key, cost)) = freed.line else { return false };
        let bytes = self.bytes.saturating_add(LINE_BYTES).saturating_add(TIME_BYTES);
        if freed.at <= now || bytes > self.limits.bytes {
            return false;
        }
        let id = self.places_of(Some((key, Some(cost))));
        if let Some(Line { kind: Kind::Places(places), .. }) = self.lines.get_mut(&id) {
            places.keep(freed.at);
        }
        self.schedule(id, now);
        true
    }

    /// Removes a waiter whose client has disconnected, and frees its bytes. If it had a time, those
    /// after it have moved up, and the last one must be refunded.
    pub fn leave(&mut self, ticket: Ticket, now: Timestamp) -> Option<(T, Option<Freed<K>>)> {
        let id = self.waiters.get(&ticket.0)?.line;
        let line = self.lines.get_mut(&id)?;
        let freed = match &mut line.kind {
            Kind::Turns { .. } => None,
            Kind::Places(places) => {
                let of = line.key.clone().and_then(|(key, cost)| Some((key, cost?)));
                places.leave().map(|at| Freed { at, line: of })
            }
        };
        let waiter = self.remove_waiter(ticket.0, now, None)?;
        Some((waiter.value, freed))
    }

    /// The next result that is due at `now`. Call it again, a bounded number of times, until there
    /// is none.
    pub fn pop(&mut self, now: Timestamp) -> Option<Due<T>> {
        loop {
            let due = match self.agenda.pop(now)? {
                Wake::Line(id) => self.wake(id, now),
                Wake::Deadline(ticket) => self.give_up(ticket, now),
            };
            if due.is_some() {
                return due;
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/line.rs"]
mod line;
#[cfg(test)]
#[path = "tests/model.rs"]
mod model;
#[cfg(test)]
#[path = "tests/priority.rs"]
mod priority;
