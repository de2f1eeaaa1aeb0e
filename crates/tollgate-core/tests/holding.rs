//! Held units, debts and requests in flight, as an operator sees them.

use crate::support::arbitrary::{START, at};
use tollgate_core::{Algorithm, Charge, HOLD_AGE, Holding, Limiter, Quota, Span};

const HOUR: u64 = 3_600_000_000_000;
/// The middle of an hour.
const NOW: u64 = START - START % HOUR + HOUR / 2;

fn limiter(algorithm: Algorithm) -> Limiter {
    Limiter::new(algorithm, Quota::new(1_000, Span::from_nanos(HOUR)).unwrap()).unwrap()
}

fn owed(debt: u64) -> Holding {
    Holding { debt, ..Holding::default() }
}

#[test]
fn a_debt_is_what_was_used_above_the_limit() {
    for algorithm in [
        Algorithm::Gcra,
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::LeakyQueue,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingBuckets { buckets: 4, weighted: false },
        Algorithm::SlidingBuckets { buckets: 4, weighted: true },
    ] {
        let limiter = limiter(algorithm);
        let mut state = vec![0; limiter.state_len()];
        assert_eq!(limiter.holding(&state, at(NOW)), owed(0), "{algorithm:?}");
        // Within the limit, at it, above it, and at the cap of two limits.
        for (units, debt) in [(900, 0), (100, 0), (300, 300), (5_000, 1_000)] {
            limiter.debit(&mut state, units, at(NOW));
            assert_eq!(limiter.holding(&state, at(NOW)), owed(debt), "{algorithm:?} after {units}");
            assert!(debt == 0 || limiter.peek(&state, at(NOW), 0).remaining == 0);
        }
        let idle_at = limiter.idle_at(&state);
        assert_eq!(limiter.holding(&state, idle_at), owed(0), "{algorithm:?}");
        assert_eq!(limiter.holding(&state[1..], at(NOW)), owed(0), "{algorithm:?}");
    }
    let log = Limiter::new(Algorithm::SlidingLog, Quota::new(10, Span::from_nanos(HOUR)).unwrap());
    let log = log.unwrap();
    let mut state = vec![0; log.state_len()];
    log.debit(&mut state, 50, at(NOW));
    assert_eq!(log.holding(&state, at(NOW)), owed(0), "it has room for its limit alone");
}

/// Guards: a debt of which a part has come back, rounded in the client's favour.
#[test]
fn a_debt_comes_back_with_time_and_is_rounded_up() {
    let limiter = limiter(Algorithm::Gcra);
    let mut state = vec![0; limiter.state_len()];
    limiter.debit(&mut state, 1_010, at(NOW));
    let interval = HOUR / 1_000;
    for (later, debt) in [(0, 10), (1, 10), (interval - 1, 10), (interval, 9), (10 * interval, 0)] {
        assert_eq!(limiter.holding(&state, at(NOW + later)).debt, debt, "{later}");
    }
}

#[test]
fn held_units_are_those_that_are_not_settled_and_have_not_expired() {
    for algorithm in [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let limiter = limiter(algorithm).with_holds().unwrap();
        let mut state = vec![0; limiter.state_len()];
        let held = |state: &[u8], now| limiter.holding(state, at(now)).held;
        assert_eq!(held(&state, NOW), Some(0));
        for _ in 0..3 {
            assert!(limiter.check(&mut state, at(NOW), 100).is_admitted());
        }
        assert_eq!(held(&state, NOW), Some(300), "{algorithm:?}");
        let charge = Charge { at: at(NOW), cost: 100, delay: Span::ZERO };
        limiter.settle(&mut state, charge, 40, at(NOW));
        assert_eq!(held(&state, NOW), Some(200), "{algorithm:?}");
        limiter.settle(&mut state, charge, 1_900, at(NOW));
        let holding = limiter.holding(&state, at(NOW));
        // 100 are held, 40 and 1,900 were used: 1,040 above the limit of 1,000, capped at 1,000.
        assert_eq!((holding.held, holding.debt), (Some(100), 1_000), "{algorithm:?}");
        let expired = NOW + 2 * HOLD_AGE.as_nanos();
        assert_eq!(held(&state, expired), Some(0), "{algorithm:?}");
    }
}

#[test]
fn places_are_counted_while_they_are_confirmed() {
    let limiter = Limiter::new_concurrency(4, Span::from_secs(60)).unwrap();
    let mut state = vec![0; limiter.state_len()];
    let in_flight = |state: &[u8], now| limiter.holding(state, at(now)).in_flight;
    assert_eq!(in_flight(&state, NOW), Some(0));
    for _ in 0..3 {
        assert!(limiter.check(&mut state, at(NOW), 1).is_admitted());
    }
    assert_eq!(in_flight(&state, NOW), Some(3));
    let charge = Charge { at: at(NOW), cost: 1, delay: Span::ZERO };
    limiter.refund(&mut state, charge, at(NOW));
    assert_eq!(in_flight(&state, NOW), Some(2));
    let expired = NOW + Span::from_secs(60).as_nanos();
    assert_eq!(in_flight(&state, expired), Some(0));
}
