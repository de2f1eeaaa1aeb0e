//! Every algorithm against the naive oracle of `support/oracle.rs`, on random traces and on all
//! small ones.

use crate::support::arbitrary::*;
use crate::support::oracle::Oracle;
use proptest::prelude::*;
use tollgate_core::{Algorithm, Verdict};

proptest! {
    #![proptest_config(config(if cfg!(debug_assertions) { 600 } else { 6_000 }))]

    /// Random traces with boundaries, exact retries and idle times.
    #[test]
    fn random_traces_agree(limiter in limiter(), start in start(), steps in steps(50)) {
        let mut oracle = Oracle::new(&limiter);
        run(&mut Key::new(limiter), start, &steps, |_, now, cost, decision| {
            oracle.follow(now, cost, decision);
        });
    }

    /// The same on a clock that is late by up to the skew.
    #[test]
    fn random_traces_on_a_late_clock_agree(
        limiter in limiter(),
        steps in prop::collection::vec((0..30_000_000_000_u64, 0..3_u64, pause(), cost()), 1..50),
    ) {
        let mut oracle = Oracle::new(&limiter);
        let mut key = Key::new(limiter);
        let mut front = 1_780_000_000_000_000_000;
        for (late_ns, late, pause, cost) in steps {
            front = pause.after(front, limiter.window().as_nanos(), None);
            let now = if late == 0 { front - late_ns } else { front };
            let decision = key.check(now, cost);
            oracle.follow(now, cost, &decision);
        }
    }

    /// Use that is recorded whether or not it fits, also on a late clock and far above the cap.
    #[test]
    fn random_traces_with_debits_agree(
        limiter in limiter(),
        steps in prop::collection::vec(
            (0..30_000_000_000_u64, 0..3_u64, pause(), cost(), prop_oneof![
                2 => Just(0), 2 => 1..4_u64, 1 => 4..60_u64, 1 => Just(u64::MAX)
            ]),
            1..50,
        ),
    ) {
        let mut oracle = Oracle::new(&limiter);
        let mut key = Key::new(limiter);
        let (mut front, mut retry_after) = (START, None);
        for (late_ns, late, pause, cost, units) in steps {
            front = pause.after(front, limiter.window().as_nanos(), retry_after);
            let now = if late == 0 { front - late_ns } else { front };
            key.debit(now, units);
            oracle.debit(i128::from(now), i128::from(units));
            let decision = key.check(now, cost);
            retry_after = decision.retry_after;
            oracle.follow(now, cost, &decision);
        }
    }

    /// Charges taken back: at once from GCRA and its kin, the last one from the queue until it
    /// departs, at any time from the counters.
    #[test]
    fn random_traces_with_refunds_agree(
        limiter in limiter(), start in start(),
        steps in prop::collection::vec((pause(), cost(), prop::option::weighted(0.4, any::<prop::sample::Index>())), 1..50),
    ) {
        let mut oracle = Oracle::new(&limiter);
        let mut key = Key::new(limiter);
        let (mut now, mut retry_after) = (start, None);
        let mut charged: Vec<AdmittedRequest> = Vec::new();
        for (pause, cost, refund) in steps {
            now = pause.after(now, limiter.window().as_nanos(), retry_after);
            let decision = key.check(now, cost);
            retry_after = decision.retry_after;
            oracle.follow(now, cost, &decision);
            if decision.is_admitted() && cost > 0 {
                charged.push(AdmittedRequest { at: now, cost, decision });
            }
            if let (Some(index), false) = (refund, charged.is_empty()) {
                let last = charged.len() - 1;
                let queue = limiter.algorithm() == Algorithm::LeakyQueue;
                let index = if limiter.algorithm().has_burst() { last } else { index.index(last + 1) };
                let a = charged[index];
                let departs_at = match a.decision.verdict {
                    Verdict::Delay(wait) => a.at + wait.as_nanos(),
                    _ => a.at,
                };
                if queue && departs_at < now {
                    let before = key.clone();
                    key.refund(&a.decision, a.at, a.cost, now);
                    assert_eq!(key.state, before.state, "it has departed");
                } else if queue || !limiter.algorithm().has_burst() || a.at == now {
                    charged.remove(index);
                    oracle.history.remove(index);
                    key.refund(&a.decision, a.at, a.cost, now);
                }
            }
        }
    }
}

/// All traces of up to six events over a small grid of times and costs, for every algorithm: the
/// same instant, a part of a window, one nanosecond before a whole one, and a step back.
#[test]
fn all_small_worlds_agree() {
    for (limit, burst, strict, window_ns) in
        [(2, 2, false, 1_000_000), (3, 2, true, 1_000_001), (3, 4, false, 1_000_000)]
    {
        for algorithm in Algorithm::ALL.map(|algorithm| algorithm.with_buckets(2)) {
            let numbers = Numbers { limit, window_ns, burst, strict };
            let limiter = build(algorithm, numbers);
            let part_ns = window_ns / 3;
            let world = World {
                deltas: [
                    0,
                    part_ns.cast_signed(),
                    window_ns.cast_signed() - 1,
                    -part_ns.cast_signed(),
                ],
                costs: [1, 2],
            };
            let start = 5 * window_ns - 1;
            let traces = world.explore(&Key::new(limiter), &Oracle::new(&limiter), start, 6);
            assert_eq!(
                traces,
                8_u64.pow(6) + 8_u64.pow(5) + 8_u64.pow(4) + 8_u64.pow(3) + 8_u64.pow(2) + 8
            );
        }
    }
}

struct World {
    deltas: [i64; 4],
    costs: [u64; 2],
}

impl World {
    /// Every continuation of at most `depth` events; returns how many there were.
    fn explore(&self, key: &Key, oracle: &Oracle, now: u64, depth: u32) -> u64 {
        if depth == 0 {
            return 0;
        }
        let mut traces = 0;
        for delta in self.deltas {
            for cost in self.costs {
                let (mut key, mut oracle) = (key.clone(), oracle.clone());
                let now = now.checked_add_signed(delta).expect("after the epoch");
                let decision = key.check(now, cost);
                oracle.follow(now, cost, &decision);
                traces += 1 + self.explore(&key, &oracle, now, depth - 1);
            }
        }
        traces
    }
}
