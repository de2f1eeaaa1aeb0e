//! Small tests of leases: the effect of each step, and its limits.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic
)]

extern crate std;

mod answers;
mod fleet;
mod holding;
mod hostile;
mod model;
mod oracle;
mod random;
mod pace;
mod room;
mod shards;

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};

use super::ask::{LeaseAsk, LeaseGrant, Leased, Leasing, read_leased};
use super::clock::Clock;
use super::{account::LeaseReport, account::NoLease, lease::MAX_LEASES};
use crate::counts::Counts;
use crate::settle::Settlement;
use crate::wire::{BINDING, MAGIC, Reader, STRICT, USED, WITHOUT_STATES};

/// A quota set as a policy writes it.
#[derive(Clone, Debug)]
struct Set {
    id: u64,
    limiters: Vec<Limiter>,
}

impl Set {
    fn new(id: u64, limiters: &[Limiter]) -> Self {
        Self { id, limiters: limiters.to_vec() }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_le_bytes());
        out.extend(1_u32.to_le_bytes());
        let version = self.limiters.iter().map(Limiter::state_version).max().unwrap();
        out.extend([version, u8::try_from(self.limiters.len()).unwrap()]);
        for (name, limiter) in (0_u64..).zip(&self.limiters) {
            crate::stored_set::write_quota(name, limiter, out);
        }
    }
}

/// A direct request: a cost for each of the sets.
fn direct(version: u64, costs: &[(&Set, u64)]) -> Vec<u8> {
    let mut out = Vec::from(MAGIC);
    out.extend(version.to_le_bytes());
    out.extend(7_u64.to_le_bytes());
    out.push(STRICT | WITHOUT_STATES);
    for (set, cost) in costs {
        out.push(BINDING);
        out.extend(set.id.to_le_bytes());
        out.extend(cost.to_le_bytes());
        set.write(&mut out);
    }
    out
}

fn with_leases(leasing: &Leasing, direct: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    leasing.write(&mut out);
    out.extend_from_slice(direct);
    out
}

/// Whether a rule was charged, the remaining units, and when to retry.
type RuleReply = (bool, u64, Option<Span>);

/// The content of a reply: leases, and for each rule whether it was charged and the remaining
/// units.
fn read(reply: &[u8], quotas: &[usize]) -> (Vec<Leased>, Vec<RuleReply>) {
    let (leased, rest) = read_leased(reply).unwrap();
    let mut bytes = Reader(rest);
    assert_eq!(bytes.u8(), Ok(0), "decided");
    bytes.u64().unwrap();
    let mut rules = Vec::new();
    for quotas in quotas {
        let flags = bytes.u8().unwrap();
        let decisions: Vec<_> = (0..*quotas).map(|_| bytes.decision().unwrap()).collect();
        assert_eq!(flags & 2, 0, "quiet");
        let least = decisions.iter().map(|decision| decision.remaining).min().unwrap();
        let wait = decisions.iter().filter_map(|decision| decision.retry_after).max();
        rules.push((flags & 1 != 0, least, wait));
    }
    (leased, rules)
}

/// An operator's request to reset the key.
fn reset(rule: u64, ids: &[u64]) -> Vec<u8> {
    let mut out = Vec::from(*b"tollgt\x00K");
    out.extend(7_u64.to_le_bytes());
    out.push(2);
    out.extend(0_u64.to_le_bytes());
    out.extend(rule.to_le_bytes());
    out.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    out
}

const START: u64 = 1_780_000_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(START * 1_000 + millis)
}

fn limiter(algorithm: Algorithm, limit: u64, window_s: u64) -> Limiter {
    Limiter::new(algorithm, Quota::new(limit, Span::from_secs(window_s)).unwrap()).unwrap()
}

fn set(algorithm: Algorithm, limit: u64, window_s: u64) -> Set {
    Set::new(9, &[limiter(algorithm, limit, window_s)])
}

/// One key, and nodes that send requests for it.
struct Key {
    counts: Counts,
    set: Set,
}

impl Key {
    fn new(set: Set) -> Self {
        Self { counts: Counts::default(), set }
    }

    /// A direct cost: whether it was charged, the remaining units, and when to retry.
    fn check(&mut self, cost: u64, clock: impl Into<Clock>) -> RuleReply {
        let request = direct(0, &[(&self.set, cost)]);
        let reply = self.counts.answer(&request, clock).unwrap().reply;
        read(&reply, &[self.set.limiters.len()]).1[0]
    }

    fn ask(&mut self, table: u128, ask: LeaseAsk, clock: impl Into<Clock>) -> Leased {
        let leasing = Leasing { table, sets: vec![ask] };
        let request = with_leases(&leasing, &direct(0, &[(&self.set, 0)]));
        let reply = self.counts.answer(&request, clock).unwrap().reply;
        read(&reply, &[self.set.limiters.len()]).0[0]
    }

    fn tell(&mut self, table: u128, report: LeaseAsk, now: Timestamp) {
        assert_eq!(self.ask(table, report, now), Err(NoLease::Unasked));
    }

    fn out(&self) -> u64 {
        self.counts.sets.iter().map(|kept| kept.leases.out()).sum()
    }
}

fn want(number: u64, want: u64) -> LeaseAsk {
    let life = Span::from_secs(2);
    LeaseAsk { set: 9, number, want, least: 1, life, reports: vec![] }
}

fn report(number: u64, spent: u64, is_final: bool) -> LeaseAsk {
    let reports = vec![LeaseReport { number, spent, is_final }];
    LeaseAsk { set: 9, number: 0, want: 0, reports, ..LeaseAsk::default() }
}

fn granted(units: u64) -> Leased {
    Ok(LeaseGrant { units, life: Span::from_secs(2) })
}

#[test]
fn what_is_leased_is_reserved_and_what_is_reported_charged() {
    let mut key = Key::new(set(Algorithm::FixedWindow, 100, 60));
    // Half of the remaining units, then a quarter: the second of two nodes.
    assert_eq!(key.ask(1, want(1, 1_000), at(0)), granted(50));
    assert_eq!(key.ask(2, want(1, 1_000), at(1)), granted(12));
    assert_eq!(key.ask(3, want(1, 4), at(2)), granted(4));
    assert_eq!(key.check(1, at(3)), (true, 33, None), "100 - 66 out - 1");
    // A running total: the same number adds nothing, and a lower one is ignored.
    for (spent, is_final, out) in
        [(20, false, 46), (20, false, 46), (10, false, 46), (30, false, 36), (31, true, 16)]
    {
        key.tell(1, report(1, spent, is_final), at(4));
        assert_eq!(key.out(), out);
    }
    assert_eq!(key.check(0, at(5)).1, 100 - 1 - 31 - 16);
    // The lease is over: reports of it are ignored.
    key.tell(1, report(1, 50, false), at(6));
    key.tell(7, report(1, 50, false), at(6));
    assert_eq!(key.check(0, at(6)).1, 52);
    // Unreported units are charged at the end: two seconds of life, one of error.
    assert_eq!(key.check(0, at(3_000)).1, 52);
    assert_eq!((key.check(0, at(3_001)).1, key.out()), (52, 4));
    assert_eq!((key.check(0, at(3_002)).1, key.out()), (52, 0));
}

/// Guards: a row that cannot be read any more, with its leases.
#[test]
fn counts_that_were_lost_lease_nothing_until_what_they_had_leased_is_over() {
    let mut key = Key::new(set(Algorithm::Gcra, 100, 60));
    key.counts = Counts::begun_anew(at(0));
    for millis in [0, 5_000, 10_999] {
        assert_eq!(key.ask(1, want(millis, 10), at(millis)), Err(NoLease::Unsteady));
        assert!(key.check(1, at(millis)).0, "what is asked for is decided");
        // An object that sleeps in the meantime reads it again.
        let mut row = Vec::new();
        key.counts.encode(at(millis), &mut row);
        key.counts = Counts::decode(&row).unwrap();
    }
    assert_eq!(key.ask(1, want(6, 10), at(11_000)), granted(10));
    assert_eq!(key.ask(1, want(7, 10), at(40_000)), granted(10));
}

#[test]
fn a_number_is_leased_once() {
    let mut key = Key::new(set(Algorithm::Gcra, 100, 60));
    assert_eq!(key.ask(1, want(1, 10), at(0)), granted(10));
    assert_eq!(key.ask(1, want(1, 10), at(5)), granted(10));
    assert_eq!(key.out(), 10);
    assert_eq!(key.ask(1, want(2, 10), at(5)), granted(10));
    assert_eq!(key.out(), 20);
}

#[test]
fn near_the_limit_everybody_asks() {
    let mut key = Key::new(set(Algorithm::SlidingLog, 3, 60));
    assert_eq!(key.ask(1, want(1, 10), at(0)), granted(1));
    assert_eq!(key.ask(2, want(1, 10), at(0)), Err(NoLease::NearLimit));
    assert_eq!(key.check(1, at(1)), (true, 1, None));
    assert_eq!(key.check(1, at(2)), (true, 0, None));
    // The soonest: the leased unit is given back unspent.
    assert_eq!(key.check(1, at(500)), (false, 0, Some(Span::from_millis(2_500))));
}

#[test]
fn a_large_cost_is_not_locked_out_by_many_leases() {
    let mut key = Key::new(set(Algorithm::FixedWindow, 60, 60));
    for node in 0..12 {
        let leased = key.ask(node, want(1, 5), at(0));
        assert!(matches!(leased, Ok(_) | Err(NoLease::NearLimit)));
    }
    assert!(key.out() > 10, "{}", key.out());
    let denied = key.check(50, at(10));
    assert_eq!((denied.0, denied.2), (false, Some(Span::from_millis(2_990))), "not never");
    assert_eq!(key.ask(20, want(1, 1), at(20)), Err(NoLease::Awaited));
    // The nodes have spent nothing and report it; the cost is met within the life of the leases.
    for node in 0..12 {
        key.tell(node, report(1, 0, true), at(100));
    }
    assert_eq!(key.check(50, at(110)), (true, 10, None));
    assert_eq!(key.ask(20, want(2, 1), at(120)), granted(1));
    // A client that sends large costs all the time prevents leases half of the time.
    assert!(!key.check(10, at(130)).0);
    assert_eq!(key.ask(21, want(1, 1), at(140)), granted(1));
    // A cost that can never fit has no wait.
    assert_eq!(key.check(61, at(150)).2, None);
}

#[test]
fn no_more_than_so_many_leases() {
    let mut key = Key::new(set(Algorithm::TokenBucket, 1_000_000, 60));
    for node in 0..u128::try_from(MAX_LEASES).unwrap() {
        assert_eq!(key.ask(node, want(1, 1), at(0)), granted(1));
    }
    assert_eq!(key.ask(999, want(1, 1), at(0)), Err(NoLease::TooMany));
    assert_eq!(key.ask(3, want(1, 1), at(0)), granted(1), "the same again");
    let mut row = Vec::new();
    key.counts.encode(at(0), &mut row);
    assert!(row.len() < 7_000, "{}", row.len());
    assert_eq!(Counts::decode(&row), Some(key.counts.clone()));
    key.tell(7, report(1, 0, true), at(1));
    assert_eq!(key.ask(999, want(2, 1), at(1)), granted(1));
}

#[test]
fn a_queue_gives_places_and_no_leases() {
    let queue = limiter(Algorithm::LeakyQueue, 100, 60);
    let mut key = Key::new(Set::new(9, &[limiter(Algorithm::Gcra, 100, 60), queue]));
    assert_eq!(key.ask(1, want(1, 1), at(0)), Err(NoLease::Unleasable));
}

#[test]
fn after_a_step_of_the_clock_nothing_is_leased_for_one_longest_life() {
    let mut key = Key::new(set(Algorithm::Gcra, 100, 100));
    assert_eq!(key.ask(1, want(1, 50), at(0)), granted(50));
    // The clock jumps by an hour: earlier leases end one life after that.
    let jump = 3_600_000;
    let clock = |millis| Clock { steady_since: at(jump), ..Clock::from(at(jump + millis)) };
    assert_eq!(key.ask(2, want(1, 1), clock(0)), Err(NoLease::Unsteady));
    assert_eq!((key.check(0, clock(2_999)).1, key.out()), (50, 50));
    assert_eq!((key.check(0, clock(3_000)).1, key.out()), (50, 0));
    assert_eq!(key.ask(2, want(2, 1), clock(10_999)), Err(NoLease::Unsteady));
    assert_eq!(key.ask(2, want(3, 1), clock(11_000)), granted(1));
}

#[test]
fn a_clock_that_is_set_back_strands_nobody() {
    let mut key = Key::new(set(Algorithm::Gcra, 100, 100));
    let late = 3_600_000;
    assert_eq!(key.ask(1, want(1, 50), at(late)), granted(50));
    // The key's time does not advance, nothing more is leased, and the lease is cut to its life.
    assert_eq!(key.ask(2, want(1, 1), at(0)), Err(NoLease::Unsteady));
    assert_eq!((key.check(1, at(2_999)), key.out()), ((true, 49, None), 50));
    assert_eq!(key.check(0, at(3_000)).1, 100, "foreign, as any state of another clock");
    assert_eq!(key.out(), 0);
    assert_eq!(key.ask(2, want(2, 1), at(3_001)), Err(NoLease::Unsteady), "the state is");
    assert_eq!(key.check(1, at(3_001)), (true, 0, None), "one, and the debt of before");
    assert_eq!(key.ask(2, want(3, 1), at(5_001)), granted(1));
}

#[test]
fn other_quotas_have_no_leases_of_before() {
    let mut key = Key::new(set(Algorithm::FixedWindow, 100, 60));
    assert_eq!(key.ask(1, want(1, 40), at(0)), granted(40));
    key.set = set(Algorithm::FixedWindow, 50, 60);
    assert_eq!(key.check(1, at(1)), (true, 9, None), "40 may have been spent");
    assert_eq!(key.out(), 0);
}

#[test]
fn a_reset_key_keeps_what_is_leased() {
    let mut key = Key::new(set(Algorithm::Gcra, 100, 100));
    assert!(key.check(20, at(0)).0);
    assert_eq!(key.ask(1, want(1, 30), at(1)), granted(30));
    assert!(key.counts.operate(&reset(9, &[9]), at(2)).unwrap().is_changed);
    assert_eq!((key.check(0, at(3)).1, key.out()), (70, 30));
}

#[test]
fn what_is_settled_afterwards_is_charged_whatever_is_out() {
    let mut key = Key::new(set(Algorithm::FixedWindow, 100, 60));
    assert!(key.check(10, at(0)).0);
    assert_eq!(key.ask(1, want(1, 40), at(1)), granted(40));
    // A receipt is the request with the most units that it may be settled at, the time of the
    // charge, and no delay.
    let mut receipt = Vec::from(MAGIC);
    receipt.extend(0_u64.to_le_bytes());
    receipt.extend(7_u64.to_le_bytes());
    receipt.extend([1, BINDING | USED]);
    receipt.extend(9_u64.to_le_bytes());
    receipt.extend(10_u64.to_le_bytes());
    key.set.write(&mut receipt);
    receipt.extend(1_000_u64.to_le_bytes());
    receipt.extend(at(0).as_nanos().to_le_bytes());
    receipt.extend(0_u64.to_le_bytes());
    let request = Settlement::request(5, 90, &receipt);
    let reply = key.counts.answer(&request, at(2)).unwrap().reply;
    // 40 are out, and of 80 more only 50 fit: they were used.
    assert_eq!(Settlement::read(&reply), Ok(Settlement::Stands { charged: 90 }));
    key.tell(1, report(1, 40, true), at(3));
    assert_eq!(key.check(0, at(4)).1, 0);
}

#[test]
fn any_bytes_are_a_request_or_none() {
    let set = set(Algorithm::Gcra, 100, 60);
    let leasing = Leasing { table: 5, sets: vec![want(1, 10), report(1, 3, true)] };
    let request = with_leases(&leasing, &direct(0, &[(&set, 1)]));
    for cut in 0..request.len() {
        let answered = Counts::default().answer(&request[..cut], at(0));
        let is_whole = cut + set_len(&set) + 17 == request.len();
        assert_eq!(answered.is_ok(), is_whole, "{cut} of {}", request.len());
        for bit in 0..8 {
            let mut damaged = request.clone();
            damaged[cut] ^= 1 << bit;
            let mut counts = Counts::default();
            if let Ok(answered) = counts.answer(&damaged, at(0)) {
                let _ = read_leased(&answered.reply);
                let mut row = Vec::new();
                counts.encode(at(0), &mut row);
                assert!(Counts::decode(&row).is_some());
            }
        }
    }
}

fn set_len(set: &Set) -> usize {
    let mut out = Vec::new();
    set.write(&mut out);
    out.len()
}
