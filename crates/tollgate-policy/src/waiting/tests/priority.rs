//! Priorities: random arrivals with priorities, and the same ones without.
//!
//! The number of requests that go, and their times, must not change; which ones go must. No request
//! that may wait is denied in favour of others.
#![allow(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic
)]

use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};
use tollgate_test_support::Random;

use super::super::lines::MOST_PASSED;
use super::super::{Limits, Pace};
use super::{Due, PlaceRequest, Queue, Ticket, TurnRequest};

const SEEDS: u64 = if cfg!(debug_assertions) { 600 } else { 10_000 };
const STEPS: usize = 120;
const LINE: (u8, u64) = (1, 1);

fn rank(random: &mut Random, of: u64) -> u8 {
    u8::try_from(random.below(of)).unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A waiter.
#[derive(Clone, Copy, Debug)]
struct Waits {
    who: u64,
    rank: u8,
    deadline: Timestamp,
    ticket: Ticket,
}

fn limits() -> Limits {
    Limits { per_key: 30, total: 30, bytes: 1 << 20 }
}

/// Places of one line: their times, and the waiters, in the order in which they came.
struct Places {
    random: Random,
    queue: Queue<u8, u64>,
    now: u64,
    next: u64,
    patience: u64,
    times: Vec<u64>,
    waits: Vec<Waits>,
    came: u64,
    /// The number of priorities.
    ranks: u64,
    /// No waiter left yet, so that the order is the best possible.
    is_whole: bool,
    /// How many went before one that came earlier.
    overtook: u64,
}

impl Places {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let patience = 20 + random.below(200);
        let queue = Queue::new(limits());
        let (times, waits) = (Vec::new(), Vec::new());
        let (now, next) = (1_000, 1_000);
        Self {
            random,
            queue,
            now,
            next,
            patience,
            times,
            waits,
            came: 0,
            ranks: 2 + seed % 3,
            is_whole: true,
            overtook: 0,
        }
    }

    fn arrive(&mut self) {
        self.came += 1;
        let (who, rank) = (self.came, rank(&mut self.random, self.ranks));
        let deadline = at(self.now + self.patience);
        let place_request = PlaceRequest { line: Some(LINE), deadline, rank, bytes: 10 };
        let held = match self.queue.spare(&LINE) {
            Some(spare) if spare > deadline => return,
            Some(_) => self.queue.hold_spare(at(self.now), place_request, who),
            None => {
                let next = self.next.max(self.now) + 10;
                if at(next) > deadline {
                    return; // as its quota would deny it
                }
                let held = self.queue.hold(at(self.now), place_request, at(next), who);
                if held.is_ok() {
                    self.next = next;
                    self.times.push(next);
                }
                held
            }
        };
        if let Ok(ticket) = held {
            self.waits.push(Waits { who, rank, deadline, ticket });
        }
    }

    fn leave(&mut self) {
        if self.waits.is_empty() {
            return;
        }
        let length = u64::try_from(self.waits.len()).unwrap();
        let gone = self.waits.remove(usize::try_from(self.random.below(length)).unwrap());
        let (value, freed) = self.queue.leave(gone.ticket, at(self.now)).unwrap();
        assert_eq!(value, gone.who);
        let last = self.times.remove(self.waits.len());
        let freed = freed.unwrap();
        assert_eq!(freed.at, at(last), "the last time is the one that is free");
        if self.random.below(2) == 0 {
            assert!(self.queue.keep(at(self.now), freed));
            self.times.insert(self.waits.len(), last);
        }
        self.is_whole = false;
    }

    fn go(&mut self, who: u64, time: u64) {
        let index = self.waits.iter().position(|w| w.who == who).unwrap();
        let gone = self.waits[index];
        assert!(at(time) <= gone.deadline, "waited longer than it may for others");
        let earlier = &self.waits[..index];
        assert!(!earlier.iter().any(|w| w.rank == gone.rank), "not first come, first served");
        self.overtook += u64::from(index > 0);
        if self.is_whole {
            self.assert_nobody_better_could_go(gone, time);
        }
        self.waits.remove(index);
    }

    /// If any waiter with a higher priority went in its place, a waiter ahead of that one would
    /// miss its promised time; with two priorities, in any order.
    fn assert_nobody_better_could_go(&self, gone: Waits, time: u64) {
        let order = self.queue.lines.values().next().map(|line| line.order.last_first());
        let mut order: Vec<u64> = order.into_iter().flatten().collect();
        order.reverse();
        let of = |ticket: &u64| self.waits.iter().find(|w| w.ticket == Ticket(*ticket)).unwrap();
        let order: Vec<&Waits> = order.iter().map(of).collect();
        for (i, better) in order.iter().enumerate().filter(|(_, w)| w.rank < gone.rank) {
            let ahead = [&gone].into_iter().chain(order[..i].iter().copied());
            let mut pushed = ahead.zip(&self.times);
            let is_kept = pushed.all(|(w, slot)| at(*slot) <= w.deadline);
            assert!(!is_kept, "{gone:?} went at {time} before {better:?}");
            // The first to come has the soonest deadline: no order keeps more promises than this
            // one.
            let rest = self.waits.iter().filter(|w| w.who != better.who);
            let mut by_deadline = rest.zip(&self.times);
            let is_kept = by_deadline.all(|(w, slot)| at(*slot) <= w.deadline);
            assert!(!is_kept || self.ranks > 2, "{gone:?} went at {time} before {better:?}");
        }
    }

    fn run(mut self) -> u64 {
        for _ in 0..STEPS {
            match self.random.below(9) {
                0..=4 => self.arrive(),
                5 if self.random.below(2) == 0 => self.leave(),
                _ => self.now += self.random.below(25),
            }
            while let Some(due) = self.queue.pop(at(self.now)) {
                // The times of those that go do not depend on which ones go.
                let time = self.times.remove(0);
                assert!(time <= self.now, "let go before its time");
                match due {
                    Due::Go(who) => self.go(who, time),
                    Due::Unused => assert!(self.waits.is_empty()),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(self.queue.len(), self.waits.len());
            assert_eq!(self.queue.next_at(), self.times.first().map(|time| at(*time)));
        }
        self.overtook
    }
}

// Guards: a priority that allows more requests, or at other times; a promised place that is not
// kept; a priority without effect.
#[test]
fn a_place_goes_to_the_highest_priority_that_leaves_all_promises_kept() {
    let overtook: u64 = (0..SEEDS).map(|seed| Places::new(seed).run()).sum();
    assert!(overtook > SEEDS, "{overtook} went before others");
}

/// Turns of one key, driven at the exact times at which something is due.
struct Turns {
    limiter: Limiter,
    state: Vec<u8>,
    queue: Queue<u8, u64>,
    waits: Vec<Waits>,
    /// The times at which waiters were allowed, and which ones.
    went: Vec<(Timestamp, u64)>,
    refused: Vec<u64>,
    patience: Span,
}

impl Turns {
    fn new(limiter: Limiter, patience: Span) -> Self {
        let state = alloc::vec![0; limiter.state_len()];
        let queue = Queue::new(limits());
        let (waits, went, refused) = (Vec::new(), Vec::new(), Vec::new());
        Self { limiter, state, queue, waits, went, refused, patience }
    }

    fn decide(&mut self, now: Timestamp) -> (bool, Pace) {
        let decision = self.limiter.check(&mut self.state, now, 1);
        let quotas = core::iter::once((self.limiter, decision));
        (decision.is_admitted(), Pace::new(now, 1, false, quotas))
    }

    fn arrive(&mut self, now: Timestamp, who: u64, rank: u8) {
        let mut pace = None;
        if !self.queue.has_line(&1) {
            let (admitted, said) = self.decide(now);
            if admitted {
                return self.went.push((now, who));
            }
            pace = Some(said);
        }
        let deadline = now.saturating_add(self.patience);
        let turn_request = TurnRequest { key: 1, cost: 1, deadline, rank, bytes: 10 };
        match self.queue.join(now, turn_request, pace, who) {
            Ok(ticket) => self.waits.push(Waits { who, rank, deadline, ticket }),
            Err(_) => self.refused.push(who),
        }
    }

    fn pop_until(&mut self, until: Timestamp) {
        while let Some(now) = self.queue.next_at().filter(|at| *at <= until) {
            match self.queue.pop(now) {
                None => {}
                Some(Due::Decide(ticket)) => self.take_turn(ticket, now),
                Some(other) => panic!("{other:?}: waited in vain; {:?}", self.limiter),
            }
        }
    }

    fn take_turn(&mut self, ticket: Ticket, now: Timestamp) {
        let index = self.waits.iter().position(|w| w.ticket == ticket).unwrap();
        let first = self.waits[index];
        let earlier = &self.waits[..index];
        assert!(!earlier.iter().any(|w| w.rank == first.rank), "not first come, first served");
        assert!(now <= first.deadline);
        let (admitted, pace) = self.decide(now);
        if admitted {
            assert_eq!(self.queue.done(ticket, now, Some(pace)), Some(first.who));
            self.went.push((now, first.who));
            self.waits.remove(index);
            return;
        }
        let Waits { deadline, rank, .. } = first;
        let turn_request = TurnRequest { key: 1, cost: 1, deadline, rank, bytes: 10 };
        self.queue.again(ticket, now, turn_request, pace).unwrap();
    }
}

// Guards: the same as for places, when the first of a line is decided again; and a waiter that
// loses its turn because it was decided and denied.
#[test]
fn turns_are_as_many_and_at_the_same_times_whoever_goes_first() {
    let mut overtook = 0;
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let algorithm = match random.below(4) {
            0 => Algorithm::TokenBucket,
            1 => Algorithm::LeakyBucket,
            2 => Algorithm::FixedWindow,
            _ => Algorithm::Gcra,
        };
        let window = Span::from_millis(20 + random.below(80));
        let quota = Quota::new(1 + random.below(4), window).unwrap();
        let limiter = Limiter::new(algorithm, quota).unwrap();
        let patience = Span::from_millis(50 + random.below(400));
        let mut plain = Turns::new(limiter, patience);
        let mut ranked = Turns::new(limiter, patience);
        let mut now = 1_000;
        for who in 0..100 {
            now += random.below(30);
            let rank = rank(&mut random, 4);
            for (turns, rank) in [(&mut plain, 0), (&mut ranked, rank)] {
                turns.pop_until(at(now));
                turns.arrive(at(now), who, rank);
            }
        }
        for turns in [&mut plain, &mut ranked] {
            turns.pop_until(Timestamp::MAX);
            assert!(turns.waits.is_empty());
        }
        let times = |turns: &Turns| turns.went.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(times(&plain), times(&ranked), "{limiter:?}");
        assert_eq!(plain.refused, ranked.refused, "{limiter:?}");
        overtook += ranked.went.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    }
    assert!(overtook > usize::try_from(SEEDS).unwrap(), "{overtook} went before others");
}

// Guards: a crowd of a low priority that never goes while others keep coming.
#[test]
fn nobody_starves() {
    let quota = Quota::new(10, Span::from_secs(1)).unwrap().with_burst(1).unwrap();
    let limiter = Limiter::new(Algorithm::Gcra, quota).unwrap();
    let mut turns = Turns::new(limiter, Span::from_secs(2));
    for who in 0..11 {
        turns.arrive(at(1_000), who, 1);
    }
    // A waiter of a higher priority for each available turn.
    for who in 100..140 {
        let now = at(1_050 + (who - 100) * 100);
        turns.pop_until(now);
        turns.arrive(now, who, 0);
    }
    turns.pop_until(Timestamp::MAX);
    let low: Vec<_> = turns.went.iter().filter(|(_, who)| *who < 100).collect();
    assert_eq!(low.len(), 11, "all who were let wait go");
    let waited = |went: &Timestamp| went.since(at(1_000));
    assert!(low.iter().all(|(went, _)| waited(went) <= Span::from_secs(2)));
    // Those that may not wait any longer go, and not before: the others are first for a second.
    let first_second = turns.went.iter().filter(|(went, _)| waited(went) <= Span::from_secs(1));
    let of_them_low = first_second.filter(|(_, who)| (1..100).contains(who)).count();
    assert!(of_them_low <= 3, "{of_them_low} of a low priority were first");
}

// Guards: a worker that stalls for each new waiter, in a line that an operator allows to grow
// without bounds.
#[test]
fn nobody_goes_past_more_than_so_many() {
    let limits = Limits { per_key: 1 << 20, total: 1 << 20, bytes: 1 << 30 };
    let mut queue: Queue<u8, usize> = Queue::new(limits);
    let place_request =
        |rank| PlaceRequest { line: Some(LINE), deadline: Timestamp::MAX, rank, bytes: 10 };
    let length = MOST_PASSED + 10;
    for (who, time) in (0..length).zip(2_000..) {
        queue.hold(at(1_000), place_request(1), at(time), who).unwrap();
    }
    queue.hold(at(1_000), place_request(0), at(100_000), length).unwrap();
    let gone = core::iter::from_fn(|| queue.pop(at(200_000)));
    let gone = gone.map(|due| if let Due::Go(who) = due { who } else { panic!("{due:?}") });
    let gone: Vec<usize> = gone.take(12).collect();
    assert_eq!(gone, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, length, 10]);
}
