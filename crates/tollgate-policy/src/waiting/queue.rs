//! The queue: every waiter has a ticket, stands in one line, and has at most two entries in the
//! agenda.
//!
//! Invariant: a line that is not being decided has exactly one entry, for its first waiter; a
//! waiter that waits for its turn and is not being decided has one, for its deadline. `bytes` is
//! the sum of what the waiters and the lines were counted with. Within a line those of one rank go
//! by ticket, and tickets only grow.

use alloc::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};

use crate::pipeline::plan::Full;
use crate::policy::limits::Limits;

use super::agenda::{Agenda, Entry, Wake};
use super::order::Order;
use super::pace::Pace;
use super::places::Places;
use super::slab_map::SlabMap;

/// What a waiter takes here beside what it brings: its places in the maps.
pub(super) const WAITER_BYTES: usize = 256;
/// What a line takes.
pub(super) const LINE_BYTES: usize = 768;
/// A spare time.
pub(super) const TIME_BYTES: usize = 64;
/// Nobody is told to come back sooner than in one second.
pub(super) const SOONEST_RETURN: Span = Span::from_secs(1);

/// Who waits: for the surface to name one when its client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// Where a request wants to wait.
#[derive(Clone, Copy, Debug)]
pub struct Seat<K> {
    /// Whose line: one key, and one rule with its quotas.
    pub key: K,
    /// What it costs there.
    pub cost: u64,
    /// It waits until then at the latest.
    pub deadline: Timestamp,
    /// Its priority: 0 goes first.
    pub rank: u8,
    /// Bytes that it holds.
    pub bytes: usize,
}

/// Where a request wants to wait for a time of a `leaky-queue`.
#[derive(Clone, Copy, Debug)]
pub struct Spot<K> {
    /// Whose times they are: a key and a cost; `None` when it has more than one such time, which
    /// nobody else can use.
    pub line: Option<(K, u64)>,
    /// It waits until then at the latest.
    pub deadline: Timestamp,
    /// Its priority: 0 goes first.
    pub rank: u8,
    /// Bytes that it holds.
    pub bytes: usize,
}

/// What is to be done with a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<T> {
    /// Decide it again, then call [`Queue::done`] or [`Queue::again`]. It is still in its line, and
    /// nobody else of that line comes up until then.
    Decide(Ticket),
    /// Its time has come: let it go on.
    Go(T),
    /// Its deadline has come: refuse it. It may be worth coming back after this time.
    Over(T, Span),
    /// A time of a `leaky-queue` passed that nobody could use.
    Unused,
}

/// A time that a `leaky-queue` gave out and that is nobody's now.
#[derive(Debug, PartialEq, Eq)]
pub struct Freed<K> {
    /// Take it back from the stored value: the charge that ends in this time.
    pub at: Timestamp,
    line: Option<(K, u64)>,
}

/// The waiting requests of one policy in one worker: `K` names lines, `T` is what the surface
/// keeps.
#[derive(Debug)]
pub struct Queue<K, T> {
    pub(super) limits: Limits,
    pub(super) waiters: SlabMap<u64, Waiter<T>>,
    pub(super) lines: SlabMap<u64, Line<K>>,
    /// Lines by key, and by cost if it is one of places.
    pub(super) by_key: BTreeMap<(K, Option<u64>), u64>,
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
    /// What all of them cost.
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
        /// Who is being decided.
        deciding: Option<u64>,
    },
    /// Everybody has a time.
    Places(Places),
}

impl<K: Ord + Clone, T> Queue<K, T> {
    /// A queue in which nobody waits.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiters: SlabMap::new(),
            lines: SlabMap::new(),
            by_key: BTreeMap::new(),
            agenda: Agenda::new(),
            bytes: 0,
            issued: 0,
        }
    }

    /// Sets how many may wait from now on. Those who wait already stay, were they more.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// True when nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Bytes that are held.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// When [`Queue::pop`] has something next.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        self.agenda.next_at()
    }

    /// True when others wait for their turn in this line: then a newcomer goes behind them,
    /// undecided.
    #[must_use]
    pub fn has_line(&self, key: &K) -> bool {
        self.by_key.contains_key(&(key.clone(), None))
    }

    /// What was kept of a waiter.
    pub fn value_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.waiters.get_mut(&ticket.0).map(|waiter| &mut waiter.value)
    }

    /// Lets a request wait for its turn. `pace` is what the quotas of the line said just now, if
    /// they were asked.
    ///
    /// # Errors
    /// It may not wait.
    pub fn join(
        &mut self,
        now: Timestamp,
        seat: Seat<K>,
        pace: Option<Pace>,
        value: T,
    ) -> Result<Ticket, (Full, T)> {
        let line = self.by_key.get(&(seat.key.clone(), None)).copied();
        if let Err(full) = self.fits(now, &seat, line, pace.as_ref()) {
            return Err((full, value));
        }
        let line = line.unwrap_or_else(|| self.open(Some((seat.key, None)), Kind::turns()));
        self.set_pace(line, pace);
        let ticket = self.issue();
        let waiter = Waiter {
            line,
            cost: seat.cost,
            deadline: seat.deadline,
            rank: seat.rank,
            entry: None,
            bytes: seat.bytes.saturating_add(WAITER_BYTES),
            value,
        };
        self.stand(ticket, waiter, now, false);
        Ok(Ticket(ticket))
    }

    /// A waiter that was decided again must wait on: as the first of its line, or in another one,
    /// in the order of its ticket there. Its deadline may be another one now.
    ///
    /// # Errors
    /// It may not wait on, and has left.
    pub fn again(
        &mut self,
        ticket: Ticket,
        now: Timestamp,
        seat: Seat<K>,
        pace: Pace,
    ) -> Result<(), Option<(Full, T)>> {
        let mut waiter = self.unseat(ticket.0, now, None).ok_or(None)?;
        let stood_in = waiter.line;
        let name = (seat.key, None);
        let known = self.by_key.get(&name).copied();
        let fits_at = pace.fits_at(0, seat.cost); // those who came after it are not ahead of it
        let wait = fits_at.since(now).max(SOONEST_RETURN);
        if fits_at > seat.deadline || self.is_full(known) {
            if let Some(id) = known {
                self.set_pace(id, Some(pace));
                self.schedule(id, now);
            }
            let late = fits_at > seat.deadline;
            let full = if late { Full::Late(wait) } else { Full::Key(wait) };
            return Err(Some((full, waiter.value)));
        }
        waiter.line = known.unwrap_or_else(|| self.open(Some(name), Kind::turns()));
        waiter.cost = seat.cost;
        waiter.deadline = seat.deadline;
        waiter.rank = seat.rank;
        waiter.bytes = seat.bytes.saturating_add(WAITER_BYTES);
        self.set_pace(waiter.line, Some(pace));
        let is_first = waiter.line == stood_in;
        self.stand(ticket.0, waiter, now, is_first);
        Ok(())
    }

    /// A waiter that was decided again has its answer. `pace` is what the quotas of its line say
    /// now.
    pub fn done(&mut self, ticket: Ticket, now: Timestamp, pace: Option<Pace>) -> Option<T> {
        self.unseat(ticket.0, now, pace).map(|waiter| waiter.value)
    }

    /// Lets a request wait for the time that a `leaky-queue` has given it.
    ///
    /// # Errors
    /// It may not wait.
    pub fn hold(
        &mut self,
        now: Timestamp,
        spot: Spot<K>,
        at: Timestamp,
        value: T,
    ) -> Result<Ticket, (Full, T)> {
        self.take_place(now, spot, Some(at), value)
    }

    /// The time that is spare in this line: it was charged to a waiter that left.
    #[must_use]
    pub fn spare(&self, line: &(K, u64)) -> Option<Timestamp> {
        match &self.lines.get(self.by_key.get(&(line.0.clone(), Some(line.1)))?)?.kind {
            Kind::Places(places) => places.next_spare(),
            Kind::Turns { .. } => None,
        }
    }

    /// The same as [`Queue::hold`] for a time that is spare; it is not charged again.
    ///
    /// # Errors
    /// It may not wait, or nothing is spare.
    pub fn hold_spare(
        &mut self,
        now: Timestamp,
        spot: Spot<K>,
        value: T,
    ) -> Result<Ticket, (Full, T)> {
        if spot.line.as_ref().and_then(|line| self.spare(line)).is_none() {
            return Err((Full::Key(SOONEST_RETURN), value));
        }
        self.take_place(now, spot, None, value)
    }

    /// A time that [`Queue::leave`] freed could not be taken back from the stored value, because
    /// others were given later ones: it waits for somebody who can use it. False when it must stay
    /// empty.
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

    /// The client of a waiter has left: everything that it holds is free. If it had a time, those
    /// behind it have moved up, and the last one is to be taken back.
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
        let waiter = self.unseat(ticket.0, now, None)?;
        Some((waiter.value, freed))
    }

    /// What is due at `now`. Call it again, a bounded number of times, until there is nothing.
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
