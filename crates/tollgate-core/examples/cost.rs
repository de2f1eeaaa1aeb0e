//! The cost of one decision: N decisions of one algorithm, or of `governor`, for `cargo xtask
//! bench`.
//!
//! ```text
//! cost <what> <decisions> [allow|deny|mixed]  # prints: what decisions admitted ns-per-decision
//! ```
//!
//! The subject is an algorithm (`gcra`, `sliding-buckets/360`: with this many parts), a variant
//! that returns only a verdict and a wait (`gcra-lazy`), `governor`, `governor-state`, or the empty
//! loops of both, `loop` and `governor-loop`, whose cost is to be subtracted.
//!
//! Run it under `valgrind --tool=callgrind` with two different N and divide the difference of the
//! instruction counts by the difference of N: start-up and the table of requests cancel. The clock
//! is an argument of the loop, never read: the one reading of the real clock is around it.
//!
//! - `allow`: time passes one emission interval per request, everything is allowed;
//! - `deny`: time does not move, after the first requests everything is denied;
//! - `mixed` (default): three requests in one emission interval, so that about a third is allowed.

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
    use tollgate_core::{Admission, Algorithm, Decision, Limiter, Quota, Span, Timestamp};

    type Theirs = RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, NoOpMiddleware<Nanos>>;
    type TheirsWithState =
        RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, StateInformationMiddleware>;
    type TheirDecision = Result<Result<(), NotUntil<Nanos>>, InsufficientCapacity>;

    const LIMIT: u64 = 1000;
    const WINDOW: Span = Span::from_secs(1);
    const BURST: u32 = 100;
    const INTERVAL_NS: u64 = WINDOW.as_nanos() / LIMIT;
    const START_NS: u64 = 1_780_000_000_000_000_000;

    pub fn main() {
        let arguments: Vec<String> = std::env::args().collect();
        let [_, name, count, rest @ ..] = arguments.as_slice() else {
            panic!("usage: cost <what> <decisions> [allow|deny|mixed]");
        };
        let count: u64 = count.parse().expect("a number of decisions");
        let step_ns = match rest.first().map_or("mixed", String::as_str) {
            "allow" => INTERVAL_NS,
            "deny" => 0,
            "mixed" => INTERVAL_NS / 3,
            other => panic!("no workload {other}"),
        };
        #[expect(clippy::disallowed_methods, reason = "what is measured is the time")]
        let begun = Instant::now();
        let admitted = match name.as_str() {
            "governor" => governor(count, step_ns),
            "governor-state" => governor_with_state(count, step_ns),
            "governor-loop" => governor_loop(count, step_ns),
            "loop" => nothing(count, step_ns),
            name => match name.strip_suffix("-lazy") {
                Some(name) => ours(limiter(name), count, step_ns, decide_lazily),
                None => ours(limiter(name), count, step_ns, decide),
            },
        };
        let per_decision = begun.elapsed().as_nanos() as f64 / count as f64;
        println!("{name} {count} {admitted} {per_decision:.2}");
    }

    fn limiter(name: &str) -> Limiter {
        let (name, parts) = name.split_once('/').unwrap_or((name, "60"));
        let parts = parts.parse().expect("a number of parts");
        let algorithm = Algorithm::parse(name).expect("an algorithm").with_buckets(parts);
        let quota = Quota::new(LIMIT, WINDOW).expect("a quota");
        let quota = if algorithm.has_burst() { quota.with_burst(BURST.into()) } else { Ok(quota) };
        Limiter::new(algorithm, quota.expect("a burst")).expect("a limiter")
    }

    /// A decision, and whether it allows.
    trait Answer {
        fn is_admitted(&self) -> bool;
    }

    impl Answer for Decision {
        fn is_admitted(&self) -> bool {
            self.is_admitted()
        }
    }

    impl Answer for Admission {
        fn is_admitted(&self) -> bool {
            (*self).is_admitted()
        }
    }

    /// The decision of governor: outermost an error for a cost that never fits, then one for a
    /// denial.
    impl Answer for TheirDecision {
        fn is_admitted(&self) -> bool {
            matches!(self, Ok(Ok(())))
        }
    }

    impl Answer for Result<u32, Option<Duration>> {
        fn is_admitted(&self) -> bool {
            self.is_ok()
        }
    }

    fn ours<A: Answer>(
        limiter: Limiter,
        count: u64,
        step_ns: u64,
        decide: impl Fn(&Limiter, &mut [u8], Timestamp, u64) -> A,
    ) -> u64 {
        let limiter = black_box(limiter);
        let one = black_box(1);
        let mut state = vec![0; limiter.state_len()];
        let mut now_ns = START_NS;
        let mut admitted = 0;
        for _ in 0..count {
            now_ns += step_ns;
            let answer = decide(&limiter, &mut state, Timestamp::from_nanos(now_ns), one);
            admitted += u64::from(answer.is_admitted());
        }
        admitted
    }

    /// A call, as from a surface: nothing is known about the arguments and the whole decision is
    /// made.
    #[inline(never)]
    fn decide(limiter: &Limiter, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        limiter.check(state, now, cost)
    }

    /// For a caller that needs only the verdict and one number.
    #[inline(never)]
    fn decide_lazily(limiter: &Limiter, state: &mut [u8], now: Timestamp, cost: u64) -> Admission {
        limiter.admit(state, now, cost)
    }

    /// The loop and a call that decides nothing, which the compiler does not know.
    fn nothing(count: u64, step_ns: u64) -> u64 {
        let admit: fn(&Limiter, &mut [u8], Timestamp, u64) -> Admission =
            |_, _, _, _| Admission::Admit;
        ours(limiter("gcra"), count, step_ns, black_box(admit))
    }

    /// The other limiter in its common use: it returns yes, or no and until when.
    fn governor(count: u64, step_ns: u64) -> u64 {
        let limiter = |clock| RateLimiter::direct_with_clock(their_quota(), clock);
        theirs(limiter, count, step_ns, |limiter, cost, _| their_answer(limiter, cost))
    }

    #[inline(never)]
    fn their_answer(limiter: &Theirs, cost: NonZeroU32) -> TheirDecision {
        limiter.check_n(cost)
    }

    /// With the numbers that our decision contains: how much remains, or how long to wait.
    fn governor_with_state(count: u64, step_ns: u64) -> u64 {
        let limiter = |clock| {
            RateLimiter::direct_with_clock(their_quota(), clock)
                .with_middleware::<StateInformationMiddleware>()
        };
        theirs(limiter, count, step_ns, their_numbers)
    }

    /// The loop, with the steps of its clock, and a call that decides nothing.
    fn governor_loop(count: u64, step_ns: u64) -> u64 {
        let limiter = |clock| RateLimiter::direct_with_clock(their_quota(), clock);
        let admit: fn(&Theirs, NonZeroU32) -> Admission = |_, _| Admission::Admit;
        let admit = black_box(admit);
        theirs(limiter, count, step_ns, |limiter, cost, _| admit(limiter, cost))
    }

    fn theirs<L, A: Answer>(
        limiter: impl FnOnce(FakeRelativeClock) -> L,
        count: u64,
        step_ns: u64,
        decide: impl Fn(&L, NonZeroU32, &FakeRelativeClock) -> A,
    ) -> u64 {
        let clock = FakeRelativeClock::default();
        let limiter = black_box(limiter(clock.clone()));
        let one = black_box(NonZeroU32::MIN);
        let step = black_box(Duration::from_nanos(step_ns));
        let mut admitted = 0;
        for _ in 0..count {
            clock.advance(step);
            admitted += u64::from(decide(&limiter, one, &clock).is_admitted());
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

    fn their_quota() -> TheirQuota {
        let burst = NonZeroU32::new(BURST).expect("above 0");
        let period = Duration::from_nanos(INTERVAL_NS);
        TheirQuota::with_period(period).expect("above 0").allow_burst(burst)
    }
}
