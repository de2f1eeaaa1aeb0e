//! An instance of the filter that traps is created again (`failure_policy: FAIL_RELOAD`), with the
//! policy of its listener, which may be drained and have an earlier policy. The built module gets
//! no notice of this: it is configured as at a roll-back.

use serde_json::{Value, json};
use tollgate_test_support::Random;

use crate::envoy_host::{Answer, Filter, Shared};

/// An hour: nothing is returned while a test runs.
const NOW: u64 = 3_600_000_000_000;
const EARLIER: u64 = 30;
const LATER: u64 = 10;

fn policy(limit: u64) -> Value {
    let quota = json!({"name": "day", "algorithm": "sliding-log", "limit": limit, "window": "1d"});
    json!({"version": 1, "rules": [{"name": "r", "key": [{"header": "x-key"}], "quotas": [quota]}]})
}

fn is_admitted(worker: &mut Filter, key: &str) -> bool {
    matches!(worker.request(NOW, &[(":path", b"/"), ("x-key", key.as_bytes())]), Answer::Passed(_))
}

/// How many of a hundred requests of a key are allowed.
fn admitted(worker: &mut Filter, key: &str) -> u64 {
    (0..100).map(|_| u64::from(is_admitted(worker, key))).sum()
}

// Guards: a reload in a drained listener as a way to a fresh count. It makes the earlier policy the
// newest one again, and the keys that it sees continue under it. No key gets more than the larger
// of the two limits, and the next configuration of the later policy is the newest again.
#[test]
fn a_reload_with_an_earlier_policy_gives_nobody_a_fresh_count() {
    let shared = Shared::default();
    let mut drained = Filter::new(&policy(EARLIER), &shared);
    assert_eq!(admitted(&mut drained, "before"), EARLIER);
    let mut serving = Filter::new(&policy(LATER), &shared);
    assert_eq!(admitted(&mut serving, "before"), 0, "what was used is carried");
    assert_eq!(admitted(&mut serving, "both"), LATER);
    assert_eq!(admitted(&mut drained, "both"), 0, "the newer policy's key");
    drained = Filter::new(&policy(EARLIER), &shared);
    assert_eq!(admitted(&mut drained, "both"), EARLIER - LATER, "the difference, once");
    assert_eq!(admitted(&mut serving, "both"), 0);
    assert_eq!(admitted(&mut serving, "later"), LATER, "a key that only the serving one has met");
    assert_eq!(admitted(&mut serving, "before"), 0);
    serving = Filter::new(&policy(LATER), &shared);
    for key in ["before", "both", "later"] {
        assert_eq!([admitted(&mut serving, key), admitted(&mut drained, key)], [0, 0], "{key}");
    }
    assert_eq!(admitted(&mut serving, "new"), LATER);
    assert_eq!(admitted(&mut drained, "new"), 0);
}

// Guards: a sequence of reloads and requests by which a key gets more than the changes themselves
// give: each time the larger limit replaces the smaller, the difference.
#[test]
fn however_often_instances_are_made_anew_only_a_change_gives_more() {
    const KEYS: u64 = 12;
    let shared = Shared::default();
    let limits = [EARLIER, LATER];
    let mut workers = limits.map(|limit| Filter::new(&policy(limit), &shared));
    let (mut counts, mut random) = (vec![0; KEYS as usize], Random::new(1));
    // The worker with the newest policy, and how often the earlier policy became that.
    let (mut newest, mut changes) = (1, 0);
    for step in 0..4_000 {
        let (worker, key) = (random.index(2), random.below(KEYS));
        if random.one_in(400) {
            workers[worker] = Filter::new(&policy(limits[worker]), &shared);
            changes += u64::from(newest == 1 && worker == 0);
            newest = worker;
        }
        counts[key as usize] += u64::from(is_admitted(&mut workers[worker], &format!("k{key}")));
        let most = EARLIER + changes * (EARLIER - LATER);
        assert!(counts[key as usize] <= most, "step {step}, {changes} changes: {counts:?}");
    }
    assert!(changes > 0 && counts.iter().all(|count| *count >= EARLIER), "{counts:?}");
}
