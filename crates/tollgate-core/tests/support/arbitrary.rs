//! Random limiters, times and traces, small enough that every corner is met often.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tollgate_core::{ALLOWED_SKEW, Algorithm, Decision, LATEST, Limiter, Quota, Span, Timestamp};

pub const SKEW_NS: u64 = ALLOWED_SKEW.as_nanos();
/// Noon on a day in 2026, so that a clock can step back a long way.
pub const START: u64 = 1_780_000_000_000_000_000;

/// The number of cases per law; a failing seed is stored next to the test and run first from then
/// on.
pub fn config(cases: u32) -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::with_cases(cases)
    }
}

/// One limiter with its bytes, and the units it allowed so far.
#[derive(Clone, Debug)]
pub struct Key {
    pub limiter: Limiter,
    pub state: Vec<u8>,
}

impl Key {
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter, state: vec![0; limiter.state_len()] }
    }

    pub fn check(&mut self, now: u64, cost: u64) -> Decision {
        self.limiter.check(&mut self.state, at(now), cost)
    }

    pub fn peek(&self, now: u64, cost: u64) -> Decision {
        self.limiter.peek(&self.state, at(now), cost)
    }

    pub fn used(&self, now: u64) -> u32 {
        self.limiter.used(&self.state, at(now))
    }

    pub fn debit(&mut self, now: u64, units: u64) {
        self.limiter.debit(&mut self.state, units, at(now));
    }

    /// Takes the charge of a request back; `decision` and `charged_at` are of its check.
    pub fn refund(&mut self, decision: &Decision, charged_at: u64, cost: u64, now: u64) {
        let charge = decision.charge(at(charged_at), cost).expect("admitted");
        self.limiter.refund(&mut self.state, charge, at(now));
    }
}

pub const fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// An allowed request, as the tests remember it.
#[derive(Clone, Copy, Debug)]
pub struct AdmittedRequest {
    pub at: u64,
    pub cost: u64,
    pub decision: Decision,
}

/// How a trace continues: the pause before the next request, and its cost.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub pause: Pause,
    pub cost: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Pause {
    None,
    /// Exactly as long as the last denial's wait, plus this many nanoseconds.
    Retry {
        late_ns: u64,
    },
    /// This many thousandths of a window.
    OfWindow {
        thousandths: u64,
    },
    /// To this many nanoseconds before the next start of an aligned window.
    BeforeBoundary {
        ns: u64,
    },
    Nanos(u64),
}

impl Pause {
    /// The time after the pause.
    pub fn after(self, now: u64, window_ns: u64, retry_after: Option<Span>) -> u64 {
        match self {
            Self::None => now,
            Self::Retry { late_ns } => now + retry_after.map_or(0, Span::as_nanos) + late_ns,
            Self::OfWindow { thousandths } => now + window_ns / 1000 * thousandths,
            Self::BeforeBoundary { ns } => now.max((now / window_ns + 1) * window_ns - ns),
            Self::Nanos(ns) => now + ns,
        }
    }
}

pub fn pause() -> impl Strategy<Value = Pause> {
    prop_oneof![
        4 => Just(Pause::None),
        3 => (0..2_u64).prop_map(|late_ns| Pause::Retry { late_ns }),
        4 => (0..1100_u64).prop_map(|thousandths| Pause::OfWindow { thousandths }),
        1 => (1000..4000_u64).prop_map(|thousandths| Pause::OfWindow { thousandths }),
        2 => (0..3_u64).prop_map(|ns| Pause::BeforeBoundary { ns }),
        1 => (1..4_u64).prop_map(Pause::Nanos),
    ]
}

/// Mostly cost 1, so that traces are dense; sometimes 0, more, and more than ever fits.
pub fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(1), 1 => Just(0), 3 => 2..5_u64, 1 => 5..40_u64]
}

pub fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((pause(), cost()).prop_map(|(pause, cost)| Step { pause, cost }), 1..max)
}

/// A point on the clock where a trace starts: the epoch, near it, or this year.
pub fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0..10_000_000_u64,
        1_700_000_000_000_000_000..1_800_000_000_000_000_000_u64
    ]
}

pub fn algorithm() -> impl Strategy<Value = Algorithm> {
    (prop::sample::select(&Algorithm::ALL), 2..12_u16, any::<bool>()).prop_map(
        |(algorithm, buckets, weighted)| {
            let algorithm = algorithm.with_buckets(buckets);
            if weighted { algorithm.weighted() } else { algorithm }
        },
    )
}

/// The numbers of a quota before the algorithm is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub limit: u64,
    pub window_ns: u64,
    pub burst: u64,
    pub strict: bool,
}

/// Small limits in windows from 1 ms to a minute, most of which no limit divides.
pub fn numbers() -> impl Strategy<Value = Numbers> {
    let window = prop_oneof![
        Just(1_000_000),
        1_000_000..1_000_100_u64,
        1_000_000..3_000_000_000_u64,
        Just(1_000_000_000),
        Just(60_000_000_000)
    ];
    (1..12_u64, window, 1..16_u64, any::<bool>())
        .prop_map(|(limit, window_ns, burst, strict)| Numbers { limit, window_ns, burst, strict })
}

/// The limiter of these numbers, as far as the algorithm has them.
pub fn build(algorithm: Algorithm, numbers: Numbers) -> Limiter {
    let quota = Quota::new(numbers.limit, Span::from_nanos(numbers.window_ns)).expect("a quota");
    let quota = if algorithm.has_burst() {
        let most = if numbers.strict { numbers.limit } else { u64::MAX };
        quota.with_burst(numbers.burst.min(most)).expect("a burst")
    } else {
        quota
    };
    let strict = numbers.strict && algorithm != Algorithm::FixedWindow;
    Limiter::new(algorithm, if strict { quota.strict() } else { quota }).expect("a limiter")
}

pub fn limiter() -> impl Strategy<Value = Limiter> {
    (algorithm(), numbers(), prop::bool::weighted(0.3)).prop_map(|(algorithm, numbers, holds)| {
        let limiter = build(algorithm, numbers);
        limiter.with_holds().filter(|_| holds).unwrap_or(limiter)
    })
}

/// T, computed again from the quota.
pub fn emission_interval_ns(quota: &Quota) -> u64 {
    let units = if quota.is_strict() { quota.limit() - quota.burst() + 1 } else { quota.limit() };
    quota.window().as_nanos().div_ceil(units)
}

/// Runs a trace on a clock that never goes back, following denials where the steps require it, and
/// calls `seen` with every request and its decision. Returns the allowed requests.
pub fn run(
    key: &mut Key,
    start: u64,
    steps: &[Step],
    mut seen: impl FnMut(&mut Key, u64, u64, &Decision),
) -> Vec<AdmittedRequest> {
    let window_ns = key.limiter.window().as_nanos();
    let mut now = start;
    let mut retry_after = None;
    let mut admitted = Vec::new();
    for step in steps {
        now = step.pause.after(now, window_ns, retry_after);
        let decision = key.check(now, step.cost);
        retry_after = decision.retry_after;
        seen(key, now, step.cost, &decision);
        if decision.is_admitted() {
            admitted.push(AdmittedRequest { at: now, cost: step.cost, decision });
        }
    }
    admitted
}

/// Units allowed from `start` on for `span_ns`, half-open.
pub fn units_within(admitted: &[AdmittedRequest], start: u64, span_ns: u64) -> u64 {
    let inside = |a: &&AdmittedRequest| a.at >= start && a.at - start < span_ns;
    admitted.iter().filter(inside).map(|a| a.cost).sum()
}

/// The documented bound for a clock that moved anywhere between two points: the most that can have
/// been allowed between them.
pub fn bound_between(limiter: &Limiter, first: u64, last: u64) -> u64 {
    let quota = limiter.quota();
    let window_ns = quota.window().as_nanos();
    match limiter.algorithm() {
        algorithm if algorithm.has_burst() => {
            quota.burst() + (last - first) / emission_interval_ns(quota)
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindow => {
            quota.limit() * (last / window_ns - first / window_ns + 1)
        }
        _ => limiter.max_in_window() * ((last - first) / window_ns + 1),
    }
}

/// The longest time for which a cost that fits is denied, whatever the bytes and the clock: two
/// bursts or two windows, and the skew.
pub fn longest_wait_ns(limiter: &Limiter) -> u64 {
    let own_ns = if limiter.algorithm().has_burst() {
        limiter.capacity() * emission_interval_ns(limiter.quota())
    } else {
        limiter.window().as_nanos()
    };
    2 * own_ns + SKEW_NS
}

/// The change of a state that another process writes to.
#[derive(Clone, Debug)]
pub enum Damage {
    /// Some of its bytes.
    Some(Vec<(prop::sample::Index, u8)>),
    /// All of them.
    All(Vec<u8>),
    /// All but the first, so that its time is near.
    AllButTheFirst(Vec<u8>),
}

impl Damage {
    pub fn apply(&self, state: &mut [u8]) {
        let (kept, given) = match self {
            Self::Some(bytes) => {
                bytes.iter().for_each(|(index, byte)| state[index.index(state.len())] = *byte);
                return;
            }
            Self::All(given) => (0, given),
            Self::AllButTheFirst(given) => (8, given),
        };
        state.iter_mut().skip(kept).zip(given.iter().cycle()).for_each(|(byte, any)| *byte = *any);
    }
}

pub fn damage() -> impl Strategy<Value = Damage> {
    let bytes = || prop::collection::vec(prop_oneof![any_byte(), 0..6_u8], 1..200);
    prop_oneof![
        prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![any_byte(), 0..6_u8]),
            1..8
        )
        .prop_map(Damage::Some),
        bytes().prop_map(Damage::All),
        bytes().prop_map(Damage::AllButTheFirst),
    ]
}

pub fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![2 => Just(0), 1 => Just(255), 3 => any::<u8>()]
}

pub fn any_time() -> impl Strategy<Value = u64> {
    let latest = LATEST.as_nanos();
    prop_oneof![
        Just(0),
        Just(1),
        Just(START),
        Just(u64::MAX),
        latest - 2..=latest + 2,
        any::<u64>(),
        START..START + 1_000_000_000
    ]
}
