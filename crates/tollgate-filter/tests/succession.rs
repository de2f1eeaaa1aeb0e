//! Another policy over the same tables: the counts of clients continue, whichever worker has which
//! policy when, and a remembered client keeps its place.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::{Interrupted, Shared, Worker, policy, quota};
use serde_json::{Value, json};
use tollgate_core::Algorithm;
use tollgate_filter::host::shared_data::{SharedData, Stored, Written};

const NOW: u64 = 43_200 * 1_000_000_000;

fn of(limit: u32, algorithm: &str) -> Value {
    policy(64, &quota(limit, algorithm))
}

fn log_of(limit: u32) -> Value {
    of(limit, "sliding-log")
}

fn key(number: usize) -> Vec<u8> {
    format!("client-{number}").into_bytes()
}

/// A host that counts the calls to its map.
struct Counted<'a>(&'a Shared, Cell<usize>);

impl SharedData for Counted<'_> {
    fn get(&self, name: &[u8]) -> Stored {
        self.1.set(self.1.get() + 1);
        self.0.get(name)
    }
    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        self.1.set(self.1.get() + 1);
        self.0.set(name, value, cas)
    }
}

// Every algorithm: with a raised limit only the difference is left; with a lowered one nothing; and
// a client that used nothing is as new.
#[test]
fn a_change_gives_nobody_a_fresh_count() {
    for algorithm in Algorithm::ALL.map(Algorithm::name) {
        let shared = Shared::default();
        let mut before = Worker::new(&of(10, algorithm), &shared);
        for number in 0..40 {
            assert_eq!(
                before.passes(&shared, &key(number), NOW, 1 + number % 12),
                (1 + number % 12).min(10)
            );
        }
        let mut raised = Worker::new(&of(30, algorithm), &shared);
        for number in 0..40 {
            let used = (1 + number % 12).min(10);
            let left = raised.passes(&shared, &key(number), NOW, 40);
            // The places of a queue are times: those after its end are 1/30 of a day apart.
            let most = if algorithm == "leaky-queue" { 30 - 3 * used } else { 30 - used };
            assert_eq!(left, most, "{algorithm}: {number} used {used}");
        }
        let mut lowered = Worker::new(&of(5, algorithm), &shared);
        for number in 0..40 {
            assert_eq!(lowered.passes(&shared, &key(number), NOW, 40), 0, "{algorithm}: {number}");
        }
        // A denial is enough for it to apply to a worker that is being replaced.
        for number in 0..40 {
            assert_eq!(before.passes(&shared, &key(number), NOW, 40), 0, "{algorithm}: {number}");
        }
        assert_eq!(raised.passes(&shared, b"new", NOW, 40), 30);
        assert_eq!(raised.log, Vec::<String>::new());
    }
}

// The host cost of a request is the same as usual once its record is of the worker's own policy, in
// values that fill a word and in those that do not; the first request after a change reads the
// directory.
#[test]
fn only_the_first_request_after_a_change_reads_the_directory() {
    let parts = |limit| json!([{"limit": limit, "window": "1d", "algorithm": "sliding-buckets", "buckets": 5}]);
    for (before, after) in
        [(log_of(10), log_of(20)), (policy(64, &parts(10)), policy(64, &parts(20)))]
    {
        let shared = Shared::default();
        let mut old = Worker::new(&before, &shared);
        let counted = Counted(&shared, Cell::new(0));
        let calls = |worker: &mut Worker| {
            let before = counted.1.get();
            assert!(worker.ask(&counted, b"k", NOW).0);
            counted.1.get() - before
        };
        assert_eq!([calls(&mut old), calls(&mut old)], [2, 2]);
        let mut new = Worker::new(&after, &shared);
        // Its third need not be read: no worker wrote since.
        assert_eq!([calls(&mut new), calls(&mut new), calls(&mut new)], [3, 2, 1]);
        // The other worker is being replaced: it reads for each of its requests, and its prediction
        // is lost.
        assert_eq!([calls(&mut old), calls(&mut old)], [4, 3]);
    }
}

// Four workers, two of which have the newer policy, race over some keys; no key gets more than it
// gives, and every key gets all of it.
#[test]
fn workers_of_both_policies_admit_together_what_the_newer_one_gives() {
    for (limit, used) in [(40, 25), (25, 20)] {
        let shared = Shared::default();
        let mut old = Worker::new(&log_of(30), &shared);
        for number in 0..20 {
            assert_eq!(old.passes(&shared, &key(number), NOW, used), used);
        }
        // One request of each client is enough for the newer policy to see it.
        let mut new = Worker::new(&log_of(limit), &shared);
        for number in 0..20 {
            assert!(new.ask(&shared, &key(number), NOW).0);
        }
        let admitted: Vec<AtomicUsize> = (0..20).map(|_| AtomicUsize::new(used + 1)).collect();
        thread::scope(|scope| {
            for document in [log_of(30), log_of(limit), log_of(30), log_of(limit)] {
                let (shared, admitted) = (&shared, &admitted);
                let is_newer = document == log_of(limit);
                scope.spawn(move || {
                    // The older ones were configured before: the newest is registered last.
                    let mut worker = if is_newer {
                        Worker::new(&document, shared)
                    } else {
                        Worker::late(&document, shared)
                    };
                    for request in 0..5_000 {
                        let number = request % 20;
                        if worker.ask(shared, &key(number), NOW).0 {
                            admitted[number].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        for (number, admitted) in admitted.iter().enumerate() {
            let admitted = u32::try_from(admitted.load(Ordering::Relaxed)).unwrap();
            assert_eq!(admitted, limit, "key {number}, {used} of 30 and then {limit}");
        }
    }
}

// Full buckets with some keys that were denied under another policy: a flood of new keys takes none
// of their places, neither at a worker of the newer policy nor at one that does not know it.
#[test]
fn a_flood_takes_no_place_of_who_was_refused_under_another_policy() {
    let small = |limit| policy(4, &quota(limit, "gcra"));
    let limits = [(4, 1000, "the newer one"), (1000, 4, "the older one")];
    for (older, newer, flooded) in limits {
        let shared = Shared::default();
        let mut old = Worker::new(&small(older), &shared);
        let mut new = Worker::new(&small(newer), &shared);
        let (strict, lax) = if older == 4 { (&mut old, &mut new) } else { (&mut new, &mut old) };
        for number in 0..3 {
            assert_eq!(strict.passes(&shared, &key(number), NOW, 9), 4);
        }
        let mut evicted = 0;
        for number in 1_000..3_000 {
            evicted += lax.ask(&shared, &key(number), NOW).1.evictions;
        }
        assert!(evicted > 1_000, "it is full: {evicted}");
        strict.forget(); // the denials it saw itself
        for number in 0..3 {
            assert_eq!(strict.passes(&shared, &key(number), NOW, 9), 0, "{flooded}, key {number}");
        }
    }
}

// A client that is denied under the newer policy is denied by the older one from then on, and may
// return at the reported time.
#[test]
fn a_refusal_is_written_once() {
    let shared = Shared::default();
    let mut old = Worker::new(&of(10, "gcra"), &shared);
    assert_eq!(old.passes(&shared, b"k", NOW, 6), 6);
    let mut new = Worker::new(&of(3, "gcra"), &shared);
    let counted = Counted(&shared, Cell::new(0));
    assert!(!new.ask(&counted, b"k", NOW).0);
    assert_eq!(counted.1.take(), 3, "the bucket, the directory, and what was carried");
    new.forget();
    assert!(!new.ask(&counted, b"k", NOW).0);
    assert_eq!(counted.1.take(), 1);
    assert_eq!(old.passes(&shared, b"k", NOW, 9), 0);
    let third_of_a_day = 28_800 * 1_000_000_000;
    assert_eq!(new.passes(&shared, b"k", NOW + third_of_a_day - 1, 1), 0);
    assert_eq!(new.passes(&shared, b"k", NOW + third_of_a_day, 9), 1);
}

/// The name of the only table's directory.
fn directory(worker: &Worker) -> [u8; 10] {
    worker.config.tables[0].directory_name()
}

#[test]
fn a_damaged_directory_is_said_and_begins_anew() {
    let shared = Shared::default();
    let mut old = Worker::new(&log_of(10), &shared);
    assert_eq!(old.passes(&shared, b"k", NOW, 6), 6);
    let name = directory(&old);
    let (whole, _) = shared.entries()[&name[..]].clone();
    for damaged in
        [&[][..], &[9], &whole[..whole.len() - 1], &[&whole[..], &[0]].concat(), &[255; 64]]
    {
        shared.put(&name, damaged);
        // A running worker continues, and has no cost for reading it.
        assert_eq!(old.passes(&shared, b"other", NOW, 1), 1);
        let new = Worker::new(&log_of(20), &shared);
        let line = "the directory was damaged: counts that were used under other quotas of rule \"r\" start again";
        assert_eq!(new.log, [line]);
        assert_eq!(Worker::new(&log_of(20), &shared).log, Vec::<String>::new());
    }
    // The worker's own quotas are in no directory any more; its records are its own.
    assert_eq!(old.passes(&shared, b"k", NOW, 9), 4);
}

#[test]
fn a_full_directory_is_said() {
    let shared = Shared::default();
    let said: Vec<String> =
        (1..=300).flat_map(|limit| Worker::new(&log_of(limit), &shared).log).collect();
    assert_eq!(said.len(), 43);
    assert_eq!(
        said[0],
        "the directory is full: counts that were used long ago under other quotas of rule \"r\" start again"
    );
    let (bytes, _) = shared.entries()[&directory(&Worker::new(&log_of(300), &shared))[..]].clone();
    assert!(bytes.len() < 20_000, "{}", bytes.len());
}

// Another worker is configured between any two steps of one: both are in the directory, whose last
// one is the newer.
#[test]
fn workers_that_are_configured_at_once_agree() {
    for call in 0..6 {
        let shared = Shared::default();
        let mut before = Worker::new(&log_of(5), &shared);
        assert_eq!(before.passes(&shared, b"k", NOW, 9), 5);
        let mut others = vec![];
        let mut meanwhile = |at| {
            if at == call {
                others.push(Worker::new(&log_of(7), &shared));
                others.push(Worker::new(&log_of(9), &shared));
            }
        };
        let interrupted = Interrupted {
            shared: &shared,
            meanwhile: RefCell::new(&mut meanwhile),
            calls: RefCell::new(0),
        };
        let mut same = Worker::new(&log_of(9), &interrupted);
        let mut admitted = 0;
        for worker in others.iter_mut().chain([&mut same]) {
            admitted += worker.passes(&shared, b"k", NOW, 9);
        }
        assert_eq!(admitted, 4, "interrupted before call {call}");
        let [seven, ..] = &mut others[..] else { continue };
        assert_eq!(seven.passes(&shared, b"k", NOW, 9), 0);
    }
}

// The host stops responding about the directory alone: the last good one is used, and a worker that
// has none counts the quotas it knows.
#[test]
fn an_unreachable_directory_stops_nobody() {
    struct Silent<'a>(&'a Shared, [u8; 10]);
    impl SharedData for Silent<'_> {
        fn get(&self, name: &[u8]) -> Stored {
            if name == self.1 { Stored::Unreachable } else { self.0.get(name) }
        }
        fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
            self.0.set(name, value, cas)
        }
    }
    let shared = Shared::default();
    let mut old = Worker::new(&log_of(10), &shared);
    let silent = Silent(&shared, directory(&old));
    assert_eq!(old.passes(&silent, b"k", NOW, 6), 6);
    let mut new = Worker::new(&log_of(20), &shared);
    assert_eq!(new.passes(&silent, b"k", NOW, 40), 14, "read when it was configured");
}
