//! What one decision costs: N decisions of one algorithm, or of `governor`, for `cargo xtask bench`.
//!
//! ```text
//! cost <algorithm> <decisions> [allow|deny|mixed]      # prints: algorithm decisions admitted ns-per-decision
//! ```
//!
//! Run it under `valgrind --tool=callgrind` with two different N and divide the difference of the
//! instruction counts by the difference of N: start-up and the table of requests fall out. The clock
//! is an argument of the loop, never read: the one reading of the real clock is around it.
//!
//! - `allow`: time passes one emission interval a request, everything is admitted;
//! - `deny`: time stands still, after the first ones everything is denied;
//! - `mixed` (default): three requests in one emission interval, so that about a third is admitted.

#[cfg(target_arch = "wasm32")]
fn main() {}

#[cfg(not(target_arch = "wasm32"))]
fn main() {
    native::main();
}

#[cfg(not(target_arch = "wasm32"))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::panic,
    reason = "a measurement, not loaded into anything"
)]
mod native {
    use core::hint::black_box;
    use core::num::NonZeroU32;
    use core::time::Duration;
    use std::time::Instant;

    use governor::clock::{Clock, FakeRelativeClock};
    use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
    use governor::nanos::Nanos;
    use governor::state::{InMemoryState, NotKeyed};
    use governor::{InsufficientCapacity, NotUntil, Quota as TheirQuota, RateLimiter};
    use tollgate_core::{Algorithm, Decision, Limiter, Quota, Ruling, Span, Timestamp};

    type Theirs = RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, NoOpMiddleware<Nanos>>;
    type TheirsWithState =
        RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, StateInformationMiddleware>;
    type Answer<T> = Result<Result<T, NotUntil<Nanos>>, InsufficientCapacity>;

    const LIMIT: u64 = 1000;
    const WINDOW: Span = Span::from_secs(1);
    const BURST: u32 = 100;
    const INTERVAL_NS: u64 = WINDOW.as_nanos() / LIMIT;
    const START_NS: u64 = 1_780_000_000_000_000_000;

    pub fn main() {
        let arguments: Vec<String> = std::env::args().collect();
        let [_, name, count, rest @ ..] = arguments.as_slice() else {
            panic!("usage: cost <algorithm> <decisions> [allow|deny|mixed]");
        };
        let count: u64 = count.parse().expect("a number of decisions");
        let step_ns = match rest.first().map_or("mixed", String::as_str) {
            "allow" => INTERVAL_NS,
            "deny" => 0,
            "mixed" => INTERVAL_NS / 3,
            other => panic!("no workload {other}"),
        };
        let begun = Instant::now();
        let admitted = match name.as_str() {
            "governor" => governor(count, step_ns),
            "governor-state" => governor_with_state(count, step_ns),
            "none" => nothing(count, step_ns),
            name => match name.strip_suffix("-lazy") {
                Some(name) => ours_lazily(limiter(name), count, step_ns),
                None => ours(limiter(name), count, step_ns),
            },
        };
        let per_decision = begun.elapsed().as_nanos() as f64 / count as f64;
        println!("{name} {count} {admitted} {per_decision:.2}");
    }

    fn limiter(name: &str) -> Limiter {
        let algorithm = Algorithm::parse(name).expect("an algorithm");
        let quota = Quota::new(LIMIT, WINDOW).expect("a quota");
        let quota = if algorithm.has_burst() { quota.with_burst(BURST.into()) } else { Ok(quota) };
        Limiter::new(algorithm, quota.expect("a burst")).expect("a limiter")
    }

    fn ours(limiter: Limiter, count: u64, step_ns: u64) -> u64 {
        let limiter = black_box(limiter);
        let one = black_box(1);
        let mut state = vec![0; limiter.state_len()];
        let mut now_ns = START_NS;
        let mut admitted = 0;
        for _ in 0..count {
            now_ns += step_ns;
            let decision = decide(&limiter, &mut state, Timestamp::from_nanos(now_ns), one);
            admitted += u64::from(decision.is_admitted());
        }
        admitted
    }

    /// For a caller that needs the verdict and one number only.
    fn ours_lazily(limiter: Limiter, count: u64, step_ns: u64) -> u64 {
        let limiter = black_box(limiter);
        let one = black_box(1);
        let mut state = vec![0; limiter.state_len()];
        let mut now_ns = START_NS;
        let mut admitted = 0;
        for _ in 0..count {
            now_ns += step_ns;
            let ruling = decide_lazily(&limiter, &mut state, Timestamp::from_nanos(now_ns), one);
            admitted += u64::from(ruling.is_admitted());
        }
        admitted
    }

    #[inline(never)]
    fn decide_lazily(limiter: &Limiter, state: &mut [u8], now: Timestamp, cost: u64) -> Ruling {
        limiter.admit(state, now, cost)
    }

    /// A call, as from a surface: nothing is known about the arguments and all of the answer is made.
    #[inline(never)]
    fn decide(limiter: &Limiter, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        limiter.check(state, now, cost)
    }

    /// The other limiter as most use it: it answers yes, or no and until when.
    fn governor(count: u64, step_ns: u64) -> u64 {
        let clock = FakeRelativeClock::default();
        let limiter = black_box(RateLimiter::direct_with_clock(their_quota(), clock.clone()));
        let one = black_box(NonZeroU32::MIN);
        let step = black_box(Duration::from_nanos(step_ns));
        let mut admitted = 0;
        for _ in 0..count {
            clock.advance(step);
            admitted += u64::from(matches!(their_answer(&limiter, one), Ok(Ok(()))));
        }
        admitted
    }

    #[inline(never)]
    fn their_answer(limiter: &Theirs, cost: NonZeroU32) -> Answer<()> {
        limiter.check_n(cost)
    }

    /// With the numbers that our decision carries: how much remains, or how long to wait.
    fn governor_with_state(count: u64, step_ns: u64) -> u64 {
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::direct_with_clock(their_quota(), clock.clone())
            .with_middleware::<StateInformationMiddleware>();
        let limiter = black_box(limiter);
        let one = black_box(NonZeroU32::MIN);
        let step = black_box(Duration::from_nanos(step_ns));
        let mut admitted = 0;
        for _ in 0..count {
            clock.advance(step);
            admitted += u64::from(their_numbers(&limiter, one, &clock).is_ok());
        }
        admitted
    }

    #[inline(never)]
    fn their_numbers(
        limiter: &TheirsWithState,
        cost: NonZeroU32,
        clock: &FakeRelativeClock,
    ) -> Result<u32, Option<Duration>> {
        match limiter.check_n(cost) {
            Ok(Ok(snapshot)) => Ok(snapshot.remaining_burst_capacity()),
            Ok(Err(until)) => Err(Some(until.wait_time_from(clock.now()))),
            Err(_) => Err(None),
        }
    }

    /// The loop and the other limiter's clock alone, to be taken off its figures.
    fn nothing(count: u64, step_ns: u64) -> u64 {
        let clock = FakeRelativeClock::default();
        let step = black_box(Duration::from_nanos(step_ns));
        for _ in 0..count {
            clock.advance(step);
        }
        0
    }

    fn their_quota() -> TheirQuota {
        let burst = NonZeroU32::new(BURST).expect("above 0");
        let period = Duration::from_nanos(INTERVAL_NS);
        TheirQuota::with_period(period).expect("above 0").allow_burst(burst)
    }
}
