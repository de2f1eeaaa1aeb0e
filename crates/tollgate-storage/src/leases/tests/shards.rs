//! Shards as shipped, in bytes, against the key's object: random schedules of requests, lost, late
//! and repeated messages, memories that are lost, and wrong clocks.
//!
//! The allowed requests of all shards, at their times, must be ones that one limiter allows.
//! Schedules: 3,000 in a debug build, 400,000 when optimised; `TOLLGATE_SCHEDULES` sets another
//! number.

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};

use super::super::mutation::{Mutation, activate};
use super::super::shard::{Shard, ShardMode, Sharded};
use super::random::Random;
use super::{Set, direct, std};
use crate::counts::Counts;
use crate::wire::{DECIDED, HELD, NEWER};

const SCHEDULES: u64 = if cfg!(debug_assertions) { 3_000 } else { 400_000 };
const MUTATED: u64 = if cfg!(debug_assertions) { 3_000 } else { 20_000 };
const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_780_000_000 * SECOND;
const STEPS: u64 = 150;

/// A request to the key's object in flight, and a reply.
#[derive(Clone)]
enum Message {
    Question { shard: usize, bytes: Vec<u8>, costs: Vec<u64> },
    Answer { shard: usize, bytes: Vec<u8>, costs: Vec<u64>, reply: Vec<u8>, admitted: Vec<usize> },
}

/// One key, its object and its shards.
struct Model {
    random: Random,
    now: u64,
    version: u64,
    sets: Vec<Set>,
    counts: Counts,
    shards: Vec<Shard>,
    wire: Vec<Message>,
    /// The time and the cost for each set, without refunded requests.
    admitted: Vec<(u64, Vec<u64>)>,
    in_hand: u64,
}

fn random_limiter(random: &mut Random) -> Limiter {
    loop {
        let algorithm = Algorithm::ALL[random.place(Algorithm::ALL.len())].with_buckets(4);
        let quota =
            Quota::new(20 + random.below(200), Span::from_millis(600 + random.below(6_000)));
        let quota = if random.one_in(4) { quota.unwrap().strict() } else { quota.unwrap() };
        // A document with a queue and shards is invalid.
        match Limiter::new(algorithm, quota) {
            Ok(limiter) if algorithm != Algorithm::LeakyQueue => return limiter,
            _ => {}
        }
    }
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let sets = 1 + random.below(2);
        let sets = (0..sets)
            .map(|id| {
                let limiters = 1 + random.below(2);
                let limiters: Vec<_> = (0..limiters).map(|_| random_limiter(&mut random)).collect();
                Set::new(id + 9, &limiters)
            })
            .collect();
        let shards = 2 + random.below(4);
        let shards = (0..shards).map(|i| Shard::new(i.into())).collect();
        let (counts, wire, admitted) = (Counts::default(), vec![], vec![]);
        Self { random, now: 0, version: 1, sets, counts, shards, wire, admitted, in_hand: 0 }
    }

    /// The clock of the key's object. That of a shard is wrong by minutes, and slow or fast by up
    /// to 0.1 %. Both show whole milliseconds.
    fn clock(&self) -> Timestamp {
        Timestamp::from_millis((START + self.now) / 1_000_000)
    }

    fn clock_of(&self, shard: usize) -> Timestamp {
        let i = u64::try_from(shard).unwrap();
        let now = self.now + self.now / 1_000_000 * (i * 400) - self.now / 1_000;
        Timestamp::from_millis((START + now + i * 90 * SECOND) / 1_000_000)
    }

    fn run(&mut self) -> bool {
        for _ in 0..STEPS {
            let pause = match self.random.below(8) {
                0 => self.random.below(3 * SECOND),
                1 | 2 => self.random.below(SECOND / 5),
                3 => self.random.below(SECOND / 50),
                _ => 0,
            };
            self.now += pause;
            self.step();
        }
        self.is_within()
    }

    fn step(&mut self) {
        let shard = self.random.place(self.shards.len());
        match self.random.below(16) {
            0..7 => self.request(shard),
            7..13 => {
                for _ in 0..1 + self.random.below(8) {
                    if !self.wire.is_empty() {
                        self.deliver();
                    }
                }
            }
            13 => {
                if self.random.one_in(8) {
                    // The memory is lost: an eviction, a crash, another version of the code.
                    let table = u128::from(self.random.below(u64::MAX)) + 100;
                    self.shards[shard] = Shard::new(table);
                }
            }
            14 => {
                if self.random.one_in(10) {
                    self.shards[shard].close();
                }
                self.ask_ahead(shard);
            }
            _ => {
                // The key's object is read from its row.
                let mut row = vec![];
                self.counts.encode(self.clock(), &mut row);
                self.counts = Counts::decode(&row).unwrap();
                self.version += u64::from(self.random.one_in(20));
            }
        }
    }

    fn request(&mut self, shard: usize) {
        // A burst, as is usual for a hot key.
        let count = if self.random.one_in(3) { 1 + self.random.below(12) } else { 1 };
        for _ in 0..count {
            let behind = self.random.one_in(30);
            let version = self.version - u64::from(behind);
            let costs: Vec<u64> = self.sets.iter().map(|_| 1).collect();
            let costs = if self.random.one_in(6) {
                costs.iter().map(|_| self.random.below(5)).collect()
            } else {
                costs
            };
            let each: Vec<_> = self.sets.iter().zip(costs.iter().copied()).collect();
            let request = direct(version, &each);
            let mode = match self.random.below(12) {
                0 => ShardMode::Asks,
                1..4 => ShardMode::InHand,
                _ => ShardMode::Waits,
            };
            let clock = self.clock_of(shard);
            match self.shards[shard].check(&request, mode, clock).unwrap() {
                Sharded::Answered(reply) if reply[0] == NEWER => {}
                Sharded::Answered(reply) => {
                    self.in_hand += 1;
                    self.admitted.push((self.now, costs.clone()));
                    self.may_refund(shard, &request, &reply, self.admitted.len() - 1);
                }
                Sharded::Ask(bytes) => {
                    assert_ne!(mode, ShardMode::InHand);
                    self.wire.push(Message::Question { shard, bytes, costs });
                }
                Sharded::Refused(reply) => assert!([DECIDED, HELD].contains(&reply[0])),
                Sharded::Wait(_) => assert_eq!(mode, ShardMode::Waits),
                Sharded::Nothing => assert_eq!(mode, ShardMode::InHand),
            }
            self.ask_ahead(shard);
        }
    }

    /// Another key denies the request, sometimes later, and its cost is refunded.
    fn may_refund(&mut self, shard: usize, request: &[u8], reply: &[u8], place: usize) {
        if !self.random.one_in(6) {
            return;
        }
        if self.random.one_in(2) {
            self.now += self.random.below(3 * SECOND);
        }
        let clock = self.clock_of(shard);
        match self.shards[shard].refund(request, reply, clock).unwrap() {
            Some(reply) => assert_eq!(reply[0], HELD),
            None => {
                self.counts.refund(request, reply, self.clock()).unwrap();
            }
        }
        self.admitted[place].1.fill(0);
    }

    fn ask_ahead(&mut self, shard: usize) {
        let clock = self.clock_of(shard);
        if let Some(bytes) = self.shards[shard].due(clock) {
            let costs = self.sets.iter().map(|_| 0).collect();
            self.wire.push(Message::Question { shard, bytes, costs });
        }
    }

    fn deliver(&mut self) {
        let i = self.random.place(self.wire.len());
        // The platform may repeat a request, but not a reply; repeating both does no harm.
        let message =
            if self.random.one_in(12) { self.wire[i].clone() } else { self.wire.swap_remove(i) };
        if self.random.one_in(20) {
            return; // or lost
        }
        match message {
            Message::Question { shard, bytes, costs } => {
                let reply = self.counts.answer(&bytes, self.clock()).unwrap().reply;
                let (_, rest) = super::read_leased(&reply).unwrap();
                let is_direct = costs.iter().any(|cost| *cost > 0);
                let mut admitted = vec![];
                if is_direct && rest[0] == DECIDED && !Counts::refuses(&bytes, &reply).unwrap() {
                    admitted.push(self.admitted.len());
                    self.admitted.push((self.now, costs.clone()));
                }
                self.wire.push(Message::Answer { shard, bytes, costs, reply, admitted });
            }
            Message::Answer { shard, bytes, costs, reply, admitted } => {
                let clock = self.clock_of(shard);
                let reply = if self.random.one_in(12) { None } else { Some(reply.as_slice()) };
                let (told, _) = self.shards[shard].apply_reply(&bytes, reply, clock).unwrap();
                let is_first = admitted.first().is_some_and(|i| self.admitted[*i].1 == costs);
                if let (Some(place), Some(_), true) = (admitted.first(), reply, is_first) {
                    let (_, request) = super::Leasing::split(&bytes).unwrap();
                    self.may_refund(shard, request, &told, *place);
                }
            }
        }
    }

    fn is_within(&self) -> bool {
        let mut is_within = true;
        for (place, set) in self.sets.iter().enumerate() {
            for limiter in &set.limiters {
                let mut state = vec![0; limiter.state_len()];
                for (at, costs) in &self.admitted {
                    let at = Timestamp::from_millis((START + at) / 1_000_000);
                    is_within &= limiter.check(&mut state, at, costs[place]).is_admitted();
                }
            }
        }
        is_within
    }
}

/// The first schedule in which too many requests are allowed; and how many were allowed from held
/// units.
fn search(seeds: u64) -> (Option<u64>, u64) {
    let mut in_hand = 0;
    let found = (0..seeds).find(|seed| {
        let mut model = Model::new(seed + 1);
        let is_within = model.run();
        in_hand += model.in_hand;
        !is_within
    });
    (found, in_hand)
}

#[test]
fn shards_admit_what_one_limiter_would() {
    let said = std::env::var("TOLLGATE_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = said.unwrap_or(SCHEDULES);
    let (found, in_hand) = search(schedules);
    assert_eq!(found, None, "the schedule with this seed admits too much");
    assert!(in_hand > schedules, "in hand: {in_hand}");
}

#[test]
fn every_wrong_way_of_a_shard_is_found() {
    let mut missed = vec![];
    for mutation in [Mutation::PaysInPart, Mutation::IgnoresOut, Mutation::TrustsSilence] {
        activate(Some(mutation));
        let (found, _) = search(MUTATED);
        activate(None);
        std::eprintln!("{mutation:?}: {found:?}");
        missed.extend(found.is_none().then_some(mutation));
    }
    assert_eq!(missed, [], "these are not found");
}
