//! Laws under faults: clocks that stop, step back, jump ahead and oscillate; states that are any
//! bytes; every integer at its extremes.

use crate::support::arbitrary::*;
use proptest::prelude::*;
use tollgate_core::{
    Algorithm, Charge, Gcra, GcraState, LATEST, Limiter, MAX_BUCKETS, MAX_LIMIT,
    MAX_LIMIT_OF_BUCKETS, MAX_LIMIT_OF_LOG, MAX_WINDOW, MIN_WINDOW, Quota, Span, Timestamp,
    Verdict,
};

const CASES: u32 = if cfg!(debug_assertions) { 400 } else { 4_000 };

/// Where a faulty clock goes next, relative to where it is.
#[derive(Clone, Copy, Debug)]
enum Fault {
    On(u64),
    Back(u64),
}

impl Fault {
    fn after(self, now: u64) -> u64 {
        match self {
            Self::On(ns) => now + ns,
            Self::Back(ns) => now - ns,
        }
    }
}

/// Stopping, advancing, jumping ahead; back within the skew and far beyond it.
fn fault() -> impl Strategy<Value = Fault> {
    let hour_ns = 3_600_000_000_000_u64;
    prop_oneof![
        3 => Just(Fault::On(0)),
        4 => (0..2_000_000_000_u64).prop_map(Fault::On),
        1 => (0..90_000_000_000_u64).prop_map(Fault::On),
        1 => (0..24 * hour_ns).prop_map(Fault::On),
        3 => (0..SKEW_NS).prop_map(Fault::Back),
        2 => (0..5_000_000_u64).prop_map(Fault::Back),
        1 => (0..24 * hour_ns).prop_map(Fault::Back),
    ]
}

fn faults() -> impl Strategy<Value = Vec<(Fault, u64)>> {
    prop::collection::vec((fault(), cost()), 1..40)
}

proptest! {
    #![proptest_config(config(CASES))]

    /// GCRA, token bucket and leaky bucket agree in every field, whatever the clock does, with
    /// peeks, refunds and debits, from a state never seen.
    #[test]
    fn the_three_tellings_of_gcra_agree(
        numbers in numbers(), start in prop_oneof![Just(START), start().prop_map(|s| s + START)],
        steps in prop::collection::vec((fault(), cost(), prop::option::weighted(0.3, any::<prop::sample::Index>()), debited()), 1..60),
    ) {
        let mut keys = [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket]
            .map(|algorithm| Key::new(build(algorithm, numbers)));
        let mut charged: Vec<AdmittedRequest> = Vec::new();
        let mut now = start.min(LATEST.as_nanos());
        for (fault, cost, refund, debited) in steps {
            now = fault.after(now);
            if let (Some(index), false) = (refund, charged.is_empty()) {
                let a = charged.remove(index.index(charged.len()));
                keys.iter_mut().for_each(|key| key.refund(&a.decision, a.at, a.cost, now));
            }
            keys.iter_mut().for_each(|key| key.debit(now, debited));
            let before = keys[0].state.clone();
            let [gcra, token_bucket, leaky_bucket] = keys.each_mut().map(|key| key.check(now, cost));
            let typed = Gcra::new(*keys[0].limiter.quota()).expect("a GCRA");
            let tat = |bytes: &[u8]| GcraState {
                theoretical_arrival_at: at(u64::from_le_bytes(bytes.try_into().expect("8 bytes"))),
            };
            let typed = typed.check(tat(&before), at(now), cost);
            prop_assert_eq!((gcra, tat(&keys[0].state)), typed, "the usual case at {}", now);
            prop_assert_eq!(gcra, token_bucket, "token bucket at {}", now);
            prop_assert_eq!(gcra, leaky_bucket, "leaky bucket at {}", now);
            let [gcra_at, token_at, leaky_at] = keys.each_ref().map(|key| key.limiter.idle_at(&key.state));
            prop_assert_eq!(gcra_at.max(at(now)), token_at.max(at(now)));
            prop_assert_eq!(gcra_at.max(at(now)), leaky_at.max(at(now)));
            if gcra.is_admitted() {
                charged.push(AdmittedRequest { at: now, cost, decision: gcra });
            }
        }
    }

    /// Within the skew no interval is credited twice: the total that is allowed keeps the bound of
    /// the whole time that the clock covered, even when some charges are given back.
    #[test]
    fn a_clock_within_the_skew_gains_nothing(
        limiter in limiter(),
        steps in prop::collection::vec((0..SKEW_NS, cost(), 0..2_000_000_000_u64), 1..120),
    ) {
        let mut key = Key::new(limiter);
        let (mut first, mut last, mut front, mut units) = (u64::MAX, 0, START, 0);
        for (late_ns, cost, on_ns) in steps {
            front += on_ns;
            let now = front - late_ns;
            if key.check(now, cost).is_admitted() {
                units += cost;
                first = first.min(now);
                last = last.max(now);
            }
        }
        if units > 0 {
            let bound = bound_between(&limiter, first, last);
            prop_assert!(units <= bound, "{units} of {bound} in {} ns by {limiter:?}", last - first);
        }
    }

    /// However far a clock steps back, whenever it does, `retry_after` stays exact.
    #[test]
    fn retry_after_is_exact_on_every_clock(limiter in limiter(), steps in faults()) {
        let mut key = Key::new(limiter);
        let mut now = START;
        for (fault, cost) in steps {
            now = fault.after(now);
            let decision = key.check(now, cost);
            if let Some(wait) = decision.retry_after {
                let wait_ns = wait.as_nanos();
                prop_assert!(!key.peek(now + wait_ns - 1, cost).is_admitted(), "early: {limiter:?}");
                prop_assert!(key.peek(now + wait_ns, cost).is_admitted(), "late: {limiter:?}");
            }
            prop_assert!(key.peek(now, decision.remaining).is_admitted(), "{limiter:?}");
            prop_assert!(!key.peek(now, decision.remaining + 1).is_admitted(), "{limiter:?}");
        }
    }

    /// No client is locked out: after a step back of any length a denial is over within two bursts
    /// and the skew.
    #[test]
    fn no_clock_locks_a_key_out(limiter in limiter(), steps in faults(), back in 0..START) {
        let mut key = Key::new(limiter);
        let mut now = START;
        for (fault, cost) in steps {
            now = fault.after(now);
            key.check(now, cost);
        }
        let late = now - back.min(now);
        for cost in [1, limiter.capacity()] {
            let wait_ns = key.peek(late, cost).retry_after.map_or(0, Span::as_nanos);
            let longest_ns = longest_wait_ns(&limiter);
            prop_assert!(wait_ns <= longest_ns, "{wait_ns} > {longest_ns} by {limiter:?}");
        }
    }

    /// A clock set back beyond the skew allows one request and then owes at most one burst: never
    /// more than the capacity at one instant, whatever happened before.
    #[test]
    fn at_most_the_capacity_at_one_instant_of_any_clock(limiter in limiter(), steps in faults()) {
        let mut key = Key::new(limiter);
        let mut now = START;
        for (fault, cost) in steps {
            now = fault.after(now);
            let mut units = 0;
            for cost in [cost, 1, 1, 2, limiter.capacity(), 1] {
                units += if key.check(now, cost).is_admitted() { cost } else { 0 };
            }
            prop_assert!(units <= limiter.capacity(), "{units} by {limiter:?}");
        }
    }

    /// Any bytes are a state: nothing traps, never more than the capacity is allowed at one
    /// instant, and any client, at any time, is served in time.
    #[test]
    fn any_bytes_are_a_state(
        limiter in limiter(), seed in prop::collection::vec(any_byte(), 200), now in any_time(),
        costs in prop::collection::vec(any_cost(), 12), later in 0..4_000_u64,
    ) {
        let mut key = Key::new(limiter);
        key.state.iter_mut().zip(seed.iter().cycle()).for_each(|(byte, random)| *byte = *random);
        let mut units = 0_u64;
        for cost in costs {
            let peeked = key.peek(now, cost);
            let decision = key.check(now, cost);
            prop_assert_eq!(peeked, decision);
            if decision.is_admitted() {
                units += cost;
            }
            let _ = limiter.idle_at(&key.state);
        }
        prop_assert!(units <= limiter.capacity(), "{units} by {limiter:?}");
        let later_ns = longest_wait_ns(&limiter) / 1000 * later;
        served_in_time(&key, now, now.saturating_add(later_ns), units > 0);
    }

    /// Whatever the bytes, and whatever the clock did, an idle state decides like never seen, in
    /// every field.
    #[test]
    fn any_bytes_are_forgotten_without_loss(
        limiter in limiter(), seed in prop::collection::vec(any_byte(), 200),
        index in 0..4_u8, is_empty in any::<bool>(), later in 0..2_000_u64,
    ) {
        let mut key = Key::new(limiter);
        key.state.iter_mut().zip(seed.iter().cycle()).for_each(|(byte, random)| *byte = *random);
        if is_empty {
            // The result of refunds: a window of its own with nothing counted in it.
            key.state.fill(0);
            key.state[0] = index;
        }
        let fresh = Key::new(limiter);
        let idle_at = limiter.idle_at(&key.state).as_nanos();
        for now in [idle_at, idle_at.saturating_add(limiter.window().as_nanos() / 1000 * later)] {
            for cost in [0, 1, limiter.capacity(), limiter.capacity() + 1] {
                if now < LATEST.as_nanos() {
                    prop_assert_eq!(key.peek(now, cost), fresh.peek(now, cost), "{:?} {:?}", limiter, key.state);
                }
            }
        }
    }

    /// Whatever numbers a state contains, the reported numbers are exact: the remaining units are
    /// allowed and no unit more, and a denial is over at the reported time. Except for a log out of
    /// order, and for buckets before they are repaired: to find these would cost every decision a
    /// walk around the ring.
    #[test]
    fn what_is_said_of_any_numbers_is_exact(
        limiter in limiter().prop_filter("no log", |l| l.algorithm() != Algorithm::SlidingLog),
        start in start(), steps in steps(20), damage in damage(), then in steps(6),
    ) {
        let mut key = Key::new(limiter);
        let mut now = start;
        run(&mut key, start, &steps, |_, at, _, _| now = at);
        damage.apply(&mut key.state);
        limiter.repair(&mut key.state);
        prop_assert!(limiter.is_consistent(&key.state));
        run(&mut key, now, &then, |key, now, cost, decision| {
            let admits = |now, cost| key.peek(now, cost).is_admitted();
            let remaining = decision.remaining;
            assert!(admits(now, remaining), "{remaining} at {now}: {key:?}");
            assert!(!admits(now, remaining + 1), "{remaining} at {now}: {key:?}");
            if let Some(wait) = decision.retry_after {
                let wait_ns = wait.as_nanos();
                assert!(!admits(now + wait_ns - 1, cost), "early at {now}: {key:?}");
                assert!(admits(now + wait_ns, cost), "late at {now}: {key:?}");
            }
        });
    }

    /// Sliding buckets with any counters under any sum are repaired, and then allow no more in a
    /// window than a new state does.
    #[test]
    fn repaired_bytes_keep_the_bound(
        limiter in limiter().prop_filter("buckets", |it| it.algorithm().buckets().is_some()),
        numbers in prop::collection::vec(0..40_u32, 66), sum in 0..40_u64, age in 0..60_u64,
        costs in prop::collection::vec((0..2_000_u64, 1..8_u64), 1..150),
    ) {
        let mut key = Key::new(limiter);
        key.check(START, 1); // writes which sub-window it is
        key.state[8..16].copy_from_slice(&(sum << 16 | age).to_le_bytes());
        for (counter, number) in key.state[16..].chunks_exact_mut(4).zip(numbers.iter().cycle()) {
            counter.copy_from_slice(&number.to_le_bytes());
        }
        limiter.repair(&mut key.state);
        let (window_ns, mut now, mut admitted) = (limiter.window().as_nanos(), START, Vec::new());
        for (part, cost) in costs {
            now += window_ns / 60 * (part % 3) + part;
            let decision = key.check(now, cost);
            if decision.is_admitted() {
                admitted.push(AdmittedRequest { at: now, cost, decision });
            }
        }
        for AdmittedRequest { at, .. } in &admitted {
            let units = units_within(&admitted, *at, window_ns);
            prop_assert!(units <= limiter.max_in_window(), "{units} from {at} by {limiter:?}");
        }
    }

    /// States after requests, refunds and debits are consistent, whatever the clock does, and a
    /// repair changes nothing.
    #[test]
    fn what_is_written_is_consistent(
        limiter in limiter(),
        steps in prop::collection::vec((fault(), cost(), prop::option::weighted(0.3, any::<prop::sample::Index>()), debited()), 1..60),
    ) {
        let mut key = Key::new(limiter);
        let mut charged: Vec<AdmittedRequest> = Vec::new();
        let mut now = START;
        for (fault, cost, refund, debited) in steps {
            now = fault.after(now);
            if let (Some(index), false) = (refund, charged.is_empty()) {
                let a = charged.remove(index.index(charged.len()));
                key.refund(&a.decision, a.at, a.cost, now);
            }
            key.debit(now, debited);
            let decision = key.check(now, cost);
            if decision.is_admitted() {
                charged.push(AdmittedRequest { at: now, cost, decision });
            }
            prop_assert!(limiter.is_consistent(&key.state), "{key:?}");
            let mut repaired = key.state.clone();
            limiter.repair(&mut repaired);
            prop_assert_eq!(&repaired, &key.state, "{:?}", limiter);
        }
    }

    /// Refunds of anything, at any time, on any bytes: nothing traps, and still never more than the
    /// capacity is allowed at one instant.
    #[test]
    fn any_refund_is_harmless(
        limiter in limiter(), seed in prop::collection::vec(any_byte(), 200), now in any_time(),
        charged_at in any_time(), cost in any_cost(), delay in any_time(), again in any_time(),
    ) {
        let mut key = Key::new(limiter);
        key.state.iter_mut().zip(seed.iter().cycle()).for_each(|(byte, random)| *byte = *random);
        let charge = Charge { at: at(charged_at), cost, delay: Span::from_nanos(delay) };
        limiter.refund(&mut key.state, charge, at(now));
        let mut units = 0_u64;
        for cost in [1, limiter.capacity(), 1, 1] {
            units += if key.check(again, cost).is_admitted() { cost } else { 0 };
        }
        prop_assert!(units <= limiter.capacity(), "{units} by {limiter:?}");
    }

    /// A debit of anything, at any time, on any bytes is recorded, lowers nothing, and is over
    /// within two bursts and the skew: the part that fits the capacity is used at that time.
    #[test]
    fn any_debit_is_recorded(
        limiter in limiter(), seed in prop::collection::vec(any_byte(), 200), now in any_time(),
        units in any_cost(), later in 0..4_000_u64,
    ) {
        let mut key = Key::new(limiter);
        key.state.iter_mut().zip(seed.iter().cycle()).for_each(|(byte, random)| *byte = *random);
        let (before, left) = (key.used(now), key.peek(now, 0).remaining);
        key.debit(now, units);
        prop_assert!(key.used(now) >= before, "lower by {limiter:?}");
        prop_assert!(key.peek(now, 0).remaining <= left.saturating_sub(units), "by {limiter:?}");
        let later_ns = longest_wait_ns(&limiter) / 1000 * later;
        served_in_time(&key, now, now.saturating_add(later_ns), units > 0);
    }

    /// A cost that is denied without a debit is denied with it, at that time and at any later one,
    /// on every clock within the skew.
    #[test]
    fn a_debit_admits_nothing(
        limiter in limiter(), steps in steps(30), units in any_cost(), late_ns in 0..SKEW_NS,
        then in prop::collection::vec((0..2_500_u64, cost()), 1..20),
    ) {
        let mut without = Key::new(limiter);
        let mut now = START;
        run(&mut without, START, &steps, |_, at, _, _| now = at);
        let mut with = without.clone();
        with.debit(now - late_ns, units);
        for (thousandths, cost) in then {
            let then = now + limiter.window().as_nanos() / 1000 * thousandths;
            let (denied, decision) = (!without.peek(then, cost).is_admitted(), with.peek(then, cost));
            prop_assert!(!(denied && decision.is_admitted()), "{then}: {without:?}, {with:?}");
            prop_assert!(with.used(then) >= without.used(then), "{then}: {without:?}, {with:?}");
        }
        prop_assert!(limiter.idle_at(&with.state) >= limiter.idle_at(&without.state));
    }

    /// Bytes of another length are not a state: denied permanently, and left unchanged.
    #[test]
    fn other_lengths_are_no_state(limiter in limiter(), length in 0..300_usize, cost in any_cost()) {
        prop_assume!(length != limiter.state_len());
        let mut state = vec![7; length];
        let decision = limiter.check(&mut state, at(START), cost);
        prop_assert_eq!(decision.verdict, Verdict::Deny);
        prop_assert_eq!(decision.retry_after, None);
        prop_assert_eq!(limiter.peek(&state, at(START), cost), decision);
        prop_assert_eq!(limiter.idle_at(&state), Timestamp::ZERO);
        limiter.refund(&mut state, Charge { at: at(START), cost, delay: Span::ZERO }, at(START));
        limiter.debit(&mut state, cost, at(START));
        prop_assert_eq!(state, vec![7; length]);
    }
}

/// No request at `now` or `later` is denied for longer than two bursts and the skew. A key that was
/// charged at `now` is whole again by then; one that was not may have a state that is foreign now
/// and a debt when the clock comes near it, because nothing but a charge may change it.
fn served_in_time(key: &Key, now: u64, later: u64, was_charged: bool) {
    let longest_ns = longest_wait_ns(&key.limiter);
    let capacity = key.limiter.capacity();
    let is_whole_at = |ns: u64| ns > LATEST.as_nanos() || key.peek(ns, capacity).is_admitted();
    for then in [now, later].into_iter().filter(|ns| *ns <= LATEST.as_nanos()) {
        for cost in [1, capacity] {
            let wait_ns = key.peek(then, cost).retry_after.map_or(0, Span::as_nanos);
            assert!(wait_ns <= longest_ns, "{wait_ns} > {longest_ns} at {then} by {key:?}");
            assert!(wait_ns == 0 || is_whole_at(then + longest_ns), "at {then} by {key:?}");
        }
    }
    let whole_at = now.saturating_add(longest_ns);
    assert!(!was_charged || is_whole_at(whole_at), "charged at {now}, not whole: {key:?}");
}

/// Mostly nothing, sometimes more than two bursts.
fn debited() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0), 2 => 1..5_u64, 1 => 5..80_u64, 1 => Just(u64::MAX)]
}

fn any_cost() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..20_u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

/// A clock that goes 11 s back and forward again, ten requests each time, for the time of a
/// thousand windows.
#[test]
fn oscillating_by_11_s_gains_nothing() {
    for window_s in [1, 5, 10, 60] {
        for limiter in of_every_algorithm(10, Span::from_secs(window_s)) {
            let mut key = Key::new(limiter);
            let (mut front, mut units) = (START, 0);
            let (mut first, mut last) = (u64::MAX, 0);
            for round in 0..2_000_u64 {
                front += window_s * 500_000_000;
                let now = front - (round % 2) * 11_000_000_000;
                for _ in 0..12 {
                    if key.check(now, 1).is_admitted() {
                        units += 1;
                        first = first.min(now);
                        last = last.max(now);
                    }
                }
            }
            let bound = bound_between(&limiter, first, last);
            assert!(units <= bound, "{units} of {bound} by {limiter:?}");
            assert!(units >= bound / 4, "{units} of {bound}: starved by {limiter:?}");
        }
    }
}

/// A damaged byte does not have an effect forever, although the key is never idle: two windows
/// later the bound holds again, and after the skew requests within it are allowed again.
#[test]
fn a_damaged_byte_is_healed_while_the_key_is_in_use() {
    const WINDOW_NS: u64 = SKEW_NS;
    const A_WINDOW: u64 = 25; // steps: more than the limit of 10, and some in every part
    const STEP_NS: u64 = WINDOW_NS / A_WINDOW;
    const DAMAGE: u64 = 40;
    let mut damaged = 0;
    for limiter in of_every_algorithm(10, Span::from_nanos(WINDOW_NS)) {
        for (byte, value) in (0..limiter.state_len()).flat_map(|i| [0, 1, 4, 19].map(|v| (i, v))) {
            let mut key = Key::new(limiter);
            let mut admitted = Vec::new();
            for step in 0..DAMAGE + 7 * A_WINDOW {
                if step == DAMAGE {
                    damaged += u32::from(key.state[byte] != value);
                    key.state[byte] = value;
                }
                let now = START + step * STEP_NS;
                let decision = key.check(now, 1);
                if decision.is_admitted() {
                    admitted.push(AdmittedRequest { at: now, cost: 1, decision });
                }
            }
            let what = format!("byte {byte} as {value} by {limiter:?}");
            for step in DAMAGE + 2 * A_WINDOW..DAMAGE + 6 * A_WINDOW {
                let units = units_within(&admitted, START + step * STEP_NS, WINDOW_NS);
                assert!(units <= limiter.max_in_window(), "{units} from {step}: {what}");
                let is_skew_over = step >= DAMAGE + 4 * A_WINDOW;
                assert!(units >= 7 || !is_skew_over, "{units} from {step}: {what}");
            }
        }
    }
    assert!(damaged > 400, "{damaged}");
}

/// The words at the start of a state at their extremes, above counters and times at theirs: every
/// call returns a decision, and an idle state is idle in every field.
#[test]
fn states_at_their_extremes_are_states() {
    const WORDS: [u64; 6] = [0, 1, 1 << 16, 1 << 32, u64::MAX - 1, u64::MAX];
    let triples = WORDS.map(|a| WORDS.map(|b| WORDS.map(|c| [a, b, c])));
    let triples: Vec<[u64; 3]> = triples.into_iter().flatten().flatten().collect();
    for limiter in of_every_algorithm(10, Span::from_secs(1)) {
        for (words, rest) in triples.iter().flat_map(|words| [0, 1, 255].map(|rest| (words, rest)))
        {
            let mut key = Key::new(limiter);
            key.state.fill(rest);
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            key.state.iter_mut().zip(bytes).for_each(|(byte, wanted)| *byte = wanted);
            let idle_at = limiter.idle_at(&key.state).as_nanos();
            if idle_at <= LATEST.as_nanos() {
                let unused = Key::new(limiter).peek(idle_at, 1);
                assert_eq!(key.peek(idle_at, 1), unused, "{words:?} {rest} by {limiter:?}");
            }
            for now in [0, START, LATEST.as_nanos(), u64::MAX] {
                let mut key = key.clone();
                let decision = key.peek(now, 1);
                assert_eq!(key.check(now, 1), decision, "{words:?} {rest} by {limiter:?}");
                if decision.is_admitted() {
                    key.refund(&decision, now, 1, now);
                }
            }
        }
    }
}

/// A clock that does not move allows one capacity, however often it is asked.
#[test]
fn a_clock_that_stands_still_gives_one_capacity() {
    for limiter in of_every_algorithm(10, Span::from_secs(1)) {
        for now in [0, START, LATEST.as_nanos(), u64::MAX] {
            let mut key = Key::new(limiter);
            let units = (0..1_000).filter(|_| key.check(now, 1).is_admitted()).count();
            assert_eq!(units, 10, "at {now} by {limiter:?}");
        }
    }
}

/// Beyond LATEST time does not advance: no later time gives anything back.
#[test]
fn at_the_end_of_time_nothing_is_free() {
    for limiter in of_every_algorithm(10, Span::from_secs(1)) {
        let mut key = Key::new(limiter);
        assert!(key.check(LATEST.as_nanos(), 10).is_admitted());
        for now in [LATEST.as_nanos(), LATEST.as_nanos() + 1, u64::MAX - 1, u64::MAX] {
            assert!(!key.check(now, 1).is_admitted(), "at {now} by {limiter:?}");
        }
    }
}

/// The ends of every range of a quota, at the ends of time, with the ends of the costs: exact where
/// it must be, and never more than the capacity.
#[test]
fn every_input_at_its_extremes() {
    for limiter in extreme_limiters() {
        let capacity = limiter.capacity();
        for now in [0, 1, START, LATEST.as_nanos() - 1, LATEST.as_nanos(), u64::MAX - 1, u64::MAX] {
            let mut key = Key::new(limiter);
            let never = key.check(now, capacity + 1);
            assert_eq!((never.verdict, never.retry_after), (Verdict::Deny, None));
            assert_eq!(key.check(now, u64::MAX).retry_after, None);
            let all = key.check(now, capacity);
            assert!(all.is_admitted(), "{capacity} at {now} by {limiter:?}");
            assert_eq!(all.remaining, 0);
            let denied = key.check(now, 1);
            assert_eq!(denied.verdict, Verdict::Deny, "at {now} by {limiter:?}");
            let wait_ns = denied.retry_after.expect("one unit fits").as_nanos();
            if now < LATEST.as_nanos() - 1 {
                assert!(!key.peek(now + wait_ns - 1, 1).is_admitted(), "{limiter:?}");
                assert!(key.peek(now + wait_ns, 1).is_admitted(), "{limiter:?}");
            }
            key.refund(&all, now, capacity, now);
            assert_eq!(key.peek(now, 0).remaining, capacity, "{limiter:?}");
        }
    }
}

fn of_every_algorithm(limit: u64, window: Span) -> Vec<Limiter> {
    let quota = Quota::new(limit, window).expect("a quota");
    let algorithms = Algorithm::ALL.map(|algorithm| algorithm.with_buckets(10));
    algorithms
        .into_iter()
        .map(|algorithm| Limiter::new(algorithm, quota).expect("a limiter"))
        .collect()
}

/// Every algorithm that takes it, with the least and the greatest limit, window, burst and parts.
fn extreme_limiters() -> Vec<Limiter> {
    let algorithms = Algorithm::ALL.into_iter().flat_map(|algorithm| {
        let fewest = algorithm.with_buckets(2);
        let most = algorithm.with_buckets(MAX_BUCKETS);
        [Some(fewest), Some(most).filter(|most| *most != fewest)].into_iter().flatten()
    });
    let algorithms: Vec<Algorithm> = algorithms.collect();
    let limits = [1, 2, MAX_LIMIT_OF_LOG, MAX_LIMIT_OF_BUCKETS, MAX_LIMIT];
    let mut limiters = Vec::new();
    for window in [MIN_WINDOW, Span::from_nanos(MIN_WINDOW.as_nanos() + 1), MAX_WINDOW] {
        for quota in limits.iter().filter_map(|limit| Quota::new(*limit, window).ok()) {
            let burst = [quota.with_burst(1), quota.with_burst(1 << 40)];
            let quotas = [Ok(quota), Ok(quota.strict())].into_iter().chain(burst);
            for quota in quotas.filter_map(Result::ok) {
                let built = algorithms.iter().map(|a| Limiter::new(*a, quota));
                limiters.extend(built.filter_map(Result::ok));
            }
        }
    }
    assert!(limiters.len() > 100);
    limiters
}

/// Found by the fuzzer: counters that contain more than the sum are used oldest first, up to the
/// sum; so the wait is over at the reported time, although the counter in which it ends has more
/// units.
#[test]
fn counters_beyond_the_sum_are_not_waited_for() {
    let quota = Quota::new(1, Span::from_millis(1)).expect("a quota");
    let algorithm = Algorithm::SlidingBuckets { buckets: 3, weighted: true };
    let mut key = Key::new(Limiter::new(algorithm, quota).expect("a limiter"));
    // The newest sub-window is the fourth, the oldest two older; 5 in all, of 3, 4 and 0.
    let (index, age, sum) = (4_u64, 2_u64, 5_u64);
    key.state[..8].copy_from_slice(&index.to_le_bytes());
    key.state[8..16].copy_from_slice(&(sum << 16 | age).to_le_bytes());
    for (sub_window, units) in [(2_usize, 3_u32), (3, 4)] {
        let place = 16 + sub_window % 4 * 4;
        key.state[place..place + 4].copy_from_slice(&units.to_le_bytes());
    }
    let now = 4 * 333_334;
    let wait = key.peek(now, 1).retry_after.expect("it fits").as_nanos();
    assert!(!key.peek(now + wait - 1, 1).is_admitted());
    assert!(key.peek(now + wait, 1).is_admitted());
}
