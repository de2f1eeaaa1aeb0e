//! States of earlier layouts: after conversion they give the decisions of the code that wrote them.
//!
//! `layout_1.txt` was written by the core of commit 7a4de38 and is never written again.
//! `recorded.rs` converts random bytes of layout 1, too, and compares the following decisions.

use crate::support::arbitrary::{Key, at, limiter};

use crate::support::format::parse;
use crate::support::replay;
use proptest::prelude::*;
use tollgate_core::{ENCODING_VERSION, Span, Verdict};

#[test]
fn states_of_layout_1_decide_as_they_did() {
    let mut key = None;
    let (mut states, mut denied) = (0, 0);
    for line in include_str!("layout_1.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => key = None,
            [limit, window, buckets, idle_at] => {
                let quota = format!("quota: sliding-buckets {limit} {window} {buckets}");
                let case = parse("layout 1", &format!("case: a state\n{quota}")).expect("a quota");
                let key = key.insert(Key::new(replay::limiter(&case[0].quotas[0])));
                // The last word contains when the state is idle; it is kept until the state is
                // known.
                key.state = idle_at.strip_prefix("idle_at=").expect("idle_at").into();
            }
            [hex] => {
                let key = key.as_mut().expect("a quota");
                let idle_at = String::from_utf8(core::mem::take(&mut key.state)).expect("digits");
                key.state = vec![0xff; key.limiter.state_len()];
                assert!(key.limiter.convert(1, &bytes(hex), &mut key.state), "{line}");
                let idle_at: u64 = idle_at.parse().expect("nanoseconds");
                assert_eq!(key.limiter.idle_at(&key.state), at(idle_at));
                states += 1;
            }
            [now, cost, verdict, remaining, retry_after, reset_after] => {
                let key = key.as_mut().expect("a quota");
                let number = |word: &str| word.parse::<u64>().expect("a number");
                let decision = key.peek(number(now), number(cost));
                let is_allowed = decision.verdict == Verdict::Allow;
                assert_eq!(is_allowed, *verdict == "allow", "{line}: {decision:?}");
                assert_eq!(decision.remaining, number(remaining), "{line}");
                let wait =
                    decision.retry_after.map_or("-".to_owned(), |w| w.as_nanos().to_string());
                assert_eq!(wait, *retry_after, "{line}");
                assert_eq!(decision.reset_after, Span::from_nanos(number(reset_after)), "{line}");
                assert_eq!(key.clone().check(number(now), number(cost)), decision, "{line}");
                denied += u32::from(!is_allowed);
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!((states, denied), (40, 121));
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}

proptest! {
    /// Bytes of today's layout convert to themselves; bytes of no version and of another length
    /// give nothing.
    #[test]
    fn only_states_of_a_version_are_converted(
        limiter in limiter(), seed in prop::collection::vec(any::<u8>(), 200), longer in 1..9_usize,
    ) {
        let len = limiter.state_len();
        let state: Vec<u8> = seed.iter().copied().cycle().take(len).collect();
        let mut converted = vec![0; len];
        for version in limiter.state_version()..=ENCODING_VERSION {
            prop_assert_eq!(limiter.state_len_in(version), Some(len));
            prop_assert!(limiter.convert(version, &state, &mut converted));
            prop_assert_eq!(&converted, &state);
        }
        let before = converted.clone();
        for version in [0, ENCODING_VERSION + 1, u8::MAX] {
            prop_assert_eq!(limiter.state_len_in(version), None);
            prop_assert!(!limiter.convert(version, &state, &mut converted));
        }
        for version in 1..=ENCODING_VERSION {
            let earlier = vec![7; limiter.state_len_in(version).expect("a version")];
            let other = vec![7; earlier.len() + longer];
            prop_assert!(!limiter.convert(version, &other, &mut converted));
            prop_assert!(!limiter.convert(version, &earlier, &mut converted[..len - 1]));
        }
        prop_assert_eq!(converted, before);
    }

    /// Never seen stays never seen, and any bytes of an earlier layout are a state.
    #[test]
    fn zeros_of_every_version_are_never_seen(limiter in limiter(), now in any::<u64>(), byte in any::<u8>()) {
        for version in 1..=ENCODING_VERSION {
            let len = limiter.state_len_in(version).expect("a version");
            let mut key = Key::new(limiter);
            key.state.fill(7);
            prop_assert!(limiter.convert(version, &vec![0; len], &mut key.state));
            prop_assert_eq!(&key.state, &vec![0; limiter.state_len()]);
            prop_assert!(limiter.convert(version, &vec![byte; len], &mut key.state));
            let decision = key.peek(now, 1);
            prop_assert_eq!(key.check(now, 1), decision);
        }
    }
}
