//! States that no request left by this clock: the boundary between them and a debt, at the last
//! nanosecond.
//!
//! Invariant: the same rule for all eight algorithms. Up to two bursts and the skew beyond now a
//! state is a debt; beyond that it is foreign, and blocks no request. Only a charge writes, so one
//! that is never charged is a debt once the clock has come near it.

use crate::support::arbitrary::*;
use tollgate_core::{ALLOWED_SKEW, Algorithm, Limiter, Quota, Span};

const SECOND: u64 = 1_000_000_000;
const SKEW: u64 = ALLOWED_SKEW.as_nanos();
const WINDOW: u64 = 60 * SECOND;
/// The time in which both units grow back, where there is a rate.
const BURST: u64 = WINDOW;
/// 30 s after a window and a part of one begin, far enough from the epoch for any step back.
const NOW: u64 = 1_000_000 * WINDOW + 30 * SECOND;

/// 2 per minute, both at once.
fn limiter(algorithm: Algorithm) -> Limiter {
    let quota = Quota::new(2, Span::from_nanos(WINDOW)).expect("a quota");
    Limiter::new(algorithm, quota).expect("a limiter")
}

/// A key with both units used, whose state's time is `until`: for a rate all is paid off then, for
/// the others it is when the window, its part or the entry begins.
fn reaching(algorithm: Algorithm, until: u64) -> Key {
    let mut key = Key::new(limiter(algorithm));
    let charged_at = if algorithm.has_burst() { until - BURST } else { until };
    assert!(key.check(charged_at, 2).is_admitted());
    key
}

#[test]
fn a_debt_ends_where_the_foreign_begins() {
    for algorithm in Algorithm::ALL.map(|algorithm| algorithm.with_buckets(6)) {
        let farthest = if algorithm.has_burst() { 2 * BURST + SKEW } else { SKEW };
        let key = reaching(algorithm, NOW + farthest);
        assert!(!key.peek(NOW, 1).is_admitted(), "{algorithm:?}: a debt is not believed");
        assert!(key.peek(NOW - 1, 1).is_admitted(), "{algorithm:?}: a foreign state denies");
        assert_eq!(key.peek(NOW - 1, 1).remaining, 0, "{algorithm:?}: it is forgotten");
        assert_eq!(key.peek(NOW - 1, 0).remaining, 2, "{algorithm:?}");
    }
}

/// Costs that never fit, costs of 0 and peeks write nothing, whatever the state is and however
/// often they come; the first request that fits makes the state one of this clock.
#[test]
fn only_a_charge_brings_a_foreign_state_back() {
    for algorithm in Algorithm::ALL.map(|algorithm| algorithm.with_buckets(6)) {
        let until = NOW + 390 * SECOND;
        let key = reaching(algorithm, until);
        let mut untouched = key.clone();
        for now in [NOW, NOW + SECOND, NOW - SECOND, NOW - 1000 * SECOND, NOW] {
            for cost in [0, 3, u64::MAX] {
                let decision = untouched.check(now, cost);
                assert_eq!(decision.is_admitted(), cost == 0, "{algorithm:?}");
                assert_eq!(decision.remaining, 2, "{algorithm:?}");
            }
        }
        assert_eq!(untouched.state, key.state, "{algorithm:?}");
        // Uncharged, it stays what it always was to the clock that comes near: a debt, for its own
        // time.
        assert!(!untouched.peek(until - 1, 2).is_admitted(), "{algorithm:?}");
        assert!(untouched.peek(until + 2 * WINDOW, 2).is_admitted(), "{algorithm:?}");
        // Charged once it is this clock's, and whole again long before the other's time.
        let mut charged = key;
        assert!(charged.check(NOW, 1).is_admitted(), "{algorithm:?}");
        assert!(!charged.check(NOW, 1).is_admitted(), "{algorithm:?}: the old debt is forgotten");
        assert!(charged.peek(NOW + 2 * WINDOW, 2).is_admitted(), "{algorithm:?}");
        assert!(charged.peek(until - 1, 2).is_admitted(), "{algorithm:?}");
    }
}

/// Found by chance: 180.39 s at time 0, under costs that write nothing, and its whole burst is
/// still denied at 180 s, the first time it is requested. It is allowed at the time that the denial
/// names.
#[test]
fn a_state_that_nobody_charged_is_a_debt_when_its_time_comes() {
    let mut key = Key::new(limiter(Algorithm::Gcra));
    key.state = vec![0, 0, 0, 0, 42, 0, 0, 0];
    let tat = 42_u64 << 32;
    for cost in [3, 0] {
        assert_eq!(key.check(0, cost).is_admitted(), cost == 0);
    }
    assert_eq!(key.state, [0, 0, 0, 0, 42, 0, 0, 0]);
    assert!(key.peek(0, 2).is_admitted(), "foreign at 0: beyond two bursts and the skew");
    let denied = key.peek(180 * SECOND, 2);
    assert_eq!(denied.retry_after.map(Span::as_nanos), Some(tat - 180 * SECOND));
    assert!(key.peek(tat, 2).is_admitted());
}

/// A count that no request left is used up to twice the limit, and ends with its windows.
#[test]
fn a_foreign_count_is_gone_with_its_windows() {
    for (algorithm, counts) in [(Algorithm::FixedWindow, 1..2), (Algorithm::SlidingWindow, 1..3)] {
        let mut key = Key::new(limiter(algorithm));
        assert!(key.check(NOW, 1).is_admitted());
        for count in counts {
            key.state[count * 8..count * 8 + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        }
        let wait = key.peek(NOW, 2).retry_after.expect("it fits").as_nanos();
        assert!(wait <= 2 * WINDOW, "{algorithm:?}: {wait}");
        assert!(!key.peek(NOW + wait - 1, 2).is_admitted(), "{algorithm:?}");
        assert!(key.peek(NOW + wait, 2).is_admitted(), "{algorithm:?}");
    }
}
