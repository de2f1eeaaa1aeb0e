//! Laws that hold for every algorithm on random traces, in debug and in release (`--profile
//! release-test`).
//!
//! The clock faults, the extremes and the corrupt states are in `faults.rs`.

use crate::support::arbitrary::*;
use proptest::prelude::*;
use tollgate_core::{Admission, Algorithm, Charge, FULLY_USED, Limiter, Span, Verdict};

const CASES: u32 = if cfg!(debug_assertions) { 400 } else { 4_000 };

proptest! {
    #![proptest_config(config(CASES))]

    /// At one instant never more than the capacity is allowed.
    #[test]
    fn never_above_the_burst_at_one_instant(limiter in limiter(), start in start(), steps in steps(40)) {
        let admitted = run(&mut Key::new(limiter), start, &steps, |_, _, _, _| {});
        for a in &admitted {
            let units = units_within(&admitted, a.at, 1);
            prop_assert!(units <= limiter.capacity(), "{units} at {} by {limiter:?}", a.at);
        }
    }

    /// No half-open window as long as the quota's allows more than the documented bound.
    #[test]
    fn never_above_the_bound_in_any_window(limiter in limiter(), start in start(), steps in steps(60)) {
        let admitted = run(&mut Key::new(limiter), start, &steps, |_, _, _, _| {});
        let window_ns = limiter.window().as_nanos();
        for a in &admitted {
            let units = units_within(&admitted, a.at, window_ns);
            prop_assert!(units <= limiter.max_in_window(), "{units} from {} by {limiter:?}", a.at);
        }
    }

    /// GCRA and its kin keep `burst + ceil(w / T) - 1` for every length w, not only for the window,
    /// and a strict one keeps `limit` in the window; the departures of the queue are never closer
    /// than T.
    #[test]
    fn the_bound_of_a_rate_holds_for_every_length(
        algorithm in algorithm().prop_filter("a rate", |a| a.has_burst()),
        numbers in numbers(), start in start(), steps in steps(60),
    ) {
        let limiter = build(algorithm, numbers);
        let interval_ns = emission_interval_ns(limiter.quota());
        let admitted = run(&mut Key::new(limiter), start, &steps, |_, _, _, _| {});
        for (i, a) in admitted.iter().enumerate() {
            let mut units = 0;
            for b in &admitted[i..] {
                units += b.cost;
                let span_ns = b.at - a.at + 1; // half-open: b is the last inside
                let bound = limiter.capacity() + span_ns.div_ceil(interval_ns) - 1;
                prop_assert!(units <= bound, "{units} in {span_ns} ns by {limiter:?}");
            }
        }
        if limiter.quota().is_strict() {
            prop_assert!(limiter.max_in_window() <= limiter.limit());
        }
        if algorithm == Algorithm::LeakyQueue {
            let charged = admitted.iter().filter(|a| a.cost > 0);
            let departures: Vec<(u64, u64)> =
                charged.map(|a| (a.at + wait_ns(&a.decision.verdict), a.cost)).collect();
            for pair in departures.windows(2) {
                prop_assert!(pair[1].0 - pair[0].0 >= interval_ns * pair[0].1, "{pair:?}");
            }
        }
    }

    /// Whatever is given back, and whenever: departures of the queue are never closer than T for
    /// every unit of the one before. A request that is given back after its departure has departed.
    #[test]
    fn departures_keep_their_distance_whatever_is_given_back(
        numbers in numbers(), start in start(),
        steps in prop::collection::vec((pause(), 1..4_u64, prop::option::weighted(0.4, any::<prop::sample::Index>())), 1..60),
    ) {
        let limiter = build(Algorithm::LeakyQueue, numbers);
        let interval_ns = emission_interval_ns(limiter.quota());
        let mut key = Key::new(limiter);
        let (mut now, mut retry_after) = (start, None);
        let mut queued: Vec<AdmittedRequest> = Vec::new();
        let mut departures: Vec<(u64, u64)> = Vec::new();
        let departs_at = |a: &AdmittedRequest| a.at + wait_ns(&a.decision.verdict);
        for (pause, cost, refund) in steps {
            now = pause.after(now, limiter.window().as_nanos(), retry_after);
            let decision = key.check(now, cost);
            retry_after = decision.retry_after;
            if decision.is_admitted() {
                queued.push(AdmittedRequest { at: now, cost, decision });
            }
            if let (Some(index), false) = (refund, queued.is_empty()) {
                let a = queued.remove(index.index(queued.len()));
                key.refund(&a.decision, a.at, a.cost, now);
                if departs_at(&a) < now {
                    departures.push((departs_at(&a), a.cost));
                }
            }
        }
        departures.extend(queued.iter().map(|a| (departs_at(a), a.cost)));
        departures.sort_unstable();
        for pair in departures.windows(2) {
            let [(before, units), (after, _)] = [pair[0], pair[1]];
            prop_assert!(after - before >= interval_ns * units, "{pair:?} by {limiter:?}");
        }
    }

    /// `soonest` is never later than the time at which costs have been allowed one after the other,
    /// each as soon as it can; GCRA and its kin return exactly that time, all others exactly when
    /// one unit fits that does not fit now.
    #[test]
    fn soonest_is_never_late(limiter in limiter(), start in start(), steps in steps(20), costs in prop::collection::vec(1_u64..=3, 1..20)) {
        let mut key = Key::new(limiter);
        let mut last = start;
        run(&mut key, start, &steps, |_, now, _, _| last = now);
        let mut state = key.state.clone();
        let denied = limiter.peek(&state, at(last), limiter.capacity());
        let first = if denied.is_admitted() { limiter.peek(&state, at(last), 0) } else { denied };
        let (mut now, mut units) = (last, 0);
        for cost in costs.iter().map(|cost| (*cost).min(limiter.capacity())) {
            while let Some(wait) = limiter.check(&mut state, at(now), cost).retry_after {
                now += wait.as_nanos();
            }
            units += cost;
            let soonest = limiter.soonest(&first, units).as_nanos();
            prop_assert!(soonest <= now - last, "{units} units: {soonest} > {} by {limiter:?}", now - last);
            let is_exact = limiter.algorithm().has_burst() || units == 1;
            if is_exact && limiter.algorithm() != Algorithm::LeakyQueue {
                prop_assert_eq!(soonest, now - last, "{} units by {:?}", units, limiter);
            }
        }
    }

    /// A denial names the first nanosecond at which the same cost is allowed; none if it never is.
    #[test]
    fn denied_until_retry_after_and_allowed_at_it(limiter in limiter(), start in start(), steps in steps(40)) {
        run(&mut Key::new(limiter), start, &steps, |key, now, cost, decision| {
            match (decision.verdict, decision.retry_after) {
                (Verdict::Deny, Some(wait)) => {
                    let wait_ns = wait.as_nanos();
                    assert!(wait_ns > 0);
                    assert!(!key.peek(now + wait_ns - 1, cost).is_admitted(), "early: {limiter:?}");
                    assert!(key.peek(now + wait_ns, cost).is_admitted(), "late: {limiter:?}");
                    assert!(key.peek(now + wait_ns * 2, cost).is_admitted(), "much later");
                }
                (Verdict::Deny, None) => assert!(cost > limiter.capacity()),
                (_, retry_after) => {
                    assert_eq!(retry_after, None);
                    assert!(cost <= limiter.capacity());
                }
            }
        });
    }

    /// A denial, a peek and a cost of 0 change no byte; a peek returns the decision of the check.
    #[test]
    fn what_is_not_charged_changes_no_byte(limiter in limiter(), start in start(), steps in steps(40)) {
        let mut before = vec![0; limiter.state_len()];
        run(&mut Key::new(limiter), start, &steps, |key, now, cost, decision| {
            let earlier = Key { limiter, state: before.clone() };
            assert_eq!(earlier.peek(now, cost), *decision);
            assert_eq!(earlier.state, before);
            if cost == 0 {
                assert_eq!(decision.verdict, Verdict::Allow);
            }
            if cost == 0 || decision.verdict == Verdict::Deny {
                assert_eq!(key.state, before);
            }
            before.clone_from(&key.state);
        });
    }

    /// The short decision is the whole one, cut short, and leaves the same bytes.
    #[test]
    fn a_ruling_is_a_decision_in_short(limiter in limiter(), start in start(), steps in steps(40)) {
        let mut lazy = Key::new(limiter);
        run(&mut Key::new(limiter), start, &steps, |key, now, cost, decision| {
            let whole = Admission::from(decision);
            assert_eq!(limiter.admit(&mut lazy.state, at(now), cost), whole, "{limiter:?}");
            assert_eq!(lazy.state, key.state);
            assert_eq!((whole.verdict(), whole.retry_after()), (decision.verdict, decision.retry_after));
            assert_eq!(whole.is_admitted(), decision.is_admitted());
        });
    }

    /// `remaining` is allowed and one more is not, after every decision.
    #[test]
    fn remaining_is_exact(limiter in limiter(), start in start(), steps in steps(40)) {
        run(&mut Key::new(limiter), start, &steps, |key, now, _, decision| {
            let remaining = decision.remaining;
            assert!(remaining <= limiter.capacity());
            assert!(key.peek(now, remaining).is_admitted(), "{remaining} by {limiter:?}");
            assert!(!key.peek(now, remaining + 1).is_admitted(), "{remaining} + 1 by {limiter:?}");
        });
    }

    /// With nothing remaining, `reset_after` is the first nanosecond at which one unit is allowed;
    /// with something, it is a time within which no more units than that come back than the rate
    /// gives.
    #[test]
    fn reset_after_is_when_one_unit_is_admitted(limiter in limiter(), start in start(), steps in steps(40)) {
        run(&mut Key::new(limiter), start, &steps, |key, now, _, decision| {
            let reset_ns = decision.reset_after.as_nanos();
            assert!(reset_ns > 0);
            if decision.remaining == 0 {
                assert!(!key.peek(now + reset_ns - 1, 1).is_admitted(), "early: {limiter:?}");
                assert!(key.peek(now + reset_ns, 1).is_admitted(), "late: {limiter:?}");
            }
        });
    }

    /// Using `remaining` units in one go at any time within `reset_after` is never denied.
    #[test]
    fn remaining_stays_available(
        limiter in limiter(), start in start(), steps in steps(30), part in 0..=1000_u64,
    ) {
        let mut key = Key::new(limiter);
        let mut last = None;
        run(&mut key, start, &steps, |_, now, _, decision| last = Some((now, *decision)));
        let (now, decision) = last.expect("at least one step");
        let later = now + decision.reset_after.as_nanos() / 1000 * part;
        prop_assert!(key.peek(later, decision.remaining).is_admitted(), "{limiter:?}");
    }

    /// A refund at the instant of the charge undoes it: every later decision is as if it had not
    /// been made.
    #[test]
    fn a_refund_at_the_same_instant_undoes(
        limiter in limiter(), start in start(), steps in steps(30), later in 0..3_000_u64,
    ) {
        let mut before = vec![0; limiter.state_len()];
        let step_ns = limiter.window().as_nanos() / 1000 * later;
        run(&mut Key::new(limiter), start, &steps, |key, now, cost, decision| {
            if decision.is_admitted() {
                let mut undone = key.clone();
                undone.refund(decision, now, cost, now);
                let never = Key { limiter, state: before.clone() };
                for at in [now, now + 1, now + step_ns] {
                    for probe in [0, 1, 2, cost, limiter.capacity()] {
                        assert_eq!(undone.peek(at, probe), never.peek(at, probe), "{limiter:?}");
                    }
                }
            }
            before.clone_from(&key.state);
        });
    }

    /// However late charges are given back, the units that were allowed and not given back keep the
    /// bound in every window, and at every instant the capacity.
    #[test]
    fn net_of_late_refunds_the_bound_holds(
        limiter in limiter(), start in start(),
        steps in prop::collection::vec((pause(), cost(), prop::option::weighted(0.4, any::<prop::sample::Index>())), 1..60),
    ) {
        let mut key = Key::new(limiter);
        let window_ns = limiter.window().as_nanos();
        let mut now = start;
        let mut retry_after = None;
        let mut net: Vec<AdmittedRequest> = Vec::new();
        for (pause, cost, refund) in steps {
            now = pause.after(now, window_ns, retry_after);
            if let (Some(index), false) = (refund, net.is_empty()) {
                let a = net.remove(index.index(net.len()));
                key.refund(&a.decision, a.at, a.cost, now);
            }
            let decision = key.check(now, cost);
            retry_after = decision.retry_after;
            if decision.is_admitted() {
                net.push(AdmittedRequest { at: now, cost, decision });
            }
        }
        for a in &net {
            prop_assert!(units_within(&net, a.at, window_ns) <= limiter.max_in_window(), "{limiter:?}");
            prop_assert!(units_within(&net, a.at, 1) <= limiter.capacity(), "{limiter:?}");
        }
    }

    /// A cost that turned out lower: whenever the difference is given back, no more is left than if
    /// the lower cost had been charged at once, and the same where it is given back at once.
    #[test]
    fn a_settled_cost_leaves_no_more_than_itself(
        limiter in limiter(), start in start(),
        steps in prop::collection::vec(
            (pause(), cost(), 0..=100_u64, prop::option::weighted(0.6, any::<prop::sample::Index>())),
            1..60,
        ),
    ) {
        let (mut key, mut settled) = (Key::new(limiter), Key::new(limiter));
        let mut now = start;
        let mut retry_after = None;
        let mut open: Vec<(Charge, u64)> = Vec::new();
        // A queue takes back its last place only.
        let mut is_exact = limiter.algorithm() != Algorithm::LeakyQueue;
        for (pause, cost, kept, settle) in steps {
            now = pause.after(now, limiter.window().as_nanos(), retry_after);
            if let (Some(index), false) = (settle, open.is_empty()) {
                let (charge, units) = open.remove(index.index(open.len()));
                is_exact &= charge.at == at(now);
                limiter.refund(&mut key.state, limiter.last_of(charge, units), at(now));
            }
            let decision = key.check(now, cost);
            retry_after = decision.retry_after;
            if let Some(charge) = decision.charge(at(now), cost) {
                let units = cost * kept / 100;
                settled.check(now, cost - units);
                open.push((charge, units));
            }
            let (left, most) = (key.peek(now, 0).remaining, settled.peek(now, 0).remaining);
            prop_assert!(left <= most, "{limiter:?}: {left} > {most}");
            let mut undone = key.clone();
            for (charge, units) in open.iter().rev().filter(|(charge, _)| charge.at == at(now)) {
                limiter.refund(&mut undone.state, limiter.last_of(*charge, *units), at(now));
            }
            if is_exact && open.iter().all(|(charge, _)| charge.at == at(now)) {
                prop_assert_eq!(undone.peek(now, 0).remaining, most, "{:?}", limiter);
            }
        }
    }

    /// From `idle_at` on a state decides like all zero bytes, in every field.
    #[test]
    fn forgetting_at_idle_at_loses_nothing(
        limiter in limiter(), start in start(), steps in steps(30), later in 0..2_000_u64,
    ) {
        let mut key = Key::new(limiter);
        run(&mut key, start, &steps, |_, _, _, _| {});
        let fresh = Key::new(limiter);
        let idle_at = limiter.idle_at(&key.state).as_nanos();
        for at in [idle_at, idle_at + 1, idle_at + limiter.window().as_nanos() / 1000 * later] {
            for cost in [0, 1, limiter.capacity(), limiter.capacity() + 1] {
                prop_assert_eq!(key.peek(at, cost), fresh.peek(at, cost), "{:?}", limiter);
            }
        }
        let (mut kept, mut forgotten) = (key, fresh);
        let kept = run(&mut kept, idle_at, &steps, |_, _, _, _| {});
        let forgotten = run(&mut forgotten, idle_at, &steps, |_, _, _, _| {});
        prop_assert_eq!(format!("{kept:?}"), format!("{forgotten:?}"));
    }

    /// The share used is the part that is not left, rounded up; never seen is 0, and the share is
    /// all exactly when not one more unit is allowed.
    #[test]
    fn the_share_used_is_what_does_not_remain(
        limiter in limiter(), start in start(), steps in steps(40),
    ) {
        let mut key = Key::new(limiter);
        let capacity = limiter.capacity();
        prop_assert_eq!(key.used(start), 0);
        run(&mut key, start, &steps, |key, now, _, _| {
            let used = u64::from(key.used(now));
            let left = key.peek(now, 0).remaining;
            let exact = (capacity - left) * u64::from(FULLY_USED);
            assert!(used * capacity >= exact && exact + capacity > used * capacity, "{limiter:?}");
            assert_eq!(used == 0, left == capacity, "{limiter:?}");
            let exhausted = !key.peek(now, 1).is_admitted();
            assert_eq!(used == u64::from(FULLY_USED), exhausted, "{limiter:?}");
        });
    }

    /// No charge lowers the share used, and time alone never raises it; from `idle_at` on it is 0.
    #[test]
    fn the_share_used_grows_by_charges_only(
        limiter in limiter(), start in start(), steps in steps(40),
        later in prop::collection::vec(0..300_u64, 1..20),
    ) {
        let mut key = Key::new(limiter);
        let mut before = (start, key.clone());
        let mut last = start;
        run(&mut key, start, &steps, |key, now, _, _| {
            let unchanged = before.1.used(now);
            assert!(unchanged <= before.1.used(before.0), "time raised it: {limiter:?}");
            assert!(key.used(now) >= unchanged, "a charge lowered it: {limiter:?}");
            before = (now, key.clone());
            last = now;
        });
        let mut share = key.used(last);
        for thousandths in later {
            last += limiter.window().as_nanos() / 1000 * thousandths;
            let now = key.used(last);
            prop_assert!(now <= share, "{:?}", limiter);
            share = now;
        }
        let idle_at = limiter.idle_at(&key.state).as_nanos();
        prop_assert_eq!(key.used(idle_at.max(last)), 0);
    }

    /// Any bytes have a share that agrees with what remains; bytes of another length have none.
    #[test]
    fn any_bytes_have_a_share(
        limiter in limiter(), bytes in prop::collection::vec(any::<u8>(), 120), now in any::<u64>(),
    ) {
        let mut key = Key::new(limiter);
        key.state.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, from)| *to = *from);
        let left = key.peek(now, 0).remaining;
        prop_assert!(key.used(now) <= FULLY_USED);
        prop_assert_eq!(key.used(now) == 0, left == limiter.capacity(), "{:?}", limiter);
        prop_assert_eq!(key.used(now) == FULLY_USED, left == 0, "{:?}", limiter);
        key.state.push(0);
        prop_assert_eq!(key.used(now), 0);
    }

    /// A larger quota never denies more, in this sense, for every algorithm and all costs: of the
    /// requests that the smaller one allows, the larger one, charged with the same, denies none,
    /// delays none longer, and has at least as much remaining.
    #[test]
    fn a_larger_quota_admits_what_the_smaller_one_admits(
        algorithm in algorithm(), numbers in numbers(), limit_more in 0..6_u64, burst_more in 0..6_u64,
        start in start(), steps in steps(40),
    ) {
        let smaller = build(algorithm, numbers);
        let larger = larger(algorithm, numbers, limit_more, burst_more);
        let mut other = Key::new(larger);
        run(&mut Key::new(smaller), start, &steps, |_, now, cost, decision| {
            if decision.is_admitted() {
                let answer = other.check(now, cost);
                assert!(answer.is_admitted(), "{larger:?} denies {cost} at {now}");
                assert!(wait_ns(&answer.verdict) <= wait_ns(&decision.verdict));
                assert!(answer.remaining >= decision.remaining);
            }
        });
    }

    /// And in the stronger sense, each with the requests that it allows itself: with unit costs the
    /// larger quota has never allowed fewer in all. This does not hold for the sliding window (its
    /// weight carries a full window over) and for mixed costs (one expensive request more may cost
    /// two cheap ones later).
    #[test]
    fn a_larger_quota_never_admits_fewer_units(
        algorithm in algorithm().prop_filter("exact", |a| *a != Algorithm::SlidingWindow),
        numbers in numbers(), limit_more in 0..6_u64, burst_more in 0..6_u64,
        start in start(), pauses in prop::collection::vec(pause(), 1..60),
    ) {
        let (mut smaller, mut larger) =
            (Key::new(build(algorithm, numbers)), Key::new(larger(algorithm, numbers, limit_more, burst_more)));
        let (mut now, mut retry_after, mut lead) = (start, None, 0_i64);
        for pause in pauses {
            now = pause.after(now, numbers.window_ns, retry_after);
            let decision = smaller.check(now, 1);
            retry_after = decision.retry_after;
            lead += i64::from(larger.check(now, 1).is_admitted()) - i64::from(decision.is_admitted());
            prop_assert!(lead >= 0, "{:?} is behind {:?} at {now}", larger.limiter, smaller.limiter);
        }
    }
}

/// A quota that is larger in every respect: strict ones slow down when only the burst grows.
fn larger(algorithm: Algorithm, numbers: Numbers, limit_more: u64, burst_more: u64) -> Limiter {
    let burst = if numbers.strict { numbers.burst.min(numbers.limit) } else { numbers.burst };
    let more = if numbers.strict { limit_more + burst_more } else { limit_more };
    build(algorithm, Numbers { limit: numbers.limit + more, burst: burst + burst_more, ..numbers })
}

fn wait_ns(verdict: &Verdict) -> u64 {
    if let Verdict::Delay(wait) = verdict { wait.as_nanos() } else { 0 }
}

/// A client that spreads `remaining` over `reset_after` sees no denial and uses the rate
/// (docs/fields.md).
#[test]
fn a_client_that_spreads_what_remains_is_never_denied() {
    let quota = tollgate_core::Quota::new(100, Span::from_secs(60)).expect("a quota");
    let exact = |algorithm: Algorithm| {
        let quota = if algorithm.has_burst() { quota.with_burst(20) } else { Ok(quota) };
        let mut key =
            Key::new(Limiter::new(algorithm, quota.expect("a burst")).expect("a limiter"));
        let (mut now, mut used) = (0, 0_u64);
        while now < 600_000_000_000 {
            let decision = key.check(now, 1);
            assert!(decision.is_admitted(), "{algorithm:?} at {now}");
            used += 1;
            assert!(used <= 1_100, "{algorithm:?}: more than the rate and a burst by {now}");
            now += decision.reset_after.as_nanos() / decision.remaining.max(1);
        }
        assert!(used >= 950, "{algorithm:?} used {used} of 1000");
    };
    exact(Algorithm::Gcra);
    exact(Algorithm::TokenBucket);
    exact(Algorithm::LeakyBucket);
    exact(Algorithm::FixedWindow);
    exact(Algorithm::SlidingWindow);
    exact(Algorithm::SlidingBuckets { buckets: 60, weighted: false });
    exact(Algorithm::SlidingLog);
}
