//! Random schedules of nodes, messages, crashes and clocks against one key.
//!
//! Real spending consists of the units that nodes spend from leases, at the time of spending, and
//! the direct costs that were allowed, at the time of the decision. It must be a trace that one
//! limiter allows, according to the core and to the naive `oracle`. When the authority's clock
//! steps, the trace is checked in a time that never goes back and jumps ahead with the clock, and
//! it is within the documented bound of every window. Every charge fits, the remaining units never
//! decrease by time alone, and the units that are out only increase by leases.
//!
//! Schedules: 20,000 in a debug build, which `cargo xtask test` runs; 1,000,000 when optimised
//! (`cargo test --profile release-test -p tollgate-storage --lib leases`); `TOLLGATE_SCHEDULES`
//! sets another number. Each mutation of the accounting must violate the laws in some schedule.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{ALLOWED_SKEW, Algorithm, Limiter, Quota, Span, Timestamp};

use super::super::account::LeaseReport;
use super::super::ask::{LeaseAsk, Leasing};
use super::super::clock::Clock;
use super::super::mutation::{Mutation, activate, is, misfits};
use super::oracle::Oracle;
use super::random::Random;
use super::{Set, direct, read, std, with_leases};
use crate::counts::Counts;

const SCHEDULES: u64 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
/// Schedules in which a mutation must be detected.
const MUTATED: u64 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_780_000_000 * SECOND;
/// How wrong a node's clock may be, in millionths.
const DRIFT: u64 = 1_000;
const ALL_MUTATIONS: [Mutation; 17] = [
    Mutation::ReportsFirst,
    Mutation::ChargesAtGrant,
    Mutation::TrustsSilence,
    Mutation::IgnoresOut,
    Mutation::LeasesOut,
    Mutation::LeasesForeign,
    Mutation::BelievesTheLast,
    Mutation::ReturnsUncharged,
    Mutation::NoClockError,
    Mutation::FollowsBack,
    Mutation::EndsAtStep,
    Mutation::KeepsAcrossChange,
    Mutation::IdleWhileOut,
    Mutation::ResetForgets,
    Mutation::LivesFromAnswer,
    Mutation::SpendsAfterReturn,
    Mutation::TakesAgain,
];

impl Random {
    fn pause(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(3),
            1 => self.below(1_000_000),
            2 | 3 => self.below(SECOND / 4),
            4 => self.below(2 * SECOND),
            _ => self.below(12 * SECOND),
        }
    }

    fn limiter(&mut self) -> Limiter {
        loop {
            let i = self.place(8);
            let buckets = u16::try_from(2 + self.below(5)).unwrap();
            let algorithm = Algorithm::ALL[i].with_buckets(buckets);
            let algorithm = if self.one_in(2) { algorithm } else { algorithm.weighted() };
            // A queue is never leased: one of five schedules with a queue is enough.
            if algorithm == Algorithm::LeakyQueue && !self.one_in(5) {
                continue;
            }
            let most = if self.one_in(3) { 60 } else { 12 };
            let limit = 1 + self.below(most);
            let window = SECOND / 2 + self.below(20 * SECOND);
            let quota = Quota::new(limit, Span::from_nanos(window)).unwrap();
            let quota = if algorithm.has_burst() && self.one_in(2) {
                quota.with_burst(1 + self.below(limit)).unwrap()
            } else {
                quota
            };
            let quota = if self.one_in(3) { quota.strict() } else { quota };
            if let Ok(limiter) = Limiter::new(algorithm, quota) {
                return limiter;
            }
        }
    }
}

/// The disturbances of the authority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// None: its clock shows the true time.
    Steady,
    /// The clock gains up to its error, and this is not reported.
    Gains,
    /// It is set back by less than the skew, any number of times.
    Back,
    /// It jumps ahead, and this is reported; and both of the above.
    Jumps,
    /// It is set back by more than the skew.
    FarBack,
    /// The quotas change.
    Changes,
    /// An operator resets the key.
    Resets,
}

/// One lease, as its node knows it.
#[derive(Clone)]
struct ModelLease {
    set: usize,
    number: u64,
    units: u64,
    spent: u64,
    asked_at: u64,
    ends_at: u64,
    is_open: bool,
}

struct Node {
    table: u128,
    /// Its clock's gain, in millionths.
    drift: i64,
    next: u64,
    /// Requested, without a response yet.
    asked: Vec<ModelLease>,
    held: Vec<ModelLease>,
}

impl Node {
    fn clock(&self, true_ns: u64) -> u64 {
        true_ns.strict_add_signed(true_ns.cast_signed() / 1_000_000 * self.drift)
    }
}

/// A message in flight.
#[derive(Clone)]
enum Message {
    Ask { node: usize, table: u128, leasing: Leasing, costs: Vec<u64> },
    Answer { node: usize, table: u128, number: u64, set: usize, units: u64, life: Span },
}

/// One limiter that is charged everything at the time of its spending.
struct Single {
    limiter: Limiter,
    state: Vec<u8>,
    oracle: Oracle,
    trace: Vec<(u64, u64)>,
}

impl Single {
    fn new(limiter: Limiter) -> Self {
        let oracle = Oracle::new(&limiter);
        Self { limiter, state: vec![0; limiter.state_len()], oracle, trace: vec![] }
    }

    fn forget(&mut self) {
        self.state.fill(0);
        self.oracle.history.clear();
        self.trace.clear();
    }
}

struct World {
    random: Random,
    trouble: Trouble,
    /// True time, in nanoseconds, and the lead of the authority's clock.
    time: u64,
    ahead: i64,
    /// How far it was ever set ahead, in total and without a report.
    jumped: u64,
    gained: u64,
    back: u64,
    far_back: u64,
    steady_since: u64,
    version: u64,
    sets: Vec<Set>,
    singles: Vec<Vec<Single>>,
    /// Bounds from before a change.
    earlier: Vec<u64>,
    counts: Counts,
    row: Vec<u8>,
    nodes: Vec<Node>,
    network: Vec<(u64, Message)>,
    leased: u64,
}

type Law = Result<(), String>;

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let trouble = match random.below(16) {
            0..7 => Trouble::Steady,
            7..9 => Trouble::Gains,
            9..11 => Trouble::Back,
            11..13 => Trouble::Jumps,
            13 => Trouble::FarBack,
            14 => Trouble::Changes,
            _ => Trouble::Resets,
        };
        let sets = 1 + u64::from(random.one_in(3));
        let sets: Vec<Set> = (1..=sets).map(|id| Set::new(id, &limiters(&mut random))).collect();
        let single = |set: &Set| set.limiters.iter().map(|limiter| Single::new(*limiter)).collect();
        let singles = sets.iter().map(single).collect();
        let mut world = Self {
            time: random.below(30 * SECOND),
            random,
            trouble,
            ahead: START.cast_signed(),
            jumped: 0,
            gained: 0,
            back: 0,
            far_back: 0,
            steady_since: 0,
            version: 1,
            earlier: vec![0; sets.len()],
            sets,
            singles,
            counts: Counts::default(),
            row: vec![],
            nodes: vec![],
            network: vec![],
            leased: 0,
        };
        for _ in 0..=world.random.below(3) {
            world.start_node();
        }
        world
    }

    fn run(&mut self) -> Law {
        let steps = 15 + self.random.below(40);
        for _ in 0..steps {
            let until = self.time + self.random.pause();
            self.deliver(until)?;
            self.time = until;
            self.step()?;
        }
        // Unreported units are charged in the end.
        self.deliver(self.time + 60 * SECOND)?;
        self.time += 60 * SECOND;
        self.ask_authority(None, &vec![1; self.sets.len()])?;
        Ok(())
    }

    fn step(&mut self) -> Law {
        match self.random.below(40) {
            0..17 => self.spend(),
            17..27 => self.send_ask(),
            27..30 => {
                if self.random.one_in(2) {
                    return self.drain();
                }
                let costs = self.costs();
                self.ask_authority(None, &costs).map(|_| ())
            }
            30 => {
                self.restart_node();
                Ok(())
            }
            31..33 => {
                // A crash: data that was not written yet is lost.
                self.counts = Counts::decode(&self.row).unwrap_or_default();
                Ok(())
            }
            33 => {
                self.forget_if_idle();
                Ok(())
            }
            34..36 => self.remaining_never_falls(),
            _ => {
                self.trouble()?;
                if self.random.one_in(2) { self.press() } else { Ok(()) }
            }
        }
    }

    /// All nodes want all units, now and a little later.
    fn press(&mut self) -> Law {
        self.drain()?;
        for i in 0..self.nodes.len() {
            self.spend_of(i, 40)?;
        }
        let until = self.time + self.random.below(SECOND);
        self.deliver(until)?;
        self.time = until;
        self.drain()
    }

    /// Direct costs until one is denied.
    fn drain(&mut self) -> Law {
        let costs = vec![1; self.sets.len()];
        for _ in 0..20 {
            if !self.ask_authority(None, &costs)? {
                break;
            }
        }
        Ok(())
    }

    fn clock(&self) -> Clock {
        let now = self.time.strict_add_signed(self.ahead);
        let steady_since = Timestamp::from_nanos(self.steady_since);
        Clock { steady_since, ..Clock::from(Timestamp::from_nanos(now)) }
    }

    /// A time that never goes back, and jumps ahead with the authority's clock.
    fn told(&self) -> u64 {
        START + self.time + self.jumped
    }

    fn start_node(&mut self) {
        let table = u128::from(self.random.below(u64::MAX));
        let drift = i64::try_from(self.random.below(2 * DRIFT + 1)).unwrap() - 1_000;
        self.nodes.push(Node { table, drift, next: 1, asked: vec![], held: vec![] });
    }

    /// A crash, or another process on the same host while the first one continues.
    fn restart_node(&mut self) {
        if self.random.one_in(2) && self.nodes.len() < 6 {
            return self.start_node();
        }
        let i = self.random.place(self.nodes.len());
        let table = u128::from(self.random.below(u64::MAX));
        let node = &mut self.nodes[i];
        (node.table, node.asked, node.held) = (table, vec![], vec![]);
    }

    fn costs(&mut self) -> Vec<u64> {
        let mut costs: Vec<u64> = Vec::new();
        for _ in 0..self.sets.len() {
            let is_large = self.random.one_in(8);
            costs.push(if is_large { 1 + self.random.below(12) } else { self.random.below(3) });
        }
        costs
    }

    fn spend(&mut self) -> Law {
        let i = self.random.place(self.nodes.len());
        let times = if self.random.one_in(3) { 40 } else { 1 + self.random.below(4) };
        self.spend_of(i, times)
    }

    /// A node spends from its leases, of one set or of both, as long as it has enough.
    fn spend_of(&mut self, i: usize, times: u64) -> Law {
        let cost = if self.random.one_in(4) { 1 + self.random.below(4) } else { 1 };
        let one = self.random.place(self.sets.len());
        let both = self.random.one_in(2);
        for _ in 0..times {
            let now = self.nodes[i].clock(self.time);
            let mut taken = vec![];
            for set in (0..self.sets.len()).filter(|set| both || *set == one) {
                let fits = |held: &ModelLease| {
                    let is_open = held.is_open || is(Mutation::SpendsAfterReturn);
                    held.set == set
                        && is_open
                        && now < held.ends_at
                        && held.units - held.spent >= cost
                };
                taken.push((set, self.nodes[i].held.iter().position(fits)));
            }
            if taken.iter().any(|(_, held)| held.is_none()) {
                return Ok(());
            }
            for (set, held) in taken {
                self.nodes[i].held[held.unwrap()].spent += cost;
                self.spent(set, cost)?;
            }
        }
        Ok(())
    }

    /// A node requests leases, and reports any of its leases, in any order.
    fn send_ask(&mut self) -> Law {
        let i = self.random.place(self.nodes.len());
        let costs = if self.random.one_in(2) { self.costs() } else { vec![0; self.sets.len()] };
        let now = self.nodes[i].clock(self.time);
        let mut leasing = Leasing { table: self.nodes[i].table, sets: vec![] };
        for set in 0..self.sets.len() {
            if self.random.one_in(4) {
                continue;
            }
            let mut reports = vec![];
            for _ in 0..self.random.below(4) {
                let of_set: Vec<usize> = (0..self.nodes[i].held.len())
                    .filter(|h| self.nodes[i].held[*h].set == set)
                    .collect();
                if of_set.is_empty() {
                    break;
                }
                let held = of_set[self.random.place(of_set.len())];
                let ends = self.random.one_in(3);
                let held = &mut self.nodes[i].held[held];
                held.is_open &= !ends;
                let is_final = !held.is_open;
                reports.push(LeaseReport { number: held.number, spent: held.spent, is_final });
            }
            let want = if self.random.one_in(5) { 0 } else { 1 + self.random.below(30) };
            let life_ms = [50, 200, 1_000, 3_000, 10_000][self.random.place(5)];
            let number = self.nodes[i].next;
            self.nodes[i].next += 1;
            if want > 0 {
                let (units, spent, ends_at, is_open) = (0, 0, 0, true);
                let asked_at = now;
                let asked = ModelLease { set, number, units, spent, asked_at, ends_at, is_open };
                self.nodes[i].asked.push(asked);
            }
            let life = Span::from_millis(life_ms);
            let set = self.sets[set].id;
            leasing.sets.push(LeaseAsk { set, number, want, least: 1, life, reports });
        }
        let message = Message::Ask { node: i, table: leasing.table, leasing, costs };
        self.send(message);
        Ok(())
    }

    /// Lost, once or twice, soon or late.
    fn send(&mut self, message: Message) {
        let copies = match self.random.below(10) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = match self.random.below(4) {
                0 => 0,
                1 | 2 => self.random.below(SECOND / 20),
                _ => self.random.below(6 * SECOND),
            };
            self.network.push((self.time + delay, message.clone()));
        }
    }

    fn deliver(&mut self, until: u64) -> Law {
        loop {
            let due = self.network.iter().enumerate().filter(|(_, (at, _))| *at <= until);
            let Some((i, _)) = due.min_by_key(|(_, (at, _))| *at) else { return Ok(()) };
            let (at, message) = self.network.remove(i);
            self.time = at.max(self.time);
            match message {
                Message::Ask { node, table, leasing, costs } => {
                    self.ask_authority(Some((node, table, &leasing)), &costs)?;
                }
                Message::Answer { node, table, number, set, units, life } => {
                    self.take_lease(node, table, number, (set, units, life));
                }
            }
        }
    }

    fn take_lease(
        &mut self,
        node: usize,
        table: u128,
        number: u64,
        (set, units, life): (usize, u64, Span),
    ) {
        let time = self.time;
        let node = &mut self.nodes[node];
        if node.table != table {
            return;
        }
        let now = node.clock(time);
        let is_it = |held: &ModelLease| held.number == number && held.set == set;
        let mut asked = if let Some(i) = node.asked.iter().position(is_it) {
            node.asked.swap_remove(i)
        } else {
            if is(Mutation::TakesAgain)
                && let Some(held) = node.held.iter().find(|held| is_it(held))
            {
                let again = ModelLease { spent: 0, is_open: true, ..held.clone() };
                node.held.push(again);
            }
            return;
        };
        let from = if is(Mutation::LivesFromAnswer) { now } else { asked.asked_at };
        asked.units = units;
        asked.ends_at = from + life.as_nanos() / 1_000_000 * (1_000_000 - DRIFT);
        node.held.push(asked);
    }

    /// Sends a request to the authority now: costs, and a node's lease part; true when the costs
    /// are charged.
    fn ask_authority(
        &mut self,
        from: Option<(usize, u128, &Leasing)>,
        costs: &[u64],
    ) -> Result<bool, String> {
        let rules: Vec<(&Set, u64)> = self.sets.iter().zip(costs.iter().copied()).collect();
        let mut request = direct(self.version, &rules);
        if let Some((_, _, leasing)) = from {
            request = with_leases(leasing, &request);
        }
        let clock = self.clock();
        let before = (misfits(), self.out());
        let answered = self.counts.answer(&request, clock).unwrap();
        let mut is_changed = answered.is_changed;
        let quotas: Vec<usize> = self.sets.iter().map(|set| set.limiters.len()).collect();
        let (leased, rules) = read(&answered.reply, &quotas);
        let is_charged = rules.iter().all(|(is_charged, ..)| *is_charged);
        // Another key denies: the charge is refunded at once.
        if is_charged && self.random.one_in(12) {
            let refunded = self.counts.refund(&request, &answered.reply, clock).unwrap();
            is_changed |= refunded.is_changed;
        } else if is_charged {
            for (set, cost) in costs.iter().enumerate() {
                self.spent(set, *cost)?;
            }
        }
        if is_changed {
            self.row.clear();
            self.counts.encode(clock.now, &mut self.row);
        }
        let mut granted = 0;
        if let Some((node, table, leasing)) = from {
            for (ask, leased) in leasing.sets.iter().zip(leased) {
                let Ok(grant) = leased else { continue };
                self.leased += 1;
                granted += grant.units;
                let set = self.sets.iter().position(|set| set.id == ask.set).unwrap();
                let (number, units, life) = (ask.number, grant.units, grant.life);
                self.send(Message::Answer { node, table, number, set, units, life });
            }
        }
        if misfits() > before.0 {
            return Err(String::from("a charge does not fit"));
        }
        if self.out() > before.1 + granted {
            return Err(String::from("more is out than was leased"));
        }
        Ok(is_charged && costs.iter().any(|cost| *cost > 0))
    }

    fn out(&self) -> u64 {
        self.counts.sets.iter().map(|kept| kept.leases.out()).sum()
    }

    /// `cost` is really spent now.
    fn spent(&mut self, set: usize, cost: u64) -> Law {
        if cost == 0 {
            return Ok(());
        }
        let told = self.told();
        for single in &mut self.singles[set] {
            single.trace.push((told, cost));
            let window = single.limiter.window().as_nanos();
            let of_window = single.trace.iter().filter(|(at, _)| told - at < window);
            let spent: u64 = of_window.map(|(_, cost)| cost).sum();
            let bursts = self.far_back * single.limiter.capacity();
            let bound = single.limiter.max_in_window() + bursts + self.earlier[set];
            if spent > bound {
                return Err(format!("{spent} in a window, bound {bound}: {:?}", single.limiter));
            }
            let is_aligned = !single.limiter.algorithm().has_burst()
                && single.limiter.algorithm() != Algorithm::SlidingLog;
            let is_exact = match self.trouble {
                Trouble::Steady | Trouble::Resets => true,
                Trouble::FarBack | Trouble::Changes => false,
                Trouble::Gains | Trouble::Back | Trouble::Jumps => !is_aligned,
            };
            if !is_exact {
                continue;
            }
            let now = Timestamp::from_nanos(told);
            if !single.limiter.check(&mut single.state, now, cost).is_admitted() {
                return Err(format!("{cost} more than one limiter admits: {:?}", single.limiter));
            }
            if !single.oracle.admits(told.into(), cost.into()) {
                return Err(format!("{cost} more than the oracle admits: {:?}", single.limiter));
            }
            single.oracle.history.push((told.into(), cost.into()));
        }
        Ok(())
    }

    /// A store drops idle counts, except shortly after a step of its clock.
    fn forget_if_idle(&mut self) {
        let clock = self.clock();
        if self.counts.idle_at().saturating_add(ALLOWED_SKEW) <= clock.now && clock.is_steady() {
            (self.counts, self.row) = (Counts::default(), vec![]);
        }
    }

    /// The units that remain in addition to those that are out do not decrease while nothing is
    /// charged. (When no units are out, a state may still be from a clock that was set back.)
    fn remaining_never_falls(&mut self) -> Law {
        let now = self.clock().now;
        let (pause, more) = (self.random.pause(), self.random.pause());
        for kept in self.counts.sets.iter().filter(|kept| kept.leases.out() > 0) {
            let soon = now.max(kept.leases.since).saturating_add(Span::from_nanos(pause));
            let later = soon.saturating_add(Span::from_nanos(more));
            let (before, after) = (kept.left(soon), kept.left(later));
            if after < before {
                return Err(format!("{before} left, {after} later: {:?}", kept.quotas.set));
            }
        }
        Ok(())
    }

    fn trouble(&mut self) -> Law {
        match self.trouble {
            Trouble::Steady => {}
            Trouble::Gains => self.gain(),
            Trouble::Back => self.set_back(30),
            Trouble::Jumps => match self.random.below(3) {
                0 => self.gain(),
                1 => self.set_back(30),
                _ => {
                    let jump = self.random.below(40 * SECOND);
                    self.ahead += jump.cast_signed();
                    self.jumped += jump;
                    self.steady_since = self.clock().now.as_nanos();
                }
            },
            Trouble::FarBack => {
                self.set_back(100_000);
                self.far_back += 1;
            }
            Trouble::Changes if self.version < 3 => {
                self.version += 1;
                for i in 0..self.sets.len() {
                    let set = Set::new(self.sets[i].id, &limiters(&mut self.random));
                    let bound = |single: &Single| single.limiter.max_in_window();
                    self.earlier[i] += self.singles[i].iter().map(bound).max().unwrap();
                    self.singles[i] = set.limiters.iter().map(|l| Single::new(*l)).collect();
                    self.sets[i] = set;
                }
            }
            Trouble::Changes => {}
            Trouble::Resets => {
                if self.random.one_in(3) {
                    let ids: Vec<u64> = self.sets.iter().map(|set| set.id).collect();
                    let clock = self.clock();
                    let request = super::reset(ids[0], &ids);
                    let answered = self.counts.operate(&request, clock).unwrap();
                    if answered.is_changed {
                        self.row.clear();
                        self.counts.encode(clock.now, &mut self.row);
                    }
                    self.singles.iter_mut().flatten().for_each(Single::forget);
                }
            }
        }
        Ok(())
    }

    fn gain(&mut self) {
        let gain = self.random.below(SECOND - self.gained);
        self.gained += gain;
        self.jumped += gain;
        self.ahead += gain.cast_signed();
    }

    fn set_back(&mut self, seconds: u64) {
        let back = self.random.below(seconds * SECOND);
        // Small steps that add up to more than the skew have the effect of one large step.
        if self.trouble == Trouble::FarBack || self.back + back < 30 * SECOND {
            self.back += back;
            self.ahead -= back.cast_signed();
        }
    }
}

fn limiters(random: &mut Random) -> Vec<Limiter> {
    let quotas = if random.one_in(3) { 2 + random.below(2) } else { 1 };
    (0..quotas).map(|_| random.limiter()).collect()
}

/// Runs schedules with these seeds; returns the first violation, and how many leases there were.
fn run(seeds: core::ops::Range<u64>) -> (u64, Result<u64, String>) {
    let mut leased = 0;
    for seed in seeds {
        let mut world = World::new(seed);
        if let Err(violation) = world.run() {
            return (seed, Err(format!("{:?}: {violation}", world.trouble)));
        }
        leased += world.leased;
    }
    (0, Ok(leased))
}

fn in_threads<T: Send>(count: u64, each: impl Fn(u64) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = (0..count).map(|i| scope.spawn(move || each(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn what_is_spent_is_what_one_limiter_admits() {
    let asked = std::env::var("TOLLGATE_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let share = asked.unwrap_or(SCHEDULES) / 4;
    let mut leased = 0;
    for (seed, result) in in_threads(4, |i| run(i * share..(i + 1) * share)) {
        leased += result.unwrap_or_else(|violation| panic!("schedule {seed}: {violation}"));
    }
    std::println!("{} schedules, {leased} leases", share * 4);
    assert!(leased > share * 4, "{leased} leases");
}

#[test]
fn every_mutation_is_found() {
    let found = in_threads(4, |thread| {
        let mut found = vec![];
        for mutation in ALL_MUTATIONS.into_iter().skip(usize::try_from(thread).unwrap()).step_by(4)
        {
            activate(Some(mutation));
            found.push((mutation, run(0..MUTATED)));
            activate(None);
        }
        found
    });
    let mut lawful = vec![];
    for (mutation, (seed, result)) in found.into_iter().flatten() {
        match result {
            Err(violation) => std::println!("{mutation:?}: schedule {seed}: {violation}"),
            Ok(_) => lawful.push(mutation),
        }
    }
    assert!(lawful.is_empty(), "{lawful:?} break no law in {MUTATED} schedules");
}
