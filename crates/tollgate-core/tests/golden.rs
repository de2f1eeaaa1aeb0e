//! The bytes of every state, written down: a change here is a new version of the layouts. The bytes
//! of the earlier version stay here with their conversion.

use crate::support;
use crate::support::arbitrary::{Key, at};
use crate::support::format::parse;
use crate::support::replay;
use tollgate_core::{Charge, ENCODING_VERSION, Limiter, Span};

const START: u64 = 0x1122_3344_5566_7788;

const BUCKETS: &str = "sliding-buckets limit=5 window=1.048576ms buckets=4";

fn limiter(quota: &str) -> Limiter {
    let case = parse("golden", &format!("case: golden\nquota: {quota}")).expect("a quota line");
    replay::limiter(&case[0].quotas[0])
}

/// A key after these costs at `START + after` each.
fn charged(quota: &str, charges: &[(u64, u64)]) -> Key {
    let mut key = Key::new(limiter(quota));
    for (after, cost) in charges {
        assert!(key.check(START + after, *cost).is_admitted());
    }
    key
}

/// The state after these costs, as hexadecimal bytes, a space between fields.
fn bytes(quota: &str, charges: &[(u64, u64)], fields: &[usize]) -> String {
    let key = charged(quota, charges);
    assert_eq!(fields.iter().sum::<usize>(), key.state.len(), "state_len");
    let mut rest = key.state.as_slice();
    let mut written = Vec::new();
    for length in fields {
        let (field, tail) = rest.split_at(*length);
        written.push(field.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        rest = tail;
    }
    written.join(" ")
}

#[test]
fn the_version_is_the_one_these_bytes_belong_to() {
    assert_eq!(ENCODING_VERSION, 2);
}

#[test]
fn the_kin_of_gcra() {
    // T = 256 ns (0x100): TAT = START + 3 x T.
    let rate = "limit=10000 window=2.56ms burst=5";
    let charges = [(0, 2), (1, 1)];
    assert_eq!(bytes(&format!("gcra {rate}"), &charges, &[8]), "887a665544332211");
    assert_eq!(bytes(&format!("leaky-queue {rate}"), &charges, &[8]), "887a665544332211");
    // Three tokens missing since START.
    assert_eq!(
        bytes(&format!("token-bucket {rate}"), &charges, &[8, 8]),
        "0300000000000000 8877665544332211"
    );
    // A level of 3 x T - 1 ns at START + 1 ns.
    assert_eq!(
        bytes(&format!("leaky-bucket {rate}"), &charges, &[8, 8]),
        "ff02000000000000 8977665544332211"
    );
}

#[test]
fn the_windows() {
    // START / 2^20 ns = 0x11223344556, and the next.
    let window = "limit=5 window=1.048576ms";
    let charges = [(0, 2), (1 << 20, 3)];
    assert_eq!(
        bytes(&format!("fixed-window {window}"), &charges, &[8, 8]),
        "5745342312010000 0300000000000000"
    );
    assert_eq!(
        bytes(&format!("sliding-window {window}"), &charges, &[8, 8, 8]),
        "5745342312010000 0200000000000000 0300000000000000"
    );
}

#[test]
fn the_sub_windows() {
    // Four of 2^18 ns: START is in 0x4488cd11559, a multiple of 5: at place 0; then the next, at 1.
    // The oldest with any units is one older than the newest, and 5 units are in all.
    let charges = [(0, 2), (1 << 18, 3)];
    assert_eq!(
        bytes(BUCKETS, &charges, &[8, 2, 6, 4, 4, 4, 4, 4]),
        "5a15d18c48040000 0100 050000000000 02000000 03000000 00000000 00000000 00000000"
    );
}

/// The bytes of layout 1 for the same charges, and their conversion.
#[test]
fn the_sub_windows_of_layout_1() {
    let earlier: [[u8; 4]; 7] = [
        [0x5a, 0x15, 0xd1, 0x8c],
        [0x48, 0x04, 0, 0],
        [2, 0, 0, 0],
        [3, 0, 0, 0],
        [0; 4],
        [0; 4],
        [0; 4],
    ];
    let mut key = Key::new(limiter(BUCKETS));
    assert_eq!((key.limiter.state_version(), key.limiter.state_len()), (2, 36));
    assert_eq!(key.limiter.state_len_in(1), Some(28));
    assert!(key.limiter.convert(1, earlier.as_flattened(), &mut key.state));
    let charged = charged(BUCKETS, &[(0, 2), (1 << 18, 3)]);
    assert_eq!(key.state, charged.state);
}

#[test]
fn the_log() {
    // Oldest at place 0, two entries; then at place 2 after the ring of 3 has turned.
    let log = "sliding-log limit=3 window=1ms";
    assert_eq!(
        bytes(log, &[(0, 1), (1, 1)], &[4, 4, 8, 8, 8]),
        "00000000 02000000 8877665544332211 8977665544332211 0000000000000000"
    );
    assert_eq!(
        bytes(log, &[(0, 2), (1, 1), (1_000_000, 1)], &[4, 4, 8, 8, 8]),
        "02000000 02000000 c8b9755544332211 8877665544332211 8977665544332211"
    );
}

#[test]
fn all_zero_bytes_are_never_seen_at_any_time() {
    for case in support::format::all() {
        for line in &case.quotas {
            let key = Key::new(replay::limiter(line));
            for now in [0, 1, START, u64::MAX] {
                assert_eq!(key.peek(now, 0).remaining, key.limiter.capacity());
                assert_eq!(key.limiter.idle_at(&key.state), at(0));
            }
        }
    }
}

/// A refund writes the same layout.
#[test]
fn a_refund_keeps_the_layout() {
    for case in support::format::all() {
        let mut key = Key::new(replay::limiter(&case.quotas[0]));
        assert!(key.check(START, 1).is_admitted());
        let charge = Charge { at: at(START), cost: 1, delay: Span::ZERO };
        key.limiter.refund(&mut key.state, charge, at(START));
        assert_eq!(key.peek(START, 0).remaining, key.limiter.capacity());
        assert!(key.limiter.idle_at(&key.state) <= at(START + case.quotas[0].window_ns));
    }
}
