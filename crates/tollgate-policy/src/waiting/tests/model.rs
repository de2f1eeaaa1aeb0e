//! The queue against a naive model: random arrivals, departures, time and charges elsewhere, with
//! the core's limiters.
//!
//! After every step: every waiter is in line in the order of arrival, no due waiter is left alone,
//! no waiter is kept beyond its deadline, counts and bytes are exact; and decisions are counted.
#![allow(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic
)]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};
use tollgate_test_support::Random;

use super::super::{Limits, Pace, Poll};
use super::{
    Due, Freed, Full, Kind, LINE_BYTES, PlaceRequest, Queue, TIME_BYTES, Ticket, TurnRequest,
    WAITER_BYTES,
};

const SEEDS: u64 = if cfg!(debug_assertions) { 1_000 } else { 20_000 };
const STEPS: usize = 80;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// The stored state of a key, and how often it was decided.
struct Key {
    limiter: Limiter,
    state: Vec<u8>,
    /// Decisions on the first of its line, and how many of them allowed it.
    decided: u64,
    admitted: u64,
    /// Charges by others.
    elsewhere: u64,
}

impl Key {
    fn new(random: &mut Random) -> Self {
        let algorithm = match random.below(6) {
            0 => Algorithm::TokenBucket,
            1 => Algorithm::FixedWindow,
            2 => Algorithm::SlidingWindow,
            3 => Algorithm::SlidingLog,
            4 => Algorithm::SlidingBuckets { buckets: 4, weighted: false },
            _ => Algorithm::Gcra,
        };
        let quota = Quota::new(1 + random.below(4), Span::from_millis(20 + random.below(80)));
        let limiter = Limiter::new(algorithm, quota.unwrap()).unwrap();
        let state = alloc::vec![0; limiter.state_len()];
        Self { limiter, state, decided: 0, admitted: 0, elsewhere: 0 }
    }

    fn is_rate(&self) -> bool {
        matches!(self.limiter.algorithm(), Algorithm::Gcra | Algorithm::TokenBucket)
    }

    fn decide(&mut self, now: u64, cost: u64) -> (bool, Pace) {
        let decision = self.limiter.check(&mut self.state, at(now), cost);
        let quotas = core::iter::once((self.limiter, decision));
        (decision.is_admitted(), Pace::new(at(now), cost, false, quotas))
    }

    /// The time at which `costs` have gone one after the other, each as soon as it can.
    fn gone_at(&self, now: u64, costs: impl Iterator<Item = u64>) -> Timestamp {
        let (mut state, mut time) = (self.state.clone(), at(now));
        for cost in costs {
            while let Some(wait) = self.limiter.check(&mut state, time, cost).retry_after {
                time = time.saturating_add(wait);
            }
        }
        time
    }
}

/// A waiter, in the order of arrival.
#[derive(Clone, Copy)]
struct Waits {
    who: u64,
    key: usize,
    cost: u64,
    deadline: u64,
    ticket: Ticket,
    bytes: usize,
}

struct World {
    random: Random,
    now: u64,
    keys: Vec<Key>,
    queue: Queue<usize, u64>,
    waits: Vec<Waits>,
    came: u64,
    answered: u64,
    unit: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let keys = (0..3).map(|_| Key::new(&mut random)).collect();
        let per_key = 3 + usize::try_from(random.below(8)).unwrap();
        let limits = Limits { per_key, total: 16, bytes: 40_000 };
        let unit = random.below(2) == 0;
        let now = 1_000 + random.below(1_000);
        let queue = Queue::new(limits);
        Self { random, now, keys, queue, waits: Vec::new(), came: 0, answered: 0, unit }
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0..=4 => self.arrive(),
            5 => self.leave(),
            6 => {
                let key = usize::try_from(self.random.below(3)).unwrap();
                let (admitted, _) = self.keys[key].decide(self.now, 1);
                self.keys[key].elsewhere += u64::from(admitted);
            }
            _ => self.now += 1 + self.random.below(15),
        }
    }

    fn arrive(&mut self) {
        let key = usize::try_from(self.random.below(3)).unwrap();
        let most = if self.unit { 1 } else { self.keys[key].limiter.capacity() };
        let cost = 1 + self.random.below(most);
        let deadline = self.now + self.random.below(400);
        let bytes = usize::try_from(self.random.below(6_000)).unwrap();
        self.came += 1;
        let had_line = self.queue.has_line(&key);
        let mut pace = None;
        if !had_line {
            let (admitted, said) = self.keys[key].decide(self.now, cost);
            if admitted {
                self.answered += 1;
                return;
            }
            pace = Some(said);
        }
        let ahead = || self.waits.iter().filter(|w| w.key == key);
        let costs = ahead().map(|w| w.cost).chain([cost]);
        let gone_at = self.keys[key].gone_at(self.now, costs);
        let count = ahead().count();
        let held = self.queue.bytes();
        let turn_request = TurnRequest { key, cost, deadline: at(deadline), rank: 0, bytes };
        let (who, limits) = (self.came, self.queue.limits);
        match self.queue.join(at(self.now), turn_request, pace, who) {
            Ok(ticket) => {
                assert!(count < limits.per_key && self.waits.len() < limits.total);
                assert!(self.queue.bytes() <= limits.bytes);
                let known = &self.keys[key];
                if known.is_rate() && known.elsewhere == 0 {
                    assert!(gone_at <= at(deadline), "let wait in vain");
                }
                self.waits.push(Waits { who, key, cost, deadline, ticket, bytes });
            }
            Err((full, value)) => {
                assert_eq!((value, self.queue.bytes()), (who, held));
                self.answered += 1;
                match full {
                    Full::Late(_) => assert!(gone_at > at(deadline), "refused too early"),
                    Full::NoPlace => panic!("no rule limits requests in flight"),
                    Full::Key(_) => assert_eq!(count, limits.per_key),
                    Full::Worker(_) => {
                        let room = bytes + WAITER_BYTES + 2 * LINE_BYTES;
                        let tight = held + room > limits.bytes;
                        assert!(self.waits.len() == limits.total || tight);
                    }
                }
            }
        }
    }

    fn leave(&mut self) {
        if self.waits.is_empty() {
            return;
        }
        let length = u64::try_from(self.waits.len()).unwrap();
        let index = usize::try_from(self.random.below(length)).unwrap();
        let gone = self.waits.remove(index);
        let left = self.queue.leave(gone.ticket, at(self.now));
        assert_eq!(left, Some((gone.who, None)));
        assert_eq!(self.queue.leave(gone.ticket, at(self.now)), None);
        self.answered += 1;
    }

    /// Processes everything that is due, like a surface with a timer.
    fn pop(&mut self) {
        while let Some(due) = self.queue.pop(at(self.now)) {
            match due {
                Due::Decide(ticket) => self.decide(ticket),
                Due::Over(who, _) => self.over(who),
                Due::Go(_) | Due::Unused => panic!("nobody has a place"),
            }
        }
    }

    /// The same with waiters that poll, in any order.
    fn poll(&mut self) {
        loop {
            let mut asked = false;
            let offset = usize::try_from(self.random.below(7)).unwrap();
            for index in 0..self.waits.len() {
                let index = (index + offset) % self.waits.len().max(1);
                let Some(waits) = self.waits.get(index).copied() else { continue };
                match self.queue.poll(waits.ticket, at(self.now)) {
                    Poll::Decide => self.decide(waits.ticket),
                    Poll::Over(_) => self.over(waits.who),
                    Poll::Wait(until) => {
                        // Never later than the time at which it goes if those ahead stay.
                        let ahead = self.waits.iter().filter(|w| w.key == waits.key);
                        let costs = ahead.filter(|w| w.who <= waits.who).map(|w| w.cost);
                        assert!(
                            until
                                <= self.keys[waits.key].gone_at(self.now, costs).max(at(self.now))
                        );
                        continue;
                    }
                    Poll::Go => panic!("nobody has a place"),
                }
                asked = true;
                break;
            }
            if !asked {
                return;
            }
        }
    }

    fn decide(&mut self, ticket: Ticket) {
        let index = self.waits.iter().position(|w| w.ticket == ticket).unwrap();
        let first = self.waits[index];
        assert!(!self.waits[..index].iter().any(|w| w.key == first.key), "out of order");
        let key = &mut self.keys[first.key];
        let (admitted, pace) = key.decide(self.now, first.cost);
        key.decided += 1;
        if admitted {
            key.admitted += 1;
            assert_eq!(self.queue.done(ticket, at(self.now), Some(pace)), Some(first.who));
            self.answered += 1;
            self.waits.remove(index);
            return;
        }
        let turn_request = TurnRequest {
            key: first.key,
            cost: first.cost,
            deadline: at(first.deadline),
            rank: 0,
            bytes: first.bytes,
        };
        if let Err(full) = self.queue.again(ticket, at(self.now), turn_request, pace) {
            let (Full::Late(wait), who) = full.unwrap() else { panic!("its place is its own") };
            assert!(wait > at(first.deadline).since(at(self.now)));
            assert_eq!(who, first.who);
            self.answered += 1;
            self.waits.remove(index);
        }
    }

    fn over(&mut self, who: u64) {
        let index = self.waits.iter().position(|w| w.who == who).unwrap();
        assert!(self.waits[index].deadline <= self.now, "given up too early");
        self.waits.remove(index);
        self.answered += 1;
    }

    fn check(&self) {
        assert_eq!(self.came, self.answered + u64::try_from(self.waits.len()).unwrap());
        assert_eq!(self.queue.len(), self.waits.len());
        let mut firsts = BTreeMap::new();
        for waits in &self.waits {
            assert!(waits.deadline > self.now, "kept beyond its deadline");
            firsts.entry(waits.key).or_insert(*waits);
        }
        for first in firsts.values() {
            let key = &self.keys[first.key];
            let would = key.limiter.peek(&key.state, at(self.now), first.cost);
            assert!(!would.is_admitted(), "left alone though it is its turn");
        }
        assert_eq!(self.queue.lines.len(), firsts.len());
        assert_eq!(self.queue.by_key.len(), firsts.len());
        let lines: usize = self
            .queue
            .lines
            .values()
            .map(|line| match &line.kind {
                Kind::Turns { pace, .. } => LINE_BYTES + pace.as_ref().map_or(0, Pace::held_bytes),
                Kind::Places(_) => panic!("nobody has a place"),
            })
            .sum();
        let waiters: usize = self.waits.iter().map(|w| w.bytes + WAITER_BYTES).sum();
        assert_eq!(self.queue.bytes(), lines + waiters);
        for key in &self.keys {
            // A denied waiter was denied because another request was faster, if its cost is one
            // unit or its quota is a rate: only then do the numbers of a decision show when the
            // next cost fits.
            if self.unit || key.is_rate() {
                let most = key.admitted + key.elsewhere;
                assert!(key.decided <= most, "{} of {most} by {:?}", key.decided, key.limiter);
            }
        }
    }

    fn run(mut self, due: fn(&mut Self)) {
        for _ in 0..STEPS {
            self.step();
            due(&mut self);
            self.check();
        }
        self.now += 1_000;
        due(&mut self);
        assert_eq!((self.came, self.waits.len()), (self.answered, 0), "everybody has an answer");
        assert_eq!((self.queue.bytes(), self.queue.next_at()), (0, None));
    }
}

#[test]
fn lines_are_as_the_model_says_by_a_timer() {
    (0..SEEDS).for_each(|seed| World::new(seed).run(World::pop));
}

#[test]
fn lines_are_as_the_model_says_by_asking() {
    (0..SEEDS).for_each(|seed| World::new(seed).run(World::poll));
}

/// Places against a list of times and a list of waiters: the first waiter has the first time.
#[test]
fn places_are_as_the_model_says() {
    const LINE: (u8, u64) = (1, 1);
    const PLACE: PlaceRequest<u8> =
        PlaceRequest { line: Some(LINE), deadline: Timestamp::MAX, rank: 0, bytes: 10 };
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let limits = Limits { per_key: 8, total: 12, bytes: 1 << 20 };
        let mut queue: Queue<u8, u64> = Queue::new(limits);
        let (mut times, mut waits): (Vec<u64>, Vec<(u64, Ticket)>) = (Vec::new(), Vec::new());
        let (mut now, mut next, mut who) = (1_000, 1_000, 0);
        for _ in 0..STEPS {
            who += 1;
            match random.below(8) {
                0..=3 if queue.spare(&LINE).is_some() => {
                    assert_eq!(queue.spare(&LINE), times.get(waits.len()).map(|time| at(*time)));
                    if let Ok(ticket) = queue.hold_spare(at(now), PLACE, who) {
                        waits.push((who, ticket));
                    }
                }
                0..=3 => {
                    assert_eq!(times.len(), waits.len());
                    next = next.max(now) + 10;
                    match queue.hold(at(now), PLACE, at(next), who) {
                        Ok(ticket) => {
                            times.push(next);
                            waits.push((who, ticket));
                        }
                        Err((full, _)) => {
                            assert!(matches!(full, Full::Key(_)) && waits.len() == limits.per_key);
                            next -= 10;
                        }
                    }
                }
                4 | 5 if !waits.is_empty() => {
                    let length = u64::try_from(waits.len()).unwrap();
                    let (gone, ticket) =
                        waits.remove(usize::try_from(random.below(length)).unwrap());
                    let (value, freed) = queue.leave(ticket, at(now)).unwrap();
                    let freed: Freed<u8> = freed.unwrap();
                    let last = times.remove(waits.len());
                    assert_eq!((value, freed.at), (gone, at(last)));
                    if random.below(2) == 0 {
                        assert!(queue.keep(at(now), freed));
                        times.insert(waits.len(), last);
                    }
                }
                _ => now += random.below(25),
            }
            while let Some(due) = queue.pop(at(now)) {
                let time = times.remove(0);
                assert!(time <= now, "let go before its time");
                match due {
                    Due::Go(value) => assert_eq!(value, waits.remove(0).0),
                    Due::Unused => assert!(waits.is_empty()),
                    other => panic!("{other:?}"),
                }
            }
            assert!(times.first().is_none_or(|time| *time > now));
            assert_eq!(queue.next_at(), times.first().map(|time| at(*time)));
            let line = if times.is_empty() { 0 } else { LINE_BYTES };
            let spare = (times.len() - waits.len()) * TIME_BYTES;
            let waiters = waits.len() * (WAITER_BYTES + 10);
            assert_eq!((queue.len(), queue.bytes()), (waits.len(), line + spare + waiters));
        }
    }
}
