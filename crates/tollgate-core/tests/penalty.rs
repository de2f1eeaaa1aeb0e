//! Penalties against a model that keeps the list of offences, and against any bytes and clocks.

use crate::support::arbitrary::*;
use proptest::prelude::*;
use tollgate_core::{
    ALLOWED_SKEW, Algorithm, FULLY_USED, Limiter, MAX_PENALTY_STEPS, MAX_WINDOW, Penalty, Quota,
    QuotaError, Span, Verdict,
};

const SECOND: u64 = 1_000_000_000;

fn secs(steps: &[u64]) -> Penalty {
    let steps: Vec<Span> = steps.iter().copied().map(Span::from_secs).collect();
    Penalty::new(&steps).unwrap()
}

fn steps() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::btree_set(1..60_u64, 1..=MAX_PENALTY_STEPS)
        .prop_map(|steps| steps.into_iter().collect())
}

/// Every algorithm that can have a penalty, with few units in a few seconds.
fn limiter() -> impl Strategy<Value = Limiter> {
    (algorithm(), 1..6_u64, 1..10_u64)
        .prop_filter("its requests wait", |(it, ..)| *it != Algorithm::LeakyQueue)
        .prop_map(|(algorithm, limit, secs)| {
            let quota = Quota::new(limit, Span::from_secs(secs)).unwrap();
            Limiter::new(algorithm, quota).unwrap()
        })
}

/// The longest wait of a denial that is no offence.
fn grace(limiter: &Limiter) -> Span {
    match limiter.algorithm() {
        Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let interval = limiter.window().as_nanos().div_ceil(limiter.limit());
            Span::from_nanos(interval.div_ceil(2)).min(Span::from_secs(1))
        }
        _ => Span::ZERO,
    }
}

/// The offences of a key, and what follows from them.
#[derive(Default)]
struct Model {
    /// The end of each penalty.
    ends: Vec<u64>,
    /// The number of the last one in its sequence, from 1.
    step: usize,
}

impl Model {
    fn until(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn offend(&mut self, steps: &[u64], now: u64) {
        let longest = steps[steps.len() - 1] * SECOND;
        let goes_on = !self.ends.is_empty() && now < self.until() + longest;
        self.step = if goes_on { self.step + 1 } else { 1 };
        self.ends.push(now + steps[self.step.min(steps.len()) - 1] * SECOND);
    }
}

fn pauses() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pause = prop_oneof![
        3 => Just(0),
        3 => 0..2 * SECOND,
        2 => (0..70_u64).prop_map(|secs| secs * SECOND),
        1 => 60 * SECOND..200 * SECOND,
    ];
    prop::collection::vec(
        (pause, prop_oneof![6 => Just(1_u64), 1 => Just(0), 1 => 2..8_u64]),
        1..60,
    )
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn a_key_is_denied_as_the_list_of_its_offences_says(
        limiter in limiter(), steps in steps(), pauses in pauses(),
    ) {
        let mut plain = Key::new(limiter);
        let mut key = Key::new(limiter.with_penalty(secs(&steps)).unwrap());
        let (mut model, mut now) = (Model::default(), START);
        for (pause, cost) in pauses {
            now += pause;
            let before = key.state.clone();
            let peeked = key.peek(now, cost);
            let decision = key.check(now, cost);
            prop_assert_eq!(peeked, decision);
            if now < model.until() {
                let own = plain.peek(now, cost);
                prop_assert_eq!(&before, &key.state, "a penalty admits nothing");
                let (used, left) = (key.used(now), Span::from_nanos(model.until() - now));
                prop_assert_eq!(used, FULLY_USED);
                let (until, step) = key.limiter.penalty_at(&key.state, at(now)).unwrap();
                prop_assert_eq!((until, step), (at(model.until()), model.step as u64));
                prop_assert_eq!(decision.remaining, 0);
                if cost == 0 {
                    prop_assert_eq!(decision.verdict, Verdict::Allow);
                } else if own.retry_after.is_none() && !own.is_admitted() {
                    prop_assert_eq!((decision.verdict, decision.retry_after), (Verdict::Deny, None));
                } else {
                    let wait = own.retry_after.unwrap_or(Span::ZERO).max(left);
                    prop_assert_eq!((decision.verdict, decision.retry_after), (Verdict::Penalty, Some(wait)));
                }
                prop_assert!(!key.limiter.punish(&mut key.state, at(now), cost), "not extended");
                prop_assert_eq!(&before, &key.state);
                continue;
            }
            prop_assert_eq!(key.limiter.penalty_at(&key.state, at(now)), None);
            prop_assert_eq!(decision, plain.check(now, cost));
            if decision.retry_after.is_none_or(|wait| wait <= grace(&limiter))
                && !decision.is_admitted()
            {
                prop_assert!(!key.limiter.punish(&mut key.state, at(now), cost), "no offence");
            } else if !decision.is_admitted() {
                prop_assert!(key.limiter.punish(&mut key.state, at(now), cost));
                model.offend(&steps, now);
                // The wait that is reported from now on is true, and not a nanosecond longer.
                let wait = key.peek(now, cost).retry_after.unwrap().as_nanos();
                prop_assert!(!key.peek(now + wait - 1, cost).is_admitted());
                prop_assert!(key.peek(now + wait, cost).is_admitted());
            }
        }
        let idle_at = key.limiter.idle_at(&key.state).as_nanos().max(now);
        for cost in [0, 1, limiter.capacity(), limiter.capacity() + 1] {
            prop_assert_eq!(key.peek(idle_at, cost), Key::new(key.limiter).peek(idle_at, cost));
        }
        let mut fresh = Key::new(key.limiter);
        for key in [&mut key, &mut fresh] {
            while key.check(idle_at, 1).is_admitted() {}
            prop_assert!(key.limiter.punish(&mut key.state, at(idle_at), 1));
        }
        let first = fresh.limiter.penalty_at(&fresh.state, at(idle_at));
        prop_assert_eq!(key.limiter.penalty_at(&key.state, at(idle_at)), first, "forgotten");
    }

    #[test]
    fn no_bytes_and_no_clock_lock_a_key_out(
        limiter in limiter(), steps in steps(), bytes in any::<[u64; 2]>(), near in any::<bool>(),
        now in start(),
    ) {
        let longest = Span::from_secs(steps[steps.len() - 1]);
        let mut key = Key::new(limiter.with_penalty(secs(&steps)).unwrap());
        let until = if near { now.wrapping_add(bytes[0] % (400 * SECOND)) } else { bytes[0] };
        let own = key.state.len() - 16;
        key.state[own..own + 8].copy_from_slice(&until.to_le_bytes());
        key.state[own + 8..].copy_from_slice(&bytes[1].to_le_bytes());
        let most = longest.saturating_add(ALLOWED_SKEW);
        let wait = key.peek(now, 1).retry_after.unwrap_or(Span::ZERO);
        prop_assert!(wait <= most, "{wait:?}");
        while key.check(now, 1).is_admitted() {}
        if key.limiter.penalty_at(&key.state, at(now)).is_none() {
            let until = u64::from_le_bytes(key.state[own..own + 8].try_into().unwrap());
            prop_assert!(until <= now, "a foreign end is gone with the first charge");
        }
        key.limiter.punish(&mut key.state, at(now), 1);
        let (until, _) = key.limiter.penalty_at(&key.state, at(now)).expect("it runs now");
        prop_assert!(until.since(at(now)) <= most);
    }

    #[test]
    fn a_changed_quota_keeps_the_penalty(
        limiter in limiter(), other in limiter(), steps in steps(), after in steps(), offences in 1..5_usize,
    ) {
        let mut key = Key::new(limiter.with_penalty(secs(&steps)).unwrap());
        let (mut now, mut model) = (START, Model::default());
        for _ in 0..offences {
            now = now.max(model.until());
            loop {
                while key.check(now, 1).is_admitted() {}
                let wait = key.peek(now, 1).retry_after.unwrap();
                if wait > grace(&limiter) {
                    break;
                }
                now += wait.as_nanos();
            }
            prop_assert!(key.limiter.punish(&mut key.state, at(now), 1));
            model.offend(&steps, now);
        }
        let next = other.with_penalty(secs(&after)).unwrap();
        let mut carried = vec![0; next.state_len()];
        next.carry(&key.limiter, &key.state, at(now), &mut carried);
        let until = model.until().min(now + after[after.len() - 1] * SECOND);
        prop_assert_eq!(next.penalty_at(&carried, at(now)), Some((at(until), model.step as u64)));
        // Without one the state is that of the quota alone.
        let mut plain = vec![0; other.state_len()];
        other.carry(&key.limiter, &key.state, at(now), &mut plain);
        prop_assert_eq!(&carried[..plain.len()], &plain[..]);
        let mut back = vec![0; next.state_len()];
        next.carry(&other, &plain, at(now), &mut back);
        prop_assert_eq!(next.penalty_at(&back, at(now)), None);
        // Pardoned, it is as if there had been no offence.
        prop_assert!(next.pardon(&mut carried));
        prop_assert!(!next.pardon(&mut carried));
        prop_assert_eq!(&carried, &back);
    }
}

#[test]
fn held_units_are_no_offence() {
    for algorithm in [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let quota = Quota::new(3, Span::from_secs(30)).unwrap();
        let limiter = Limiter::new(algorithm, quota).unwrap().with_holds().unwrap();
        let mut key = Key::new(limiter.with_penalty(secs(&[60])).unwrap());
        let held: Vec<_> =
            (0..3).map(|_| key.check(START, 1).charge(at(START), 1).unwrap()).collect();
        assert!(!key.check(START, 1).is_admitted());
        assert!(!key.limiter.punish(&mut key.state, at(START), 1), "{algorithm:?}: all are held");
        let now = START + SECOND;
        for charge in held {
            assert!(!key.limiter.punish(&mut key.state, at(now), 1), "{algorithm:?}");
            key.limiter.settle(&mut key.state, charge, 1, at(now));
        }
        assert!(!key.check(now, 1).is_admitted());
        assert!(key.limiter.punish(&mut key.state, at(now), 1), "{algorithm:?}: all are used");
    }
}

#[test]
fn impossible_steps_are_refused() {
    let spans = |millis: &[u64]| millis.iter().copied().map(Span::from_millis).collect::<Vec<_>>();
    for bad in
        [&[][..], &[0], &[500], &[1_500], &[2_000, 1_000], &[1_000, 1_000], &[31_622_401_000]]
    {
        assert_eq!(Penalty::new(&spans(bad)), Err(QuotaError::Penalty), "{bad:?}");
    }
    let seven: Vec<u64> = (1..8).map(|step| step * 1_000).collect();
    assert_eq!(Penalty::new(&spans(&seven)), Err(QuotaError::Penalty));
    let six = Penalty::new(&spans(&seven[..6])).unwrap();
    assert_eq!(six.steps().collect::<Vec<_>>(), spans(&seven[..6]));
    assert_eq!(Penalty::new(&[MAX_WINDOW]).unwrap().longest(), MAX_WINDOW);
    let queue = Limiter::new(Algorithm::LeakyQueue, Quota::new(1, Span::from_secs(1)).unwrap());
    assert_eq!(queue.unwrap().with_penalty(six), None);
}
