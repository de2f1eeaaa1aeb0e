//! Every algorithm against a naive oracle that keeps the whole history and says in one line what is
//! admitted. Its arithmetic is exact (`i128`, products in place of quotients) and shares no code
//! with the core.
//!
//! The oracle only answers "would this cost be admitted at that time?". What a decision claims is
//! checked by asking: `remaining` is admitted and one more is not; `retry_after` is admitted and
//! one nanosecond less is not.
#![cfg(not(target_arch = "wasm32"))]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod support;

use proptest::prelude::*;
use support::arbitrary::*;
use tollgate_core::{Algorithm, Decision, Limiter, Verdict};

#[derive(Clone, Copy, Debug)]
struct Charged {
    /// The time it counts at: that of the request, or the latest before it when the clock was late.
    at: i128,
    cost: i128,
}

#[derive(Clone)]
struct Oracle {
    algorithm: Algorithm,
    limit: i128,
    burst: i128,
    window: i128,
    strict: bool,
    history: Vec<Charged>,
    /// The latest time anything was counted at, taken back since or not.
    latest: i128,
}

impl Oracle {
    fn new(limiter: &Limiter) -> Self {
        let quota = limiter.quota();
        Self {
            algorithm: limiter.algorithm(),
            limit: quota.limit().into(),
            burst: quota.burst().into(),
            window: quota.window().as_nanos().into(),
            strict: quota.is_strict(),
            history: Vec::new(),
            latest: 0,
        }
    }

    fn admits(&self, now: i128, cost: i128) -> bool {
        cost == 0
            || match self.algorithm {
                Algorithm::FixedWindow => self.fixed_window(now, cost),
                Algorithm::SlidingWindow => self.sliding_window(now, cost),
                Algorithm::SlidingBuckets { buckets, weighted: false } => {
                    self.buckets(now, cost, buckets.into())
                }
                Algorithm::SlidingBuckets { buckets, weighted: true } => {
                    self.weighted_buckets(now, cost, buckets.into())
                }
                Algorithm::SlidingLog => self.log(now, cost),
                _ => self.rate(now, cost),
            }
    }

    /// From every request on, what was admitted since drains one unit every T: the debt of any
    /// stretch of the history, with the new cost, is at most one burst.
    fn rate(&self, now: i128, cost: i128) -> bool {
        let interval = self.interval();
        let mut units = cost;
        let mut fits = cost <= self.burst;
        for charged in self.history.iter().rev() {
            units += charged.cost;
            fits &= charged.at + units * interval <= now + self.burst * interval;
        }
        fits
    }

    /// The units in the window of the clock.
    fn fixed_window(&self, now: i128, cost: i128) -> bool {
        let index = now.max(self.latest / self.window * self.window) / self.window;
        self.units_in(index * self.window, (index + 1) * self.window) + cost <= self.limit
    }

    /// previous x left / window + current + cost against limit, times window; the floor gives less
    /// than one unit.
    fn sliding_window(&self, now: i128, cost: i128) -> bool {
        let start = self.latest / self.window * self.window;
        let now = now.max(start);
        let start = now / self.window * self.window;
        let previous = self.units_in(start - self.window, start);
        let current = self.units_in(start, start + self.window);
        let left = start + self.window - now;
        let over = previous * left + (current + cost - self.limit) * self.window;
        if self.strict { over <= 0 } else { over < self.window }
    }

    /// A unit counts until one window after the end of its part.
    fn buckets(&self, now: i128, cost: i128, buckets: i128) -> bool {
        let part = (self.window + buckets - 1) / buckets;
        let now = now.max(self.latest / part * part);
        let counts = |c: &&Charged| now < (c.at / part + 1) * part + self.window;
        self.history.iter().filter(counts).map(|c| c.cost).sum::<i128>() + cost <= self.limit
    }

    /// Each part counts by what of it the window still covers. The oldest is covered in part or not
    /// at all; where N parts are longer than the window, the next one counts whole until then.
    fn weighted_buckets(&self, now: i128, cost: i128, buckets: i128) -> bool {
        let part = (self.window + buckets - 1) / buckets;
        let now = now.max(self.latest / part * part);
        let index = now / part;
        let mut over = (cost - self.limit) * part;
        for charged in &self.history {
            let end = (charged.at / part + 1) * part;
            let is_oldest = charged.at / part == index - buckets;
            let left = (end + self.window - now).clamp(0, part);
            over += charged.cost * if is_oldest || left == 0 { left } else { part };
        }
        if self.strict { over <= 0 } else { over < part }
    }

    /// A unit counts for one window.
    fn log(&self, now: i128, cost: i128) -> bool {
        let now = now.max(self.latest);
        self.units_in(now - self.window + 1, now + 1) + cost <= self.limit
    }

    fn units_in(&self, start: i128, end: i128) -> i128 {
        let inside = |c: &&Charged| start <= c.at && c.at < end;
        self.history.iter().filter(inside).map(|c| c.cost).sum()
    }

    fn interval(&self) -> i128 {
        let units = if self.strict { self.limit - self.burst + 1 } else { self.limit };
        (self.window + units - 1) / units
    }

    /// How long a request of the queue waits: for the end of the last slot taken.
    fn wait(&self, now: i128) -> i128 {
        let mut free_at = now;
        let mut slots_end = i128::MIN;
        for charged in &self.history {
            slots_end = slots_end.max(charged.at) + charged.cost * self.interval();
        }
        free_at = free_at.max(slots_end);
        free_at - now
    }

    fn record(&mut self, now: i128, cost: i128) {
        let at = match self.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                now.max(self.latest / self.window * self.window)
            }
            Algorithm::SlidingBuckets { buckets, .. } => {
                let part = (self.window + i128::from(buckets) - 1) / i128::from(buckets);
                now.max(self.latest / part * part)
            }
            Algorithm::SlidingLog => now.max(self.latest),
            _ => now,
        };
        self.latest = self.latest.max(at);
        self.history.push(Charged { at, cost });
    }

    /// Checks every field of a decision, then follows it.
    fn follow(&mut self, now: u64, cost: u64, decision: &Decision) {
        let (now, cost) = (i128::from(now), i128::from(cost));
        let admitted = self.admits(now, cost);
        assert_eq!(decision.is_admitted(), admitted, "verdict at {now}, {self:?}");
        assert_eq!(i128::from(decision.limit), self.limit);
        if !admitted {
            self.check_wait(now, cost, decision);
        } else {
            assert_eq!(decision.retry_after, None);
            let queued = self.algorithm == Algorithm::LeakyQueue && cost > 0;
            let expected = if queued { self.wait(now) } else { 0 };
            let wait = match decision.verdict {
                Verdict::Delay(wait) => i128::from(wait.as_nanos()),
                _ => 0,
            };
            assert_eq!(wait, expected, "wait at {now}, {self:?}");
            if cost > 0 {
                self.record(now, cost);
            }
        }
        let remaining = i128::from(decision.remaining);
        assert!(self.admits(now, remaining), "{remaining} remaining at {now}, {self:?}");
        assert!(!self.admits(now, remaining + 1), "{remaining} remaining at {now}, {self:?}");
        if remaining == 0 {
            let reset = i128::from(decision.reset_after.as_nanos());
            assert!(!self.admits(now + reset - 1, 1), "reset early at {now}, {self:?}");
            assert!(self.admits(now + reset, 1), "reset late at {now}, {self:?}");
        }
    }

    fn check_wait(&self, now: i128, cost: i128, decision: &Decision) {
        match decision.retry_after {
            None => assert!(cost > self.burst),
            Some(wait) => {
                let at = now + i128::from(wait.as_nanos());
                assert!(!self.admits(at - 1, cost), "early by {decision:?} at {now}, {self:?}");
                assert!(self.admits(at, cost), "late by {decision:?} at {now}, {self:?}");
            }
        }
    }
}

impl core::fmt::Debug for Oracle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { algorithm, limit, burst, window, strict, history, .. } = self;
        write!(f, "{algorithm:?} {limit}/{window} burst {burst} strict {strict}: {history:?}")
    }
}

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

    /// Charges taken back: at once from GCRA and its kin, the last one from the queue until it
    /// departs, any time from the counters.
    #[test]
    fn random_traces_with_refunds_agree(
        limiter in limiter(), start in start(),
        steps in prop::collection::vec((pause(), cost(), prop::option::weighted(0.4, any::<prop::sample::Index>())), 1..50),
    ) {
        let mut oracle = Oracle::new(&limiter);
        let mut key = Key::new(limiter);
        let (mut now, mut retry_after) = (start, None);
        let mut charged: Vec<Admission> = Vec::new();
        for (pause, cost, refund) in steps {
            now = pause.after(now, limiter.window().as_nanos(), retry_after);
            let decision = key.check(now, cost);
            retry_after = decision.retry_after;
            oracle.follow(now, cost, &decision);
            if decision.is_admitted() && cost > 0 {
                charged.push(Admission { at: now, cost, decision });
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
