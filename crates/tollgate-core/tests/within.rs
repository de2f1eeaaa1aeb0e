//! Limits of single requests on one shared count: a request is decided as by a limiter of its own
//! limit that sees the same counts, and no mixture allows more than the largest limit.

use crate::support::arbitrary::*;
use proptest::prelude::*;
use tollgate_core::{Algorithm, Decision, Limiter, Quota, Span};

const CASES: u32 = if cfg!(debug_assertions) { 400 } else { 4_000 };

const COUNTERS: [Algorithm; 4] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingBuckets { buckets: 4, weighted: false },
    Algorithm::SlidingLog,
];

fn counter() -> impl Strategy<Value = Algorithm> {
    (prop::sample::select(&COUNTERS), 2..12_u16, any::<bool>()).prop_map(
        |(algorithm, buckets, weighted)| {
            let algorithm = algorithm.with_buckets(buckets);
            if weighted { algorithm.weighted() } else { algorithm }
        },
    )
}

/// Decides `cost` with `limit`, and checks everything that must hold for that decision.
fn decide(key: &mut Key, now: u64, cost: u64, limit: u64) -> Decision {
    let max = key.limiter;
    let allowed = limit.min(max.limit());
    let of_request = max.within(limit).expect("a counter");
    let used = max.limit() - max.peek(&key.state, at(now), 0).remaining;
    let before = key.state.clone();
    let looked = of_request.peek(&key.state, at(now), cost);
    let decision = of_request.check(&mut key.state, at(now), cost);
    let about = format!("{cost} of {limit} by {max:?} at {now}, {used} used: {decision:?}");
    assert_eq!(decision, looked, "{about}");
    assert_eq!(decision.limit, allowed, "{about}");
    assert_eq!(decision.is_admitted(), cost == 0 || used + cost <= allowed, "{about}");
    let now_used = if decision.is_admitted() { used + cost } else { used };
    assert_eq!(decision.remaining, allowed.saturating_sub(now_used), "{about}");
    if !decision.is_admitted() {
        assert_eq!(key.state, before, "{about}");
        match decision.retry_after {
            None => assert!(cost > allowed, "{about}"),
            Some(wait) => {
                let then = |ns: u64| of_request.peek(&key.state, at(ns), cost).is_admitted();
                assert!(then(now + wait.as_nanos()), "{about}");
                assert!(!then(now + wait.as_nanos() - 1), "{about}");
            }
        }
    }
    same_as_its_own(&max, &before, now, cost, allowed, &decision, &about);
    decision
}

/// Compares with a limiter of that limit, where its states have the same bytes, and the counts are
/// not more than any of its requests can have left.
fn same_as_its_own(
    max: &Limiter,
    state: &[u8],
    now: u64,
    cost: u64,
    allowed: u64,
    decision: &Decision,
    about: &str,
) {
    if allowed == 0 || max.algorithm() == Algorithm::SlidingLog {
        return;
    }
    let quota = Quota::new(allowed, max.window()).expect("a quota");
    let quota = if max.quota().is_strict() { quota.strict() } else { quota };
    let own = Limiter::new(max.algorithm(), quota).expect("a limiter");
    let is_possible = match max.algorithm() {
        Algorithm::SlidingWindow => state
            .chunks(8)
            .skip(1)
            .all(|count| u64::from_le_bytes(count.try_into().expect("8 bytes")) <= 2 * allowed),
        _ => true,
    };
    if is_possible {
        assert_eq!(own.peek(state, at(now), cost), *decision, "{about}");
    }
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn a_request_is_decided_by_its_own_limit(
        algorithm in counter(), numbers in numbers(), start in start(),
        steps in prop::collection::vec((pause(), cost(), 0..16_u64), 1..60),
    ) {
        let limiter = build(algorithm, numbers);
        let window_ns = limiter.window().as_nanos();
        let (mut key, mut now, mut retry_after) = (Key::new(limiter), start, None);
        let mut admitted = Vec::new();
        for (pause, cost, limit) in steps {
            now = pause.after(now, window_ns, retry_after);
            let decision = decide(&mut key, now, cost, limit);
            retry_after = decision.retry_after;
            if decision.is_admitted() {
                admitted.push(AdmittedRequest { at: now, cost, decision });
            }
        }
        for a in &admitted {
            let units = units_within(&admitted, a.at, window_ns);
            prop_assert!(units <= limiter.max_in_window(), "{units} from {} by {limiter:?}", a.at);
        }
    }

    /// Whatever bytes are stored: a request that fits its own limit is denied for at most two
    /// windows and the skew.
    #[test]
    fn no_bytes_deny_for_long(
        algorithm in counter(), numbers in numbers(), bytes in prop::collection::vec(any::<u8>(), 96),
        limit in 1..16_u64, cost in 1..16_u64,
    ) {
        let limiter = build(algorithm, numbers);
        let of_request = limiter.within(limit).expect("a counter");
        let mut state: Vec<u8> =
            bytes.iter().copied().cycle().take(limiter.state_len()).collect();
        let cost = cost.min(of_request.capacity());
        let decision = of_request.check(&mut state, at(START), cost);
        prop_assert!(decision.is_admitted() || decision.retry_after.is_some());
        if let Some(wait) = decision.retry_after {
            prop_assert!(wait.as_nanos() <= longest_wait_ns(&limiter), "{wait:?} by {limiter:?}");
            prop_assert!(of_request.check(&mut state, at(START + wait.as_nanos()), cost).is_admitted());
        }
    }
}

/// All traces of up to four events over a small grid of times, costs and limits.
#[test]
fn all_small_mixtures_agree() {
    const WINDOW: u64 = 1_000_001;
    for algorithm in COUNTERS {
        for algorithm in [algorithm, algorithm.weighted()] {
            let quota = Quota::new(3, Span::from_nanos(WINDOW)).expect("a quota");
            let limiter = Limiter::new(algorithm, quota).expect("a limiter");
            explore(&Key::new(limiter), 5 * WINDOW - 1, &[], 4);
        }
    }
}

fn explore(key: &Key, now: u64, admitted: &[AdmittedRequest], depth: u32) {
    let (window_ns, most) = (key.limiter.window().as_nanos(), key.limiter.max_in_window());
    for a in admitted {
        assert!(units_within(admitted, a.at, window_ns) <= most, "{admitted:?}");
    }
    if depth == 0 {
        return;
    }
    for delta in [0, window_ns / 3, window_ns - 1] {
        for (cost, limit) in [(1, 0), (1, 1), (1, 2), (1, 4), (2, 2), (2, 3)] {
            let (mut key, now) = (key.clone(), now + delta);
            let decision = decide(&mut key, now, cost, limit);
            let mut admitted = admitted.to_vec();
            if decision.is_admitted() {
                admitted.push(AdmittedRequest { at: now, cost, decision });
            }
            explore(&key, now, &admitted, depth - 1);
        }
    }
}

/// A foreign count does not block a request, and stays in the count as by the largest limit.
#[test]
fn a_foreign_state_blocks_no_request_and_is_kept_by_the_largest_limit() {
    const HOUR: u64 = 3_600_000_000_000;
    for algorithm in COUNTERS {
        let quota = Quota::new(10, Span::from_nanos(60_000_000_000)).expect("a quota");
        let mut key = Key::new(Limiter::new(algorithm, quota).expect("a limiter"));
        assert!(key.check(START + HOUR, 10).is_admitted());
        let of_request = key.limiter.within(3).expect("a counter");
        let first = of_request.check(&mut key.state, at(START), 1);
        assert!(first.is_admitted() && first.remaining == 0, "{algorithm:?}: {first:?}");
        let of_max = key.peek(START, 0);
        assert_eq!(of_max.remaining, 0, "{algorithm:?}: 9 of the foreign ones, and this one");
        assert!(!of_request.check(&mut key.state, at(START), 1).is_admitted());
    }
}

#[test]
fn a_limit_changes_no_parameter_but_the_capacity() {
    for algorithm in Algorithm::ALL {
        let quota = Quota::new(10, Span::from_secs(60)).expect("a quota");
        let limiter = Limiter::new(algorithm, quota).expect("a limiter");
        let within = limiter.within(4);
        assert_eq!(within.is_none(), algorithm.has_burst(), "{algorithm:?}");
        let Some(within) = within else { continue };
        assert_eq!((within.limit(), within.capacity()), (10, 4));
        assert_eq!(within.state_len(), limiter.state_len());
        assert_eq!(within.max_in_window(), limiter.max_in_window());
        assert_eq!(within.within(99), Some(limiter), "never more than the quota's limit");
        let penalty = tollgate_core::Penalty::new(&[Span::from_secs(1)]).expect("a penalty");
        assert_eq!(limiter.with_penalty(penalty).and_then(|limiter| limiter.within(4)), None);
    }
}
