//! Tables that change their size: no client is forgotten and none is counted twice, whichever
//! worker reads when.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use crate::support::{Interrupted, Shared, Worker, policy, quota};
use serde_json::Value;

const NOW: u64 = 1_000_000_000_000;

fn sized(capacity: u32) -> Value {
    policy(capacity, &quota(5, "gcra"))
}

fn key(number: usize) -> Vec<u8> {
    format!("client-{number}").into_bytes()
}

/// Uses up the quotas of `count` keys.
fn exhaust(worker: &mut Worker, shared: &Shared, count: usize) {
    for number in 0..count {
        assert_eq!(worker.passes(shared, &key(number), NOW, 9), 5);
    }
}

fn all_are_refused(worker: &mut Worker, shared: &Shared, count: usize) {
    for number in 0..count {
        assert_eq!(worker.passes(shared, &key(number), NOW, 9), 0, "key {number}");
    }
}

// A larger capacity, by one step and by many at once, and back: a client that has used everything
// stays denied.
#[test]
fn another_capacity_forgets_nobody() {
    for sizes in [&[64, 128][..], &[64, 4096, 64, 100_000], &[64, 65, 1000, 4, 1_000_000, 200]] {
        let shared = Shared::default();
        exhaust(&mut Worker::new(&sized(sizes[0]), &shared), &shared, 60);
        for capacity in &sizes[1..] {
            let mut worker = Worker::new(&sized(*capacity), &shared);
            all_are_refused(&mut worker, &shared, 60);
        }
        // And new keys are counted as usual.
        for capacity in &sizes[1..] {
            let mut worker = Worker::new(&sized(*capacity), &shared);
            assert_eq!(worker.passes(&shared, b"new", NOW, 1), 1, "{capacity}");
        }
    }
}

// The table was too small: all of its ways are taken when the operator asks for a larger one.
#[test]
fn a_full_table_grows_without_loss() {
    let shared = Shared::default();
    let mut worker = Worker::new(&sized(64), &shared);
    let mut evicted = 0;
    for number in 0..2_000 {
        for _ in 0..5 {
            evicted += worker.ask(&shared, &key(number), NOW).1.evictions;
        }
    }
    assert!(evicted > 0, "it is full");
    let kept = |shared: &Shared, worker: &mut Worker| -> Vec<usize> {
        // Reading changes nothing: a read is a request that is denied.
        (0..2_000).filter(|number| is_known(shared, worker, *number)).collect()
    };
    let before = kept(&shared, &mut worker);
    assert_eq!(before.len(), 128, "eight buckets of sixteen");
    let mut larger = Worker::new(&sized(16_384), &shared);
    let mut lost = 0;
    for number in 10_000..14_000 {
        lost += larger.ask(&shared, &key(number), NOW).1.evictions;
    }
    assert_eq!(lost, 0, "full buckets are halved before a key is evicted");
    for number in before {
        assert_eq!(larger.passes(&shared, &key(number), NOW, 9), 0, "key {number}");
    }
}

/// True when the key is in the table; read from a copy, so that nothing is changed.
fn is_known(shared: &Shared, worker: &mut Worker, number: usize) -> bool {
    let copy = Shared::default();
    shared.entries().iter().for_each(|(name, (value, _))| copy.put(name, value));
    worker.forget();
    !worker.ask(&copy, &key(number), NOW).0
}

// A smaller capacity frees no memory, so no client loses its count; the log informs the operator.
#[test]
fn a_smaller_capacity_is_said_in_the_log() {
    let shared = Shared::default();
    assert_eq!(Worker::new(&sized(65_536), &shared).log, Vec::<String>::new());
    assert_eq!(Worker::new(&sized(65_536), &shared).log, Vec::<String>::new());
    let line = "the table of rule \"r\" keeps the room for 65536 keys that it once had, until Envoy restarts: no \
                count is forgotten for a smaller \"capacity\"";
    assert_eq!(Worker::new(&sized(1000), &shared).log, [line]);
    assert_eq!(Worker::new(&sized(131_072), &shared).log, Vec::<String>::new());
}

// The map of a filter of layout 1: its counts cannot be read, and the operator that updates must
// know.
#[test]
fn counts_of_layout_1_are_said_to_be_lost() {
    let shared = Shared::default();
    shared.put(b"\x01seed", &[1; 16]);
    let line = "counts of an earlier version of this filter are not read: every key starts afresh";
    assert_eq!(Worker::new(&sized(64), &shared).log, [line]);
    assert_eq!(Worker::new(&sized(64), &shared).log, Vec::<String>::new(), "it is said once");
}

// An extent that no worker can have written: everything is still found.
#[test]
fn a_broken_extent_forgets_nobody() {
    let shared = Shared::default();
    let mut worker = Worker::new(&sized(1000), &shared);
    exhaust(&mut worker, &shared, 100);
    let name = worker.config.tables[0].extent_name();
    for broken in [&b""[..], b"\x02", b"\x02\x09\x03", b"\x01\x01\x01\x01"] {
        shared.put(&name, broken);
        all_are_refused(&mut Worker::new(&sized(4000), &shared), &shared, 100);
    }
}

/// One request by one worker in which, before its host call number `at`, another worker makes one.
fn interrupted(
    shared: &Shared,
    (one, other): (&mut Worker, &mut Worker),
    (keys, at): ([&[u8]; 2], usize),
) -> (usize, bool) {
    let mut admitted = 0;
    let mut reached = false;
    let mut meanwhile = |call: usize| {
        if call == at {
            reached = true;
            admitted += usize::from(other.ask(shared, keys[1], NOW).0);
        }
    };
    let host =
        Interrupted { shared, meanwhile: RefCell::new(&mut meanwhile), calls: RefCell::new(0) };
    let mine = usize::from(one.ask(&host, keys[0], NOW).0);
    (mine + admitted, reached)
}

// Workers with the old and the new policy serve at the same time, until connections are drained.
// Between any two host calls of one the other makes a whole request: of the same key five requests
// are allowed in all, at every moment.
#[test]
fn old_and_new_workers_count_together_at_every_moment() {
    for (small, large) in [(4, 64), (4, 4096), (1000, 4096)] {
        for used in 0..5 {
            for new_first in [true, false] {
                for at in 0..40 {
                    let shared = Shared::default();
                    let mut old = Worker::new(&sized(small), &shared);
                    let name = key(used * 100 + at);
                    assert_eq!(old.passes(&shared, &name, NOW, used), used);
                    let mut new = Worker::new(&sized(large), &shared);
                    let both = if new_first { (&mut new, &mut old) } else { (&mut old, &mut new) };
                    let (passed, reached) = interrupted(&shared, both, ([&name, &name], at));
                    let asked = 1 + usize::from(reached);
                    assert_eq!(
                        passed,
                        asked.min(5 - used),
                        "{small} to {large}, {used}, call {at}"
                    );
                    for turn in 0..5 - used - passed {
                        let worker = if turn % 2 == 0 { &mut old } else { &mut new };
                        assert!(worker.ask(&shared, &name, NOW).0);
                    }
                    assert!(!old.ask(&shared, &name, NOW).0 && !new.ask(&shared, &name, NOW).0);
                }
            }
        }
    }
}

// Keys of one bucket that are moved at the same time by different workers.
#[test]
fn neighbours_that_move_together_stay_counted() {
    for at in 0..40 {
        for (mine, other) in [(0, 1), (1, 2), (3, 0)] {
            let shared = Shared::default();
            let mut old = Worker::new(&sized(4), &shared);
            exhaust(&mut old, &shared, 12);
            let mut one = Worker::new(&sized(256), &shared);
            let mut two = Worker::new(&sized(4096), &shared);
            let keys = [&key(mine)[..], &key(other)];
            assert_eq!(interrupted(&shared, (&mut one, &mut two), (keys, at)).0, 0);
            for worker in [&mut old, &mut one, &mut two] {
                all_are_refused(worker, &shared, 12);
            }
        }
    }
}

// The same fresh keys on eight threads whose policies ask for tables of four sizes: every key is
// allowed five times. The smallest has room for all of them, so that no key has to leave it,
// whichever thread comes first.
#[test]
fn fresh_keys_are_exact_while_the_table_grows() {
    const KEYS: usize = if cfg!(debug_assertions) { 600 } else { 5_000 };
    const SMALLEST: u32 = if cfg!(debug_assertions) { 2_048 } else { 16_384 };
    let shared = Shared::default();
    let passed: Mutex<BTreeMap<usize, usize>> = Mutex::default();
    // The first workers start before the table grows.
    drop(Worker::new(&sized(SMALLEST), &shared));
    thread::scope(|scope| {
        for (thread, times) in [1, 32, 2, 128, 8, 1, 32, 512].into_iter().enumerate() {
            let (shared, passed) = (&shared, &passed);
            scope.spawn(move || {
                let mut worker = None;
                for number in 0..KEYS {
                    if number == thread * KEYS / 16 || worker.is_none() {
                        // Later ones find a table that is in use.
                        let asked = if number == 0 && thread > 3 { 1 } else { times };
                        worker = Some(Worker::new(&sized(asked * SMALLEST), shared));
                    }
                    let worker = worker.as_mut().unwrap();
                    let name = key(number);
                    for _ in 0..2 {
                        let (passes, stats) = worker.ask(shared, &name, NOW);
                        assert_eq!((stats.evictions, stats.failures), (0, 0));
                        *passed.lock().unwrap().entry(number).or_default() += usize::from(passes);
                    }
                }
            });
        }
    });
    let passed = passed.into_inner().unwrap();
    let wrong: Vec<_> = passed.iter().filter(|(_, passes)| **passes != 5).collect();
    assert_eq!((passed.len(), wrong), (KEYS, vec![]));
}
