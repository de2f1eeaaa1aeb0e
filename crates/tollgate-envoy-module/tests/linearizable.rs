//! Requests of several threads for the same keys give what one limiter gives that decides them one
//! after the other, each at a moment between its begin and its end.
//!
//! Each call is recorded with its begin, its end and the response; then an order is searched in
//! which the core gives the same responses (Wing and Gong, "Testing and Verifying Concurrent
//! Objects", 1993). Invariant: a correct history is never rejected, however the threads run. Keys
//! are judged one by one, because a history of independent objects is linearizable if the history
//! of each is (Herlihy and Wing, "Linearizability", 1990, theorem 1).

#![allow(
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test fails by a panic"
)]

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp, Verdict};
use tollgate_test_support::Random;

use crate::envoy::{Configuration, Stream};

/// The units of a key. A log does not depend on which of two requests read the clock first, as the
/// rounding of other algorithms does, and gives no unit back within a day.
const LIMIT: u64 = 48;
const WINDOW: Span = Span::from_secs(86_400);
const NOW: Timestamp = Timestamp::from_nanos(1_780_000_000_000_000_000);

/// The threads, by the seeds of their costs.
const SEEDS: [u64; 4] = [1, 2, 3, 4];
/// Of each thread for each key: together about three times the limit.
const CALLS: usize = 16;
const KEYS: usize = 40;
const MAX_COST: u64 = 4;

/// The remaining units in the response to a denied request, whatever is left for a lower cost.
const REPORTED_ON_DENIAL: u64 = 0;

/// A request and its response. Begins and ends of all threads are numbered in one sequence.
#[derive(Clone, Copy, Debug)]
struct Call {
    began: u64,
    ended: u64,
    cost: u64,
    allowed: bool,
    remaining: u64,
}

fn limiter() -> Limiter {
    let quota = Quota::new(LIMIT, WINDOW).expect("a quota");
    Limiter::new(Algorithm::SlidingLog, quota).expect("a limiter")
}

/// True when the core gives these responses in some order in which no call is before one that had
/// ended when it began. The calls of a thread are in their order.
fn is_linearizable(threads: &[Vec<Call>]) -> bool {
    let limiter = limiter();
    // How many calls of each thread are decided, and the state after them.
    let first = (vec![0; threads.len()], vec![0; limiter.state_len()]);
    let mut known = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some((decided, state)) = open.pop() {
        let next = |thread: usize| threads[thread].get(decided[thread]);
        let Some(first_end) = (0..threads.len()).filter_map(next).map(|call| call.ended).min()
        else {
            return true;
        };
        for thread in 0..threads.len() {
            let Some(call) = next(thread).filter(|call| call.began < first_end) else { continue };
            let mut state = state.clone();
            let decision = limiter.check(&mut state, NOW, call.cost);
            let is_allowed = decision.verdict == Verdict::Allow;
            let remaining = if is_allowed { decision.remaining } else { REPORTED_ON_DENIAL };
            let is_same = (is_allowed, remaining) == (call.allowed, call.remaining);
            let mut decided = decided.clone();
            decided[thread] += 1;
            if is_same && known.insert((decided.clone(), state.clone())) {
                open.push((decided, state));
            }
        }
    }
    false
}

/// Sends a request and records it.
fn call(configuration: &Configuration, key: &str, cost: u64, sequence: &AtomicU64) -> Call {
    let cost_line = cost.to_string();
    let stream = configuration.open(Stream::get(&[("x-key", key), ("x-cost", &cost_line)]));
    let began = sequence.fetch_add(1, Ordering::SeqCst);
    let allowed = stream.request() == 0;
    let ended = sequence.fetch_add(1, Ordering::SeqCst);
    let field = if allowed {
        stream.response();
        stream.response_header("ratelimit")
    } else {
        let sent = stream.sent.borrow();
        let mut headers = sent.iter().flat_map(|sent| &sent.headers);
        headers.find(|(name, _)| name == "ratelimit").map(|(_, value)| value.clone())
    };
    stream.end();
    let field = field.expect("the field");
    let (_, rest) = field.split_once(";r=").expect("the remaining units");
    let digits = rest.split(';').next().expect("digits");
    Call { began, ended, cost, allowed, remaining: digits.parse().expect("a number") }
}

/// The calls of each thread for one key. All threads begin together.
fn history(configuration: &Configuration, key: &str, most: u64) -> Vec<Vec<Call>> {
    let (barrier, sequence) = (Barrier::new(SEEDS.len()), AtomicU64::new(0));
    let worker = &|thread: u64| -> Vec<Call> {
        let mut random = Random::new(thread);
        barrier.wait();
        (0..CALLS).map(|_| call(configuration, key, random.between(1, most), &sequence)).collect()
    };
    thread::scope(|scope| {
        let start = |thread| scope.spawn(move || worker(thread));
        let threads: Vec<_> = SEEDS.map(start).into();
        threads.into_iter().map(|thread| thread.join().expect("a worker")).collect()
    })
}

// Guards: a lost update, a stale read and a denial that is repeated although units are left.
#[test]
fn every_history_of_four_workers_is_that_of_one_limiter() {
    let document = format!(
        r#"{{"version": 1, "rules": [{{"name": "linear", "key": [{{"header": "x-key"}}],
            "cost": {{"header": "x-cost", "default": 1, "max": {MAX_COST}}},
            "quotas": [{{"limit": {LIMIT}, "window": "1d", "algorithm": "sliding-log"}}]}}]}}"#
    );
    let configuration = Configuration::new(&document).expect("a policy");
    for number in 0..KEYS {
        // Where all costs are equal, a worker repeats denials from memory.
        let most = if number % 2 == 0 { MAX_COST } else { 1 };
        let threads = history(&configuration, &format!("key {number}"), most);
        assert!(is_linearizable(&threads), "no order gives these responses: {threads:#?}");
        let charged = threads.iter().flatten().filter(|call| call.allowed).map(|call| call.cost);
        assert!(charged.sum::<u64>() > LIMIT - most, "the limit is reached");
    }
}

#[test]
fn a_history_that_no_limiter_gives_is_rejected() {
    let call =
        |began, ended, cost, allowed, remaining| Call { began, ended, cost, allowed, remaining };
    let (half, rest) = (LIMIT / 2, LIMIT - LIMIT / 2);
    let one_by_one = [
        vec![call(0, 1, half, true, rest)],
        vec![call(2, 3, rest, true, 0), call(4, 5, 1, false, 0)],
    ];
    assert!(is_linearizable(&one_by_one));
    let at_once = [vec![call(0, 3, half, true, 0)], vec![call(1, 2, rest, true, half)]];
    assert!(is_linearizable(&at_once), "the second one is decided first");
    for (what, threads) in [
        ("a lost update", [vec![call(0, 3, half, true, rest)], vec![call(1, 2, half, true, rest)]]),
        (
            "a stale read",
            [vec![call(0, 1, half, true, rest)], vec![call(2, 3, 1, true, LIMIT - 1)]],
        ),
        ("an early denial", [vec![call(0, 1, 1, false, 0)], vec![call(2, 3, LIMIT, true, 0)]]),
        ("a unit too many", [vec![call(0, 3, LIMIT, true, 0)], vec![call(1, 2, 1, true, 0)]]),
        (
            "an order against time",
            [vec![call(0, 1, half, true, 0)], vec![call(2, 3, rest, true, half)]],
        ),
    ] {
        assert!(!is_linearizable(&threads), "{what}");
    }
}
