//! Refunds of a request that does not continue: its own charges, and nothing of other requests'
//! charges.

use std::cell::RefCell;

use crate::support::{Interrupted, Shared, Worker, policy};
use serde_json::json;

const SECOND: u64 = 1_000_000_000;
const NOON: u64 = 43_200 * SECOND;

// Guards: a request of two keys that lost its race for the first one, was to wait and was not
// allowed to. The charge for the second key, which was never made, was subtracted from other
// requests' use.
#[test]
fn what_was_never_committed_is_not_given_back() {
    let rule = |name: &str, key: &serde_json::Value, limit: u32| {
        json!({"name": name, "key": [key], "action": {"delay": {"max": "5m"}},
            "quotas": [{"limit": limit, "window": "1m", "burst": limit}]})
    };
    let rules = [rule("own", &json!({"header": "x-key"}), 1), rule("all", &json!("path"), 5)];
    let policy = json!({"version": 1, "rules": rules});
    let shared = Shared::default();
    let (mut worker, mut other) = (Worker::new(&policy, &shared), Worker::new(&policy, &shared));
    // Both keys are read, and then the other worker is faster.
    let mut meanwhile = |call: usize| {
        if call == 2 {
            assert!(other.ask(&shared, b"client", NOON).0);
        }
    };
    let interrupted = Interrupted {
        shared: &shared,
        meanwhile: RefCell::new(&mut meanwhile),
        calls: RefCell::default(),
    };
    let (passed, stats) = worker.ask(&interrupted, b"client", NOON);
    assert_eq!((passed, stats.retries), (false, 1));
    worker.take_back(&shared, NOON);
    let passed = (0..9).filter(|id| worker.ask(&shared, &[b'a' + id], NOON).0).count();
    assert_eq!(passed, 4, "one of five was used");
}

// Guards: a denial that is remembered although a place in the queue was given back meanwhile.
#[test]
fn a_place_that_is_free_again_is_no_longer_denied() {
    let queue = json!([{"limit": 1, "window": "1m", "burst": 3, "algorithm": "leaky-queue"}]);
    let policy = policy(64, &queue);
    let shared = Shared::default();
    let (mut worker, mut other) = (Worker::new(&policy, &shared), Worker::new(&policy, &shared));
    assert_eq!(worker.passes(&shared, b"client", NOON, 2), 2);
    assert!(other.ask(&shared, b"client", NOON).0);
    assert!(!worker.ask(&shared, b"client", NOON).0, "all three places are taken");
    assert!(other.take_back(&shared, NOON), "it was the last place");
    assert!(worker.ask(&shared, b"client", NOON).0);
}

// Guards: a denial that is repeated until tomorrow, although it came from a charge of a request
// that another key then denied, and that was taken back a moment later.
#[test]
fn what_was_denied_beside_a_charge_that_was_taken_back_is_looked_at_again() {
    let of_day =
        |limit: u32| json!([{"limit": limit, "window": "1d", "algorithm": "fixed-window"}]);
    let policy = json!({"version": 1, "rules": [
        {"name": "each", "key": [{"header": "x-key"}], "quotas": of_day(1)},
        {"name": "all", "when": {"paths": ["/all"]}, "key": [], "quotas": of_day(1)},
    ]});
    let shared = Shared::default();
    let new = || Worker::new(&policy, &shared);
    let (mut worker, mut other, mut third) = (new(), new(), new());
    let mut denied = Vec::new();
    // Both keys are read, and the first is charged; then another request uses up the second.
    let mut meanwhile = |call: usize| {
        if call == 3 {
            assert!(third.told(&shared, ("/all", b"another"), NOON).0.starts_with("Allow"));
            denied.extend((0..3).map(|_| worker.told(&shared, ("/", b"client"), NOON)));
        }
    };
    let interrupted = Interrupted {
        shared: &shared,
        meanwhile: RefCell::new(&mut meanwhile),
        calls: RefCell::default(),
    };
    let (said, _) = other.told(&interrupted, ("/all", b"client"), NOON);
    assert!(said.starts_with("Deny"), "{said}");
    let remembered: Vec<bool> = denied.iter().map(|(_, remembered)| *remembered).collect();
    assert_eq!(remembered, [false, false, true], "{denied:?}");
    assert!(denied.iter().all(|(said, _)| said.starts_with("Deny")), "{denied:?}");
    let (said, _) = worker.told(&shared, ("/", b"client"), NOON);
    assert!(said.starts_with("Allow"), "{said}");
}
