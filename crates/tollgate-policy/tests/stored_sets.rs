//! Quota sets by their parameters alone: golden bytes, which outlive every deployment, and the part
//! of a client's state that continues when its quota changes.

use crate::support::{Surfaced, get};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tollgate_core::{Algorithm, Timestamp};
use tollgate_policy::{Policy, Surface};
use tollgate_storage::{StoredSet, carry_set};
use tollgate_test_support::hex;

const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);

/// Everything that the format can express: each algorithm, a tier, strictness, weights, a burst.
const ALL: &str = r#"{"version": 1, "rules": [{"name": "api", "key": [], "quotas": [
    {"name": "a", "limit": 10, "window": "1s", "burst": 3, "strict": true},
    {"name": "b", "limit": 20, "window": "1m", "algorithm": "token-bucket"},
    {"name": "c", "limit": 30, "window": "1m", "algorithm": "leaky-bucket", "burst": 60},
    {"name": "e", "limit": 50, "window": "1h", "algorithm": "fixed-window"},
    {"name": "f", "limit": 60, "window": "1h", "algorithm": "sliding-window", "strict": true},
    {"name": "g", "limit": 70, "window": "1h", "algorithm": "sliding-buckets", "buckets": 4, "weighted": true},
    {"name": "h", "limit": 80, "window": "1d", "algorithm": "sliding-log"}],
    "tiers": [{"name": "gold", "when": {"methods": ["GET"]}, "quotas": [
        {"limit": 40, "window": "1m", "algorithm": "leaky-queue"}]}]}]}"#;

/// The rule's own quotas and its tier's, a line for the set and for each quota.
const GOLDEN: [&str; 10] = [
    "48fcfbb94d40524fe656caaf0207",
    "b4581bf6bba6b9be010100000a0000000000000000ca9a3b000000000300000000000000",
    "12e573416dda280f020000001400000000000000005847f80d0000001400000000000000",
    "36b9545fa94cfc98030000001e00000000000000005847f80d0000003c00000000000000",
    "a3af36498c99453405000000320000000000000000a0b830460300003200000000000000",
    "4964de1d3bef0fd0060100003c0000000000000000a0b830460300003c00000000000000",
    "eae8689cbbe8fda307020400460000000000000000a0b830460300004600000000000000",
    "d1bb9c14fa87287908000000500000000000000000004f91944e00005000000000000000",
    "7ae2607123b9f923d53844e60101",
    "48fcfbb94d40524f040000002800000000000000005847f80d0000002800000000000000",
];

fn policy(document: &str) -> Policy {
    tollgate_language::compile(document, Surface::Library).unwrap()
}

fn of_quotas(quotas: &str) -> StoredSet {
    let rule = format!(r#"{{"name": "r", "key": [], "quotas": [{quotas}]}}"#);
    policy(&format!(r#"{{"version": 1, "rules": [{rule}]}}"#)).quota_sets()[0].to_stored()
}

fn parameters(policy: &Policy) -> Vec<u8> {
    let mut bytes = vec![];
    policy.quota_sets().iter().for_each(|set| set.write_parameters(&mut bytes));
    bytes
}

#[test]
fn golden_bytes() {
    let bytes = parameters(&policy(ALL));
    let lens = [14, 36, 36, 36, 36, 36, 36, 36, 14, 36];
    let mut rest = &bytes[..];
    for (len, golden) in lens.into_iter().zip(GOLDEN) {
        let (line, others) = rest.split_at(len);
        assert_eq!(hex(line), golden);
        rest = others;
    }
    assert!(rest.is_empty());
}

/// By a calendar the burst gives way to unit, day, offset and four zeros. Any others are not read.
#[test]
fn golden_bytes_of_a_calendar() {
    let quota = r#"{"limit": 10, "window": "1mo", "algorithm": "fixed-window", "align": "calendar", "anchor_day": 15, "utc_offset": "-01:00"}"#;
    let set = of_quotas(quota);
    let mut bytes = vec![];
    set.write(&mut bytes);
    let golden = "050800000a0000000000000000009198fd830900040fc4ff00000000";
    assert_eq!(hex(&bytes[22..]), golden);
    assert_eq!(StoredSet::read(&mut &*bytes), Some(set));
    let wrong_bytes =
        [(22, 1), (23, 9), (24, 1), (34, 1), (42, 5), (43, 0), (43, 32), (45, 4), (46, 1), (49, 1)];
    for (place, wrong) in wrong_bytes {
        let mut bytes = bytes.clone();
        bytes[place] = wrong;
        assert_eq!(StoredSet::read(&mut &*bytes), None, "{wrong} at {place}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let policy = policy(ALL);
    let bytes = parameters(&policy);
    let mut rest = &bytes[..];
    let mut again = vec![];
    for set in policy.quota_sets() {
        let stored = StoredSet::read(&mut rest).unwrap();
        assert_eq!(stored, set.to_stored());
        assert_eq!(stored.states_len() + 8, set.record_len());
        assert_eq!(
            (stored.stable_id(), stored.quotas().len()),
            (set.stable_id(), set.quotas().len())
        );
        for (stored, quota) in stored.quotas().iter().zip(set.quotas()) {
            assert_eq!(stored.limiter(), quota.limiter());
        }
        stored.write(&mut again);
    }
    assert_eq!((rest, &again), (&[][..], &bytes));
}

#[test]
fn what_is_no_set_is_not_read() {
    let bytes = parameters(&policy(ALL));
    for len in 0..14 + 7 * 36 {
        let mut rest = &bytes[..len];
        assert_eq!(StoredSet::read(&mut rest), None, "{len}");
        assert_eq!(rest.len(), len, "nothing is taken off");
    }
    // Byte by byte: its meaning, and values that it never has.
    let wrong: [(usize, &[u8]); 10] = [
        (12, &[0, 3, 255]),          // the layout of a later version, or of none
        (13, &[0]),                  // no quotas
        (22, &[0, 9, 255]),          // no algorithm
        (23, &[2, 3, 8, 128]),       // a weight without buckets, unknown flags
        (24, &[1]),                  // buckets of what is not counted in parts
        (33, &[255]),                // a limit of 2^62 and more
        (41, &[255]),                // a window of 570 years
        (42, &[0, 11]),              // a burst of 0, and one above a strict limit
        (14 + 36 + 27, &[1]),        // the second quota's window
        (14 + 5 * 36 + 10, &[1, 0]), // one bucket, none
    ];
    for (at, values) in wrong {
        for value in values {
            let mut damaged = bytes.clone();
            damaged[at] = *value;
            assert_ne!(damaged, bytes, "{at}");
            assert_eq!(StoredSet::read(&mut &damaged[..]), None, "byte {at} is {value}");
        }
    }
    let mut twice = bytes.clone();
    twice.copy_within(14..22, 14 + 36);
    assert_eq!(StoredSet::read(&mut &twice[..]), None, "two quotas of one name");
}

/// Sliding buckets whose sum was damaged: it is that of the counters again before anything is
/// decided.
#[test]
fn a_damaged_sum_is_repaired_where_it_is_read() {
    const SUM: usize = 8 + 10; // in the record, behind its header
    let document = r#"{"version": 1, "rules": [{"name": "api", "key": [], "quotas": [
        {"limit": 10, "window": "1h", "algorithm": "sliding-buckets", "buckets": 4}]}]}"#;
    let set = policy(document).quota_sets()[0].to_stored();
    let mut surface = Surfaced::new(document);
    for _ in 0..6 {
        surface.check(&get("/", "192.0.2.1"), NOW.as_nanos() / 1_000_000);
    }
    let stored = surface.store.values_mut().next().unwrap();
    let states = |stored: &[u8]| stored[8..][..set.states_len()].to_vec();
    let written = states(stored);
    assert_eq!(stored[SUM], 6);
    stored[SUM] = 1;
    assert_eq!(set.current_states(&states(stored)).unwrap()[..], written[..]);
    let seen = surface.check(&get("/", "192.0.2.1"), NOW.as_nanos() / 1_000_000);
    assert!(seen.header("ratelimit").is_some_and(|value| value.contains(";r=3;")), "{seen:?}");
}

/// A failing seed is stored next to the test and run first from then on.
fn config() -> ProptestConfig {
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::with_cases(2000)
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_bytes_are_read_as_a_set_or_as_none(
        bytes in prop::collection::vec(any::<u8>(), 0..120), at in 0_usize..266, value: u8,
    ) {
        let mut near = parameters(&policy(ALL));
        near[at] = value;
        for bytes in [&bytes, &near] {
            let mut rest = &bytes[..];
            if let Some(set) = StoredSet::read(&mut rest) {
                let mut again = vec![];
                set.write(&mut again);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - rest.len()]);
                let states = vec![value; set.states_len()];
                let (mut out, mut same) = (states.clone(), states.clone());
                let other = of_quotas(r#"{"name": "a", "limit": 10, "window": "1s"}"#);
                carry_set(&set, &states, set.limiters(), NOW, &mut same);
                prop_assert_eq!(&same, &states, "an unchanged set changes no byte");
                carry_set(&other, &states, set.limiters(), NOW, &mut out);
                let _ = (set.idle_at(&states), set.current_states(&states));
            }
        }
    }
}

#[test]
fn a_set_is_known_by_its_names() {
    let ids = |document: &str| {
        policy(document).quota_sets().iter().map(|set| set.stable_id()).collect::<Vec<_>>()
    };
    let rule = |name: &str, tier: &str, limit: u32| {
        format!(
            r#"{{"version": 1, "rules": [{{"name": "{name}", "key": [], "quotas": [{{"limit": {limit}, "window": "1s"}}],
            "tiers": [{{"name": "{tier}", "when": {{"methods": ["GET"]}}, "quotas": [{{"limit": 5, "window": "1s"}}]}}]}}]}}"#
        )
    };
    let before = ids(&rule("a", "b", 1));
    assert_ne!(before[0], before[1], "the rule's own and its tier's");
    assert_eq!(ids(&rule("a", "b", 2)), before, "other quotas");
    let tier_renamed = ids(&rule("a", "c", 1));
    assert_eq!(tier_renamed[0], before[0]);
    assert_ne!(tier_renamed[1], before[1]);
    let rule_renamed = ids(&rule("c", "b", 1));
    assert!(rule_renamed.iter().all(|id| !before.contains(id)));
    // Rule "ab" has a tier "c" and rule "a" a tier "bc".
    assert_ne!(ids(&rule("ab", "c", 1))[1], ids(&rule("a", "bc", 1))[1]);
}

/// The remaining units in `to`, quota by quota, of a client that used `used` of each of `from`'s.
fn left(from: &str, used: u64, to: &str) -> Vec<u64> {
    let (from, to) = (of_quotas(from), of_quotas(to));
    let mut states = vec![0; from.states_len()];
    for quota in from.quotas() {
        assert!(
            quota.limiter().check(quota.state_mut(&mut states).unwrap(), NOW, used).is_admitted()
        );
    }
    let mut out = vec![0xff; to.states_len()];
    carry_set(&from, &states, to.limiters(), NOW, &mut out);
    let left =
        |state: &[u8], limiter: &tollgate_core::Limiter| limiter.peek(state, NOW, 0).remaining;
    to.quotas().iter().map(|quota| left(quota.state(&out).unwrap(), quota.limiter())).collect()
}

#[test]
fn what_is_used_goes_on_by_the_names_of_quotas() {
    let quota = |name: &str, limit: u32| {
        format!(
            r#"{{"name": "{name}", "limit": {limit}, "window": "1h", "algorithm": "fixed-window"}}"#
        )
    };
    let two = |one: String, other: String| format!("{one}, {other}");
    // Raised and lowered; the other one is unchanged.
    assert_eq!(
        left(&two(quota("a", 10), quota("b", 20)), 6, &two(quota("a", 100), quota("b", 20))),
        [94, 14]
    );
    assert_eq!(
        left(&two(quota("a", 10), quota("b", 20)), 6, &two(quota("a", 5), quota("b", 20))),
        [0, 14]
    );
    // In another order, with one between them.
    assert_eq!(
        left(&two(quota("a", 10), quota("b", 20)), 6, &two(quota("b", 20), quota("a", 10))),
        [14, 4]
    );
    assert_eq!(
        left(
            &two(quota("a", 10), quota("b", 20)),
            6,
            &[quota("b", 20), quota("c", 7), quota("a", 10)].join(", ")
        ),
        [14, 7, 4]
    );
    // One less, and another name.
    assert_eq!(left(&two(quota("a", 10), quota("b", 20)), 6, &quota("b", 20)), [14]);
    assert_eq!(left(&quota("a", 10), 6, &quota("b", 10)), [10]);
}

#[test]
fn every_algorithm_goes_on_in_every_other() {
    for before in Algorithm::ALL {
        for after in Algorithm::ALL {
            let quota = |algorithm: Algorithm, limit: u32| {
                format!(
                    r#"{{"limit": {limit}, "window": "1h", "algorithm": "{}"}}"#,
                    algorithm.name()
                )
            };
            let left = left(&quota(before, 10), 6, &quota(after, 20))[0];
            assert!(left <= 14, "{} to {}: {left}", before.name(), after.name());
            assert!(left >= 8, "{} to {}: {left}", before.name(), after.name());
        }
    }
}
