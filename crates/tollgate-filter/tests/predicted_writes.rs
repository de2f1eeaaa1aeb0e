//! Workers that do not read their last writes: next to other workers, and while numbers wrap.
//!
//! Invariant: a worker that predicts decides as a worker that reads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::support::host_map::Numbers;
use crate::support::{Interrupted, Shared, Worker, policy, quota};
use serde_json::{Value, json};
use tollgate_filter::host::shared_data::{SharedData, Stored, Written};
use tollgate_test_support::Random;

const NOW: u64 = 1_000_000_000_000;

/// A host that counts reads of its map, and failed writes.
struct Counted<'a> {
    shared: &'a Shared,
    reads: Cell<usize>,
    losses: Cell<usize>,
}

impl<'a> Counted<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self { shared, reads: Cell::new(0), losses: Cell::new(0) }
    }
}

impl SharedData for Counted<'_> {
    fn get(&self, name: &[u8]) -> Stored {
        self.reads.set(self.reads.get() + 1);
        self.shared.get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        let written = self.shared.set(name, value, cas);
        self.losses.set(self.losses.get() + usize::from(written == Written::Lost));
        written
    }
}

// The purpose: the first request finds nothing, the second learns a number.
#[test]
fn a_worker_alone_reads_a_key_twice() {
    for algorithm in ["gcra", "token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let shared = Shared::default();
        let mut worker = Worker::new(&policy(64, &quota(20, algorithm)), &shared);
        let counted = Counted::new(&shared);
        assert_eq!(worker.passes(&counted, b"k", NOW, 20), 20, "{algorithm}");
        assert_eq!((counted.reads.get(), counted.losses.get()), (2, 0), "{algorithm}");
        assert!(!worker.ask(&counted, b"k", NOW).0);
        assert_eq!(counted.reads.get(), 3, "{algorithm}: a denial is read");
        assert!(!worker.ask(&counted, b"k", NOW).0);
        assert_eq!(counted.reads.get(), 3, "{algorithm}: and remembered");
    }
}

// Any order of requests of several workers under any rules: each gets the result of a worker that
// always reads, and the stored bytes are the same.
#[test]
fn workers_that_take_turns_decide_as_one() {
    const REQUESTS: usize = 1_000;
    let day = |limit: u32| json!({"limit": limit, "window": "1d", "algorithm": "fixed-window"});
    let rule = |name: &str, key: Value, limit: u32| json!({"name": name, "key": key, "quotas": [day(limit)]});
    let with = |mut rule: Value, name: &str, what: Value| {
        rule[name] = what;
        rule
    };
    let (each, all) = (json!([{"header": "x-key"}]), json!([]));
    let of = |rules: Vec<Value>| json!({"version": 1, "rules": rules});
    let documents = [
        policy(64, &quota(40, "gcra")),
        policy(64, &quota(40, "fixed-window")),
        policy(64, &quota(40, "sliding-log")),
        of(vec![rule("each", each.clone(), 40), rule("all", all.clone(), 700)]),
        of(vec![rule("all", all.clone(), 700), rule("each", each.clone(), 20)]),
        of(vec![
            with(rule("each", each.clone(), 5), "mode", json!("shadow")),
            rule("all", all.clone(), 900),
        ]),
        of(vec![
            with(rule("each", each, 40), "charge", json!({"response_status": ["4xx"]})),
            rule("all", all, 500),
        ]),
    ];
    let mut random = Random::new(1);
    for round in 0..documents.len() * 12 {
        let document = &documents[round % documents.len()];
        let numbers = [Numbers::OneSequence, Numbers::PerName(1), Numbers::PerName(3)];
        let (shared, model) =
            (Shared::numbering(numbers[round % numbers.len()]), Shared::default());
        shared.set_latest(u32::MAX - 1_000);
        let mut workers: Vec<Worker> =
            (0..1 + round % 4).map(|_| Worker::new(document, &shared)).collect();
        let mut reader = Worker::new(document, &model);
        for request in 0..REQUESTS {
            let key = [b'k', b'A' + u8::try_from(random.below(30)).unwrap()];
            let number = random.index(workers.len());
            let one = workers[number].ask(&shared, &key, NOW).0;
            // A worker without a past reads everything.
            reader.forget();
            let reads = reader.ask(&model, &key, NOW).0;
            assert_eq!(one, reads, "round {round}, request {request}");
        }
        let stored = |shared: &Shared| {
            // The bytes that a probe leaves are as random as its token.
            let entries = shared.entries().into_iter().filter(|(name, _)| name.len() > 5);
            entries.map(|(name, (value, _))| (name, value)).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(stored(&shared), stored(&model), "round {round}");
    }
}

// Between any two calls of one the other makes a whole request; both predict.
#[test]
fn no_client_gets_more_while_both_predict() {
    let mut random = Random::new(7);
    let (mut learnt, mut most) = (0, 0);
    for round in 0..300 {
        let limit = 30;
        let document = policy(64, &quota(limit, "gcra"));
        let shared = Shared::default();
        shared.set_latest(u32::MAX - 50);
        let mut one = Worker::new(&document, &shared);
        let mut other = Worker::new(&document, &shared);
        let counted = Counted::new(&shared);
        let mut passed = 0;
        let mut passed_other = 0;
        for _ in 0..60 {
            let mut meanwhile = |_: usize| {
                if random.index(1 + round % 5) == 0 {
                    passed_other += usize::from(other.ask(&counted, b"k", NOW).0);
                }
            };
            let host = Interrupted {
                shared: &shared,
                meanwhile: RefCell::new(&mut meanwhile),
                calls: RefCell::new(0),
            };
            passed += usize::from(one.ask(&host, b"k", NOW).0);
        }
        assert_eq!(passed + passed_other, 30, "round {round}");
        learnt += passed_other.saturating_sub(counted.reads.get());
        most += passed_other;
    }
    assert!(learnt > 0, "no prediction in {most} requests");
}

// A bucket that no worker wrote since the numbers wrapped has one that looks later than all: a
// prediction behind it could be the number of a later write, and that write would be lost.
#[test]
fn a_number_of_before_the_wrap_is_not_believed() {
    let document = policy(64, &quota(10, "fixed-window"));
    let shared = Shared::default();
    shared.set_latest(1_000);
    let mut others = Worker::new(&document, &shared);
    let mut one = Worker::new(&document, &shared);
    assert!(others.ask(&shared, b"k", NOW).0);
    let number = shared.latest();
    for behind in 1..8 {
        let shared = shared.copy();
        shared.set_latest(number - behind);
        let mut passed = 1;
        for _ in 0..6 {
            passed += usize::from(one.ask(&shared, b"k", NOW).0);
            passed += others.passes(&shared, b"k", NOW, usize::try_from(behind).unwrap() - 1);
        }
        passed += one.passes(&shared, b"k", NOW, 20);
        assert_eq!(passed, 10, "{behind} behind");
        one.forget();
        others.forget();
    }
}

// A worker that predicted that units were left and lost is denied by the bytes it read then, and
// need not read them again.
#[test]
fn a_denial_after_a_wrong_prediction_is_remembered() {
    let shared = Shared::default();
    let document = policy(64, &quota(4, "fixed-window"));
    let mut one = Worker::new(&document, &shared);
    let mut other = Worker::new(&document, &shared);
    let counted = Counted::new(&shared);
    assert_eq!(one.passes(&counted, b"k", NOW, 3), 3);
    assert!(other.ask(&shared, b"k", NOW).0);
    assert_eq!(counted.losses.get(), 0);
    assert!(!one.ask(&counted, b"k", NOW).0);
    assert_eq!((counted.losses.get(), counted.reads.get()), (1, 3));
    assert!(!one.ask(&counted, b"k", NOW).0);
    assert_eq!(counted.reads.get(), 3);
}

// A worker that remembers that nothing was left finds the units that another gave back.
#[test]
fn a_denial_is_never_predicted() {
    let shared = Shared::default();
    let document = policy(64, &quota(10, "fixed-window"));
    let mut one = Worker::new(&document, &shared);
    let mut other = Worker::new(&document, &shared);
    assert!(other.ask(&shared, b"k", NOW).0);
    assert_eq!(one.passes(&shared, b"k", NOW, 9), 9);
    assert!(other.take_back(&shared, NOW));
    assert!(one.ask(&shared, b"k", NOW).0);
    assert!(!one.ask(&shared, b"k", NOW).0);
}

// Of several keys none is predicted: a key that an old prediction shows as used up would deny the
// others, or leave them uncharged.
#[test]
fn several_keys_are_charged_together() {
    let quota = |limit: u32| json!([{"limit": limit, "window": "1d", "algorithm": "fixed-window"}]);
    let document = json!({"version": 1, "rules": [
        {"name": "each", "key": [{"header": "x-key"}], "quotas": quota(10)},
        {"name": "all", "key": [], "quotas": quota(4)},
    ]});
    let shared = Shared::default();
    let mut one = Worker::new(&document, &shared);
    let mut other = Worker::new(&document, &shared);
    assert!(other.ask(&shared, b"a", NOW).0);
    assert_eq!(one.passes(&shared, b"a", NOW, 3), 3);
    assert!(other.take_back(&shared, NOW));
    let before = shared.entries().len();
    assert!(one.ask(&shared, b"b", NOW).0, "one was given back");
    assert_eq!(shared.entries().len(), before + 1, "the key of its own is charged, too");
}

// The same in the other order: a charge next to a shadow that denies is charged once. Logs are too
// long to be remembered, so only one of the two could be predicted.
#[test]
fn several_keys_are_charged_once() {
    let document = json!({"version": 1, "rules": [
        {"name": "each", "key": [{"header": "x-key"}], "mode": "shadow",
            "quotas": [{"limit": 1, "window": "1d", "algorithm": "fixed-window"}]},
        {"name": "all", "key": [],
            "quotas": [{"limit": 1000, "window": "1d", "algorithm": "sliding-log"}]},
    ]});
    let shared = Shared::default();
    let mut one = Worker::new(&document, &shared);
    let twice = (0..1_000_u32).flat_map(|key| [key, key]);
    let passed = twice.filter(|key| one.ask(&shared, key.to_string().as_bytes(), NOW).0).count();
    assert_eq!(passed, 1_000);
}
