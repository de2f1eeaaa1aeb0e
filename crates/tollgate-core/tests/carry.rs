//! Quotas that are changed while keys are in use: what was used stays used.
#![cfg(not(target_arch = "wasm32"))]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod support;

use proptest::prelude::*;
use support::arbitrary::*;
use tollgate_core::Limiter;

const CASES: u32 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

/// The key under `limiter` from `now` on.
fn carried(key: &Key, limiter: Limiter, now: u64) -> Key {
    let mut next = Key { limiter, state: vec![0xff; limiter.state_len()] };
    limiter.carry(&key.limiter, &key.state, at(now), &mut next.state);
    next
}

/// What is used at `now`.
fn used(key: &Key, now: u64) -> u64 {
    key.limiter.capacity() - key.peek(now, 0).remaining
}

proptest! {
    #![proptest_config(config(CASES))]

    /// At the change no more is admitted than the new capacity less what was used.
    #[test]
    fn at_the_change_nothing_is_given_back(
        old in limiter(), new in limiter(), start in start(), steps in steps(40), pause in pause(),
    ) {
        let mut key = Key::new(old);
        let mut now = start;
        run(&mut key, start, &steps, |_, at, _, _| now = at);
        now = pause.after(now, old.window().as_nanos(), None);
        let used = used(&key, now);
        let mut next = carried(&key, new, now);
        let room = new.capacity().saturating_sub(used);
        prop_assert!(next.peek(now, 0).remaining <= room, "{used} used, {next:?}");
        prop_assert!(!next.check(now, room + 1).is_admitted());
    }

    /// A quota that is not changed keeps every byte, whatever they are.
    #[test]
    fn an_unchanged_quota_keeps_every_byte(
        limiter in limiter(), bytes in prop::collection::vec(any::<u8>(), 1..200), now in any::<u64>(),
    ) {
        let mut key = Key::new(limiter);
        key.state.iter_mut().zip(bytes.iter().cycle()).for_each(|(byte, any)| *byte = *any);
        prop_assert_eq!(&carried(&key, limiter, now).state, &key.state);
    }
}
