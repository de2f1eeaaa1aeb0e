//! Values that an earlier version stored: no client's count starts again because the layout of its
//! state changed.

use crate::support::*;
use tollgate_core::{FULLY_USED, Span, Timestamp};
use tollgate_policy::{Plan, Surface, is_value};

const POLICY: &str = r#"{"version": 1, "rules": [
    {"name": "api", "key": ["client_ip"], "quotas": [
        {"name": "hour", "limit": 5, "window": "1h", "algorithm": "sliding-buckets", "buckets": 4},
        {"name": "day", "limit": 20, "window": "1d"}]},
    {"name": "all", "key": ["client_ip"], "quotas": [{"limit": 50, "window": "1h", "algorithm": "sliding-window"}]}]}"#;

/// The bytes that the policy of commit 7a4de38 stored for one client after four requests, the last
/// of them at [`LAST`].
const LAYOUT_1: &str = "\
    7bfd128c24000000b32d1e000000000000000000000000000200000001000000010000000000750449e4b318\
    9b7e40f2180000006c8b07000000000000000000000000000400000000000000";
const LAST: u64 = 1_780_001_900_000;
/// The results that this policy gave then, one minute and more later.
const AFTER: [(u64, &str); 7] = [
    (0, r#""hour";r=0;t=1900, "day";r=15;t=64800, "all";r=45;t=100"#),
    (1, r#""hour";r=0;t=1900, "day";r=15;t=64800, "all";r=45;t=99"#),
    (1_800_000, r#""hour";r=0;t=100, "day";r=15;t=64800, "all";r=48;t=1900"#),
    (2_600_000, r#""hour";r=1;t=200, "day";r=15;t=64800, "all";r=48;t=1100"#),
    (2_700_000, r#""hour";r=0;t=100, "day";r=14;t=60480, "all";r=47;t=1000"#),
    (3_600_000, r#""hour";r=0;t=100, "day";r=13;t=56160, "all";r=47;t=100"#),
    (7_100_000, r#""hour";r=3;t=200, "day";r=13;t=56160, "all";r=49;t=200"#),
];

fn layout_1() -> Vec<u8> {
    let digits: Vec<char> = LAYOUT_1.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn request() -> Request {
    get("/", "192.0.2.1")
}

/// A surface that has only the old value, for this one client.
fn left(document: &str) -> Surfaced {
    let mut surface = Surfaced::new(document);
    surface.policy.plan(&request(), &mut surface.plan);
    surface.store.insert(surface.plan.partition(0).unwrap().key().to_vec(), layout_1());
    surface
}

#[test]
fn a_value_of_layout_1_counts_on() {
    let mut surface = left(POLICY);
    for (after, field) in AFTER {
        let seen = surface.check(&request(), LAST + after);
        assert_eq!(seen.header("ratelimit"), Some(field), "after {after} ms");
    }
}

#[test]
fn it_is_converted_when_it_is_read_and_written_when_it_is_charged() {
    let mut surface = left(POLICY);
    let value_len = surface.policy.groups()[0].value_len();
    assert_eq!((layout_1().len(), value_len), (76, 84));
    for after in [0, 1] {
        surface.check(&request(), LAST + after);
        let partition = surface.plan.partition(0).unwrap();
        assert_eq!(partition.value().len(), value_len);
        assert_eq!(partition.changed(), after == 0, "the fifth passes, the sixth does not");
    }
    let stored = surface.store.values().next().unwrap();
    assert!(stored.len() == value_len && is_value(stored) && is_value(&layout_1()));

    // One is left of five, and two are requested.
    let costly = POLICY.replace(r#""name": "api","#, r#""name": "api", "cost": 2,"#);
    let mut refused = left(&costly);
    refused.check(&request(), LAST);
    assert!(refused.store.values().all(|stored| *stored == layout_1()), "a denial writes nothing");
}

/// A store that evicts idle values, or those with the least usage, must not mistake an old value
/// for either.
#[test]
fn its_claims_are_what_they_were() {
    let policy = tollgate_language::compile(POLICY, Surface::Envoy).unwrap();
    let (group, stored) = (&policy.groups()[0], layout_1());
    assert_eq!(group.idle_at(&policy, &stored), Timestamp::from_millis(1_780_017_280_000));
    let share = group.used_share(&policy, &stored, Timestamp::from_millis(LAST));
    assert_eq!((share.enforced, share.refuses_for, share.shadow), (52_429, Span::ZERO, 0));
    assert!(share.enforced < FULLY_USED);
}

/// With a new rule, in another order, and padded as Envoy's table pads.
#[test]
fn it_is_found_wherever_it_lies() {
    let other =
        r#"{"name": "new", "key": ["client_ip"], "quotas": [{"limit": 9, "window": "1h"}]}"#;
    let (head, rules) = POLICY.split_once("[\n").unwrap();
    let document = format!("{head}[{other},\n{rules}");
    let mut surface = left(&document);
    for stored in surface.store.values_mut() {
        stored.resize(80, 0);
    }
    let seen = surface.check(&request(), LAST);
    let field = r#""new";r=8;t=3200, "#.to_owned() + AFTER[0].1;
    assert_eq!(seen.header("ratelimit"), Some(field.as_str()));
}

/// A store that decides on its own continues the usage of an old value, too.
#[test]
fn an_object_with_an_old_value_continues_to_count() {
    let policy = tollgate_language::compile(POLICY, Surface::Worker).unwrap();
    let mut counts = policy.groups()[0].counts_of(&policy, &layout_1()).unwrap();
    assert_eq!(counts.idle_at(), Timestamp::from_millis(1_780_017_280_000));
    let mut front = Plan::new();
    policy.plan(&request(), &mut front);
    let mut wire = Vec::new();
    front.partition(0).unwrap().request(&policy, &mut wire);
    let answered = counts.answer(&wire, Timestamp::from_millis(LAST)).unwrap();
    assert!(answered.is_changed);
    front.partition_mut(0).unwrap().accept(&policy, &answered.reply).unwrap();
    assert_eq!(seen(&policy, &front, Span::ZERO).header("ratelimit"), Some(AFTER[0].1));
}

/// Earlier code after a roll-back: it finds its own records by identity and length. It finds those
/// with an unchanged layout, and takes none of today's for its own, whatever their lengths.
#[test]
fn earlier_code_finds_what_did_not_change_and_misreads_nothing() {
    let mut surface = left(POLICY);
    surface.check(&request(), LAST);
    let stored = surface.store.values().next().unwrap();
    let (before, after) = (records(&layout_1()), records(stored));
    assert_eq!((before.len(), after.len()), (2, 2));
    assert_ne!(before[0].0, after[0].0, "the buckets");
    assert_eq!((before[1].0, before[1].1.len()), (after[1].0, after[1].1.len()), "the window");
}

/// Identity and states of every record.
fn records(value: &[u8]) -> Vec<([u8; 4], Vec<u8>)> {
    let (mut rest, mut records) = (value, Vec::new());
    while let Some((id, tail)) = rest.split_first_chunk::<4>() {
        let (len, tail) = tail.split_first_chunk::<4>().unwrap();
        let (states, tail) = tail.split_at(u32::from_le_bytes(*len).try_into().unwrap());
        records.push((*id, states.to_vec()));
        rest = tail;
    }
    records
}
