//! The lines of a queue: they open and close, waiters join and leave, and each has a time.
//!
//! Invariant: every waiter in `waiters` is in the `order` of exactly one line, and is included in
//! the line's `cost` and the queue's `bytes`. A line without waiters and without a spare time is
//! closed.

use alloc::vec::Vec;

use tollgate_core::{Span, Timestamp};

use crate::pipeline::plan::Full;

use super::agenda::Wake;
use super::order::Order;
use super::pace::Pace;
use super::places::Places;
use super::queue::{
    Due, Kind, LINE_BYTES, Line, PlaceRequest, Queue, SOONEST_RETURN, TIME_BYTES, Ticket,
    TurnRequest, WAITER_BYTES, Waiter,
};

/// The most waiters that a new one passes: a quarter of a millisecond in the worst case.
pub(super) const MOST_PASSED: usize = 4_096;

/// The name of a line: its key, and its cost if it is a line of places.
type Name<K> = (K, Option<u64>);

impl Kind {
    pub(super) const fn turns() -> Self {
        Self::Turns { pace: None, deciding: None, is_freed: false }
    }
}

impl<K> Line<K> {
    /// The speed of a line in which requests wait for their turn.
    pub(super) fn pace(&self) -> Option<&Pace> {
        match &self.kind {
            Kind::Turns { pace, .. } => pace.as_ref(),
            Kind::Places(_) => None,
        }
    }

    /// Before this time no waiter that joins now with `cost` is allowed.
    fn fits_at(&self, cost: u64, newer: Option<&Pace>) -> Timestamp {
        let ahead = u64::try_from(self.cost).unwrap_or(u64::MAX);
        let first_at = self.entry.map_or(Timestamp::ZERO, |(at, ..)| at);
        let Kind::Turns { pace, .. } = &self.kind else { return first_at };
        let Some(pace) = newer.or(pace.as_ref()) else { return first_at };
        let fits_at = pace.fits_at(ahead, cost);
        // The time of the next look is not one before which no place ends.
        if pace.needs_place() { fits_at } else { fits_at.max(first_at) }
    }
}

impl<K: Ord + Clone, T> Queue<K, T> {
    /// Whether one more request may wait for its turn.
    pub(super) fn fits(
        &self,
        now: Timestamp,
        turn_request: &TurnRequest<K>,
        line: Option<u64>,
        pace: Option<&Pace>,
    ) -> Result<(), Full> {
        let known = line.and_then(|id| self.lines.get(&id));
        let fits_at = match known {
            Some(line) => line.fits_at(turn_request.cost, pace),
            None => pace.map_or(now, |pace| pace.fits_at(0, turn_request.cost)),
        };
        let wait = fits_at.since(now).max(SOONEST_RETURN);
        if fits_at > turn_request.deadline {
            return Err(Full::Late(wait));
        }
        if self.is_full(line) {
            return Err(Full::Key(wait));
        }
        let opened = if known.is_none() { LINE_BYTES } else { 0 };
        let paced = pace.map_or(0, Pace::held_bytes);
        if self.is_out_of(turn_request.bytes.saturating_add(opened).saturating_add(paced)) {
            let first_at = self.next_at().unwrap_or(now);
            return Err(Full::Worker(wait.max(first_at.since(now))));
        }
        Ok(())
    }

    /// True when this line has the most waiters that it may have.
    pub(super) fn is_full(&self, line: Option<u64>) -> bool {
        let waiting = line.and_then(|id| self.lines.get(&id)).map_or(0, |line| line.order.len());
        waiting >= self.limits.per_key
    }

    /// True when one more waiter, with this many bytes, exceeds the bounds of the worker.
    fn is_out_of(&self, bytes: usize) -> bool {
        let bytes = self.bytes.saturating_add(bytes).saturating_add(WAITER_BYTES);
        self.waiters.len() >= self.limits.total || bytes > self.limits.bytes
    }

    pub(super) fn issue(&mut self) -> u64 {
        self.issued = self.issued.saturating_add(1);
        self.issued
    }

    pub(super) fn open(&mut self, key: Option<Name<K>>, kind: Kind) -> u64 {
        let id = self.issue();
        if let Some(name) = &key {
            self.by_key.insert(name.clone(), id);
        }
        let order = Order::default();
        self.lines.insert(id, Line { key, order, cost: 0, kind, entry: None, bytes: LINE_BYTES });
        self.bytes = self.bytes.saturating_add(LINE_BYTES);
        id
    }

    /// The line of places with this name.
    pub(super) fn places_of(&mut self, name: Option<Name<K>>) -> u64 {
        let known = name.as_ref().and_then(|name| self.by_key.get(name)).copied();
        known.unwrap_or_else(|| self.open(name, Kind::Places(Places::default())))
    }

    /// Sets a newer pace from the quotas of a line.
    pub(super) fn set_pace(&mut self, id: u64, newer: Option<Pace>) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let Kind::Turns { pace, is_freed, .. } = &mut line.kind else { return };
        if let Some(newer) = newer {
            let bytes = LINE_BYTES.saturating_add(newer.held_bytes());
            self.bytes = self.bytes.saturating_sub(line.bytes).saturating_add(bytes);
            line.bytes = bytes;
            *pace = Some(newer.after(pace.as_ref()));
        }
        if let (true, Some(pace)) = (*is_freed, pace) {
            pace.free_place();
        }
    }

    /// The pace of a waiter that was decided again and continues to wait in the line `name`. If it
    /// was in that one, the line knows of looks in vain and of a place that ended meanwhile, and
    /// closes when this is the only waiter there.
    pub(super) fn decided_again(&self, ticket: Ticket, name: &Name<K>, pace: Pace) -> Pace {
        let line = self.waiters.get(&ticket.0).and_then(|waiter| self.lines.get(&waiter.line));
        let line = line.filter(|line| line.key.as_ref() == Some(name));
        let Some(Line { kind: Kind::Turns { pace: earlier, is_freed, .. }, .. }) = line else {
            return pace;
        };
        let mut pace = pace.after_looks(earlier.as_ref().map_or(0, Pace::vain_looks));
        if *is_freed {
            pace.free_place();
        }
        pace
    }

    /// A request in flight of this line's key has ended in this process: the first of the line is
    /// decided now, and again if it is being decided. Returns the surface's value for it if it is
    /// due, so that a surface without a common timer can wake it.
    pub fn place_freed(&mut self, key: &K, now: Timestamp) -> Option<&T> {
        let id = *self.by_key.get(&(key.clone(), None))?;
        if let Kind::Turns { pace, deciding, is_freed } = &mut self.lines.get_mut(&id)?.kind {
            // Until the next decision, also where an earlier look of another request arrives late.
            *is_freed = true;
            if let (None, Some(pace)) = (deciding, pace) {
                pace.free_place();
            }
        }
        self.schedule(id, now);
        self.lines.get(&id)?.entry.filter(|(at, ..)| *at <= now)?;
        self.first(key)
    }

    /// The lines of turns whose keys are from `first` to `last`.
    pub fn lines_between(&self, first: &K, last: &K) -> Vec<K> {
        let from_first = self.by_key.rest_from(&(first.clone(), None)).map(|(name, _)| name);
        let between = from_first.take_while(|(key, _)| key <= last);
        between.filter(|(_, cost)| cost.is_none()).map(|(key, _)| key.clone()).collect()
    }

    /// The surface's value for the first of this line: for a surface without a common timer, which
    /// wakes it after another one of the line has gone.
    #[must_use]
    pub fn first(&self, key: &K) -> Option<&T> {
        let line = self.lines.get(self.by_key.get(&(key.clone(), None))?)?;
        self.waiters.get(&line.order.first()?).map(|waiter| &waiter.value)
    }

    /// Adds a waiter to its line: as the first, or by its rank and ticket.
    pub(super) fn stand(
        &mut self,
        ticket: u64,
        mut waiter: Waiter<T>,
        now: Timestamp,
        is_first: bool,
    ) {
        let id = waiter.line;
        let passed = if is_first { None } else { self.passed(ticket, &waiter, now) };
        let Some(line) = self.lines.get_mut(&id) else { return };
        let next = if is_first { line.order.first() } else { passed };
        line.order.insert(ticket, next);
        line.cost = line.cost.saturating_add(waiter.cost.into());
        if matches!(line.kind, Kind::Turns { .. }) {
            waiter.entry = Some(self.agenda.add(waiter.deadline, Wake::Deadline(ticket)));
        }
        self.bytes = self.bytes.saturating_add(waiter.bytes);
        self.waiters.insert(ticket, waiter);
        self.schedule(id, now);
    }

    /// The waiter before which a new one is inserted: it passes waiters at the end of its line that
    /// came later, and waiters of lower priority that still go in time.
    fn passed(&self, ticket: u64, waiter: &Waiter<T>, now: Timestamp) -> Option<u64> {
        let line = self.lines.get(&waiter.line)?;
        let mut times = match &line.kind {
            Kind::Places(places) => Some(places.last_first()),
            Kind::Turns { .. } => None,
        };
        let (mut ahead, mut found) = (line.cost, None);
        for id in line.order.last_first().take(MOST_PASSED) {
            let Some(other) = self.waiters.get(&id) else { break };
            ahead = ahead.saturating_sub(other.cost.into());
            // The last time is this waiter's, and each other waiter gets the time of the one before
            // it.
            let time = times.as_mut().and_then(Iterator::next);
            let yields = || match &line.kind {
                Kind::Places(_) => time.is_some_and(|time| time <= other.deadline),
                Kind::Turns { deciding, .. } if *deciding == Some(id) => false,
                Kind::Turns { pace, .. } => {
                    let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
                    let ahead = ahead.saturating_add(waiter.cost);
                    let fits_at = pace.as_ref().map(|pace| pace.fits_at(ahead, other.cost));
                    fits_at.unwrap_or(now) <= latest(now, other.deadline)
                }
            };
            let came_later = id > ticket && other.rank >= waiter.rank;
            if !came_later && (other.rank <= waiter.rank || !yields()) {
                break;
            }
            found = Some(id);
        }
        found
    }

    /// Removes a waiter from its line, and sets a newer pace from the line's quotas.
    pub(super) fn remove_waiter(
        &mut self,
        ticket: u64,
        now: Timestamp,
        newer: Option<Pace>,
    ) -> Option<Waiter<T>> {
        let waiter = self.waiters.remove(&ticket)?;
        self.agenda.remove(waiter.entry);
        self.bytes = self.bytes.saturating_sub(waiter.bytes);
        if let Some(line) = self.lines.get_mut(&waiter.line) {
            line.order.remove(ticket);
            line.cost = line.cost.saturating_sub(waiter.cost.into());
            if let Kind::Turns { deciding, .. } = &mut line.kind {
                deciding.take_if(|deciding| *deciding == ticket);
            }
        }
        self.set_pace(waiter.line, newer);
        self.schedule(waiter.line, now);
        Some(Waiter { entry: None, ..waiter })
    }

    /// Adds the time of a line's first waiter to the agenda, or closes the line.
    pub(super) fn schedule(&mut self, id: u64, now: Timestamp) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let first = line.order.first().and_then(|ticket| self.waiters.get(&ticket));
        let fits_at = match (&line.kind, first) {
            (Kind::Places(places), _) => places.first(),
            (Kind::Turns { pace, .. }, Some(first)) => {
                let decides_at = |pace: &Pace| pace.decides_at(first.cost, first.deadline);
                Some(pace.as_ref().map_or(now, decides_at))
            }
            (Kind::Turns { .. }, None) => None,
        };
        let Some(fits_at) = fits_at else { return self.close(id) };
        if let Kind::Places(places) = &line.kind {
            let spare = places.spare_len().saturating_mul(TIME_BYTES);
            let bytes = LINE_BYTES.saturating_add(spare);
            self.bytes = self.bytes.saturating_sub(line.bytes).saturating_add(bytes);
            line.bytes = bytes;
        }
        let is_idle = !matches!(line.kind, Kind::Turns { deciding: Some(_), .. });
        let at = fits_at.max(now);
        // An entry that is already due keeps its place.
        if is_idle && line.entry.is_some_and(|(entered, ..)| fits_at <= entered && entered <= at) {
            return;
        }
        self.agenda.remove(line.entry.take());
        if is_idle {
            line.entry = Some(self.agenda.add(at, Wake::Line(id)));
        }
    }

    fn close(&mut self, id: u64) {
        let Some(line) = self.lines.remove(&id) else { return };
        self.agenda.remove(line.entry);
        self.bytes = self.bytes.saturating_sub(line.bytes);
        if let Some(name) = line.key {
            self.by_key.remove(&name);
        }
    }

    /// Processes the turn of a line's first waiter.
    pub(super) fn wake(&mut self, id: u64, now: Timestamp) -> Option<Due<T>> {
        let line = self.lines.get_mut(&id)?;
        line.entry = None;
        let first = line.order.first();
        match &mut line.kind {
            Kind::Turns { deciding, is_freed, .. } => {
                let ticket = first?;
                (*deciding, *is_freed) = (Some(ticket), false);
                let waiter = self.waiters.get_mut(&ticket)?;
                self.agenda.remove(waiter.entry.take());
                Some(Due::Decide(Ticket(ticket)))
            }
            Kind::Places(places) => {
                let Some(ticket) = places.go().then_some(first).flatten() else {
                    self.schedule(id, now);
                    return Some(Due::Unused);
                };
                self.remove_waiter(ticket, now, None).map(|waiter| Due::Go(waiter.value))
            }
        }
    }

    /// Processes the deadline of a waiter.
    pub(super) fn give_up(&mut self, ticket: u64, now: Timestamp) -> Option<Due<T>> {
        let waited_in = self.lines.get(&self.waiters.get(&ticket)?.line);
        let waited_for_place = waited_in.and_then(Line::pace).is_some_and(Pace::is_out_of_places);
        let waiter = self.remove_waiter(ticket, now, None)?;
        if waited_for_place {
            return Some(Due::Over(waiter.value, Full::NoPlace));
        }
        let line = self.lines.get(&waiter.line);
        let fits_at = line.map_or(now, |line| line.fits_at(waiter.cost, None));
        Some(Due::Over(waiter.value, Full::Late(fits_at.since(now).max(SOONEST_RETURN))))
    }

    /// Adds a request that waits for `at` or, without it, for the next spare time.
    pub(super) fn take_place(
        &mut self,
        now: Timestamp,
        place_request: PlaceRequest<K>,
        at: Option<Timestamp>,
        value: T,
    ) -> Result<Ticket, (Full, T)> {
        let PlaceRequest { line, deadline, rank, bytes } = place_request;
        let name = line.map(|(key, cost)| (key, Some(cost)));
        let known = name.as_ref().and_then(|name| self.by_key.get(name)).copied();
        let wait = at.unwrap_or(now).since(now).max(SOONEST_RETURN);
        if self.is_full(known) {
            return Err((Full::Key(wait), value));
        }
        let opened = if known.is_none() { LINE_BYTES } else { 0 };
        if self.is_out_of(bytes.saturating_add(opened)) {
            return Err((Full::Worker(wait), value));
        }
        let id = self.places_of(name);
        if let Some(Line { kind: Kind::Places(places), .. }) = self.lines.get_mut(&id) {
            match at {
                Some(at) => places.add(at),
                None => drop(places.take_spare()),
            }
        }
        let ticket = self.issue();
        let bytes = bytes.saturating_add(WAITER_BYTES);
        let waiter = Waiter { line: id, cost: 0, deadline, rank, entry: None, bytes, value };
        self.stand(ticket, waiter, now, false);
        Ok(Ticket(ticket))
    }
}

/// The latest time at which a waiter that others pass must go: an eighth of its patience is
/// reserved for unpredictable delays, a late timer and other users of the key.
fn latest(now: Timestamp, deadline: Timestamp) -> Timestamp {
    let patience = deadline.since(now);
    let spare = Span::from_nanos(patience.as_nanos() / 8);
    now.saturating_add(patience.saturating_sub(spare))
}
