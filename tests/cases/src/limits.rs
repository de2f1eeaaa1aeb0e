//! Random traces of one limiter: decisions and the bytes of its state, to the nanosecond.
//!
//! Invariant: as for the cases, the same number gives the same trace on every target. These traces
//! contain the times that a Worker's clock does not have, large numbers, and the ends of time.

use std::fmt::Write;

use tollgate_core::{Algorithm, Charge, Limiter, Quota, Span, Timestamp};
use tollgate_test_support::Random;

use crate::seen::Digest;

/// The promised number of traces.
pub const TRACES: u32 = 200;
/// Steps per trace.
pub const STEPS: usize = 500;

/// The result of one trace.
pub struct Trace {
    /// The digest of every decision and of every state.
    pub digest: Digest,
    /// `MARK` characters per step: the operation, and twelve bits of the digest up to there.
    pub steps: String,
    /// The steps in words.
    told: Vec<String>,
}

/// Characters per step: `a` allowed, `d` denied, `p` only peeked or `r` refunded, then two of a
/// digest.
const MARK: usize = 3;

impl Trace {
    /// The first step whose mark differs from that in `before`.
    pub fn difference(&self, number: u32, before: &str) -> String {
        let mark =
            |steps: &'_ str, i: usize| steps.get(i * MARK..(i + 1) * MARK).map(str::to_owned);
        let differs = |i: &usize| mark(before, *i) != mark(&self.steps, *i);
        let Some(index) = (0..self.told.len()).find(differs) else {
            return format!("limiter {number}: only its last states differ");
        };
        format!(
            "limiter {number}, step {index}: expected `{}`, seen `{}` (a admitted, d denied, p only asked, r refunded; \
             then digits of a digest of decision and state)\n{}",
            mark(before, index).unwrap_or_default(),
            mark(&self.steps, index).unwrap_or_default(),
            self.told[index.saturating_sub(3)..=index].join("\n"),
        )
    }
}

/// Runs the trace `number`.
pub fn run(number: u32) -> Trace {
    let mut random = Random::new(0x11_3175_0000_0000 | u64::from(number));
    let limiter = limiter(&mut random);
    let mut state = vec![0; limiter.state_len()];
    let mut now = *random.pick(&[0, 1_700_000_000_000_000_000, 1 << 63, u64::MAX - (1 << 40)]);
    let (mut charges, mut line, mut digest) = (vec![], String::new(), Digest::default());
    let (mut steps, mut told) = (String::new(), vec![format!("{limiter:?}")]);
    for _ in 0..STEPS {
        now = step(&mut random, &limiter, now);
        let at = Timestamp::from_nanos(now);
        let cost = cost(&mut random, &limiter);
        line.clear();
        let done = match random.below(10) {
            0 => {
                write!(line, "{:?}", limiter.peek(&state, at, cost)).expect("text");
                'p'
            }
            1 if !charges.is_empty() => {
                let index = usize::try_from(random.below(charges.len() as u64)).expect("an index");
                let charge: Charge = charges.swap_remove(index);
                limiter.refund(&mut state, charge, at);
                'r'
            }
            _ => {
                let decision = limiter.check(&mut state, at, cost);
                charges.extend(decision.charge(at, cost));
                write!(line, "{decision:?}").expect("text");
                if decision.is_admitted() { 'a' } else { 'd' }
            }
        };
        digest.add(&line);
        digest.add(&state);
        digest.add(limiter.idle_at(&state).as_nanos().to_le_bytes());
        steps.push(done);
        steps.push_str(&digest.two_letters());
        told.push(format!("{done} of {cost} at {now} ns: {line}"));
    }
    told.remove(0);
    Trace { digest, steps, told }
}

/// A valid limiter: an invalid draw is repeated.
fn limiter(random: &mut Random) -> Limiter {
    loop {
        let algorithm = match *random.pick(&Algorithm::ALL) {
            Algorithm::SlidingBuckets { .. } => Algorithm::SlidingBuckets {
                buckets: *random.pick(&[2, 7, 60, 360]),
                weighted: random.chance(50),
            },
            other => other,
        };
        let most = *random.pick(&[1, 5, 10, 100, 1000, 1 << 40]);
        let limit = random.between(1, most);
        let longest =
            *random.pick(&[1_000_000, 1_000_000_000, 60_000_000_000, 31_622_400_000_000_000]);
        let window = Span::from_nanos(random.between(1_000_000, longest));
        let burst = if random.chance(30) { random.between(1, 2 * limit) } else { limit };
        let strict = random.chance(20);
        let quota = Quota::new(limit, window).and_then(|quota| quota.with_burst(burst));
        let quota = quota.map(|quota| if strict { quota.strict() } else { quota });
        if let Ok(limiter) = quota.and_then(|quota| Limiter::new(algorithm, quota)) {
            return limiter;
        }
    }
}

fn step(random: &mut Random, limiter: &Limiter, now: u64) -> u64 {
    let window = limiter.window().as_nanos();
    let interval = window / limiter.limit();
    match random.below(100) {
        0..30 => now,
        30..60 => now.saturating_add(random.below(interval.saturating_mul(2).max(2))),
        60..85 => now.saturating_add(random.below(window / 4)),
        85..92 => now.saturating_add(random.between(window - 2, window + 2)),
        92..95 => now.saturating_add(random.below(window.saturating_mul(5))),
        95..98 => now.saturating_sub(random.below(30_000_000_000)),
        _ => now.saturating_sub(random.below(window.saturating_mul(2).max(31_000_000_000))),
    }
}

fn cost(random: &mut Random, limiter: &Limiter) -> u64 {
    match random.below(20) {
        0 => 0,
        1 => u64::MAX,
        2 => limiter.capacity().saturating_add(1),
        3 => limiter.capacity(),
        4..7 => random.between(1, limiter.limit()),
        _ => 1,
    }
}
