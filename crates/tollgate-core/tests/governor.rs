//! `governor`, the famous GCRA of the Rust world, as a differential oracle for ours.
//!
//! The same quota, the same clock, the same requests: the same verdicts, remaining units and waits.
//! Where its numbers differ legitimately:
//! - its cell clock starts when the limiter is made and never goes back (an earlier time counts as
//!   the start), so traces here run forward;
//! - T is given to it, because its own `Quota` rounds it differently (down, from a `Duration`);
//! - a cost above the burst is an error there (`InsufficientCapacity`), a denial without a wait
//!   here;
//! - it has no cost 0;
//! - `remaining_burst_capacity` counts a unit that has grown back only in part as missing, as ours
//!   does.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::support::arbitrary::*;
use governor::clock::FakeRelativeClock;
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota as TheirQuota, RateLimiter};
use proptest::prelude::*;
use tollgate_core::{Algorithm, Verdict};

type Theirs = RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, StateInformationMiddleware>;

fn theirs(interval_ns: u64, burst: u64, clock: &FakeRelativeClock) -> Theirs {
    let burst = u32::try_from(burst).ok().and_then(NonZeroU32::new).expect("a small burst");
    let quota = TheirQuota::with_period(Duration::from_nanos(interval_ns)).expect("a period");
    RateLimiter::direct_with_clock(quota.allow_burst(burst), clock.clone())
        .with_middleware::<StateInformationMiddleware>()
}

/// The other limiter's result: allowed with this many remaining, or how long to wait, if a wait
/// helps.
fn ask(theirs: &Theirs, cost: u64, clock: &FakeRelativeClock) -> Result<u64, Option<u64>> {
    use governor::clock::Clock;
    let cost = u32::try_from(cost).ok().and_then(NonZeroU32::new).expect("a cost above 0");
    match theirs.check_n(cost) {
        Err(_) => Err(None),
        Ok(Err(not_until)) => {
            let wait = not_until.wait_time_from(clock.now());
            Err(Some(u64::try_from(wait.as_nanos()).expect("short")))
        }
        Ok(Ok(snapshot)) => Ok(u64::from(snapshot.remaining_burst_capacity())),
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn gcra_agrees_with_governor(numbers in numbers(), steps in steps(60)) {
        let limiter = build(Algorithm::Gcra, numbers);
        let clock = FakeRelativeClock::default();
        let theirs = theirs(emission_interval_ns(limiter.quota()), limiter.capacity(), &clock);
        let steps: Vec<Step> = steps.into_iter().filter(|step| step.cost > 0).collect();
        let mut last = 0;
        run(&mut Key::new(limiter), 0, &steps, |_, now, cost, decision| {
            clock.advance(Duration::from_nanos(now - last));
            last = now;
            let ours = match decision.verdict {
                Verdict::Deny => Err(decision.retry_after.map(tollgate_core::Span::as_nanos)),
                _ => Ok(decision.remaining),
            };
            assert_eq!(ours, ask(&theirs, cost, &clock), "cost {cost} at {now} by {limiter:?}");
        });
    }
}
