//! Hosts that number the writes of their map in other ways than Envoy.
//!
//! Invariant: a host on which counts are exact is never rejected, whatever other workers do while
//! the probe runs; a number is predicted only where all writes have one sequence of numbers.

use std::cell::RefCell;
use std::thread;

use crate::support::host_map::Numbers;
use crate::support::{Shared, Worker, policy, quota, token};
use tollgate_filter::counts::numbering::{Numbering, probe};
use tollgate_filter::host::shared_data::{SharedData, Stored, Written};
use tollgate_test_support::Random;

type Result = std::result::Result<Numbering, &'static str>;

const SEQUENCE: Result = Ok(Numbering::OneSequence);
const UNPROVED: Result = Ok(Numbering::Unproved);

/// The expected result of a host's probe, and a word of the reason for its rejection.
const HOSTS: [(Numbers, std::result::Result<Numbering, &str>); 9] = [
    (Numbers::OneSequence, SEQUENCE),
    (Numbers::PerName(1), UNPROVED),
    (Numbers::PerName(7), UNPROVED),
    (Numbers::FromZero, Err("it numbers a write 0")),
    (Numbers::StrictInsertion, Err("it does not insert a value")),
    (Numbers::Given, Err("it replaces a value under the number 4294967295")),
    (Numbers::Unconditional, Err("it replaces a value under the number 4294967295")),
    (Numbers::OfBytes, Err("it accepts a write under the number of an earlier write")),
    (Numbers::NeverReplaced, Err("it refuses a write under the value's own number")),
];

fn assert_is(result: Result, expected: Result, what: &str) {
    match (result, expected) {
        (Err(why), Err(word)) => assert!(why.contains(word), "{what}: {why}"),
        (result, expected) => assert_eq!(result, expected, "{what}"),
    }
}

// Guards: limits that are exceeded because a host's numbers have another meaning than Envoy's.
#[test]
fn each_host_is_refused_or_counted_on_exactly() {
    for (numbers, expected) in HOSTS {
        let shared = Shared::numbering(numbers);
        // The later workers find the result of the first, or are rejected like it.
        for worker in 0..3 {
            assert_is(probe(&shared, &token()), expected, &format!("{numbers:?}, {worker}"));
        }
        let names = shared.entries().len();
        assert!(names <= 2, "{numbers:?}: {names} names that are never deleted");
    }
}

#[test]
fn no_shared_data_is_a_reason() {
    struct Nothing;
    impl SharedData for Nothing {
        fn get(&self, _: &[u8]) -> Stored {
            Stored::Unreachable
        }
        fn set(&self, _: &[u8], _: &[u8], _: u32) -> Written {
            Written::Unreachable
        }
    }
    assert_is(probe(&Nothing, &token()), Err("no shared data"), "nothing");
}

// Envoy's numbers wrap after 2^32 writes: a value has the number of an insertion then.
#[test]
fn a_probe_while_numbers_wrap_refuses_nothing() {
    for before in 0..40 {
        let shared = Shared::default();
        shared.set_latest(u32::MAX - before);
        let first = probe(&shared, &token());
        assert!(first.is_ok(), "{before} before the wrap: {first:?}");
        let shared = Shared::default();
        // Bytes that are not a result, under the number of an insertion.
        shared.set_latest(u32::MAX - 1);
        shared.put(b"\x02cas1", b"?");
        assert_eq!(probe(&shared, &token()), SEQUENCE);
    }
}

/// A host on which, before each call of a probe, other workers write and probe; they are disturbed
/// in the same way.
struct Busy<'a> {
    shared: &'a Shared,
    random: &'a RefCell<Random>,
    /// One call in this many is preceded by another worker's probe.
    others: u64,
    depth: u32,
    results: &'a RefCell<Vec<Result>>,
}

impl Busy<'_> {
    fn one_in(&self, n: u64) -> bool {
        self.random.borrow_mut().one_in(n)
    }

    fn interrupt(&self) {
        if self.one_in(2) {
            self.shared.put(b"bucket", b"of a request");
        }
        if self.depth > 0 && self.one_in(self.others) {
            let result = probe(&Busy { depth: self.depth - 1, ..*self }, &token());
            self.results.borrow_mut().push(result);
        }
    }
}

impl SharedData for Busy<'_> {
    fn get(&self, name: &[u8]) -> Stored {
        self.interrupt();
        self.shared.get(name)
    }

    fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        self.interrupt();
        self.shared.set(name, value, cas)
    }
}

// Guards: an Envoy under load whose workers refuse to start because they probe at the same time,
// and a host that passes for Envoy because another worker wrote in the middle of a probe.
#[test]
fn a_probe_that_others_disturb_concludes_nothing_else() {
    for (numbers, expected) in HOSTS {
        let random = RefCell::new(Random::new(9));
        let (mut probes, mut disturbed) = (0, 0);
        for round in 0..400_u64 {
            let shared = Shared::numbering(numbers);
            let results = RefCell::new(vec![]);
            let busy = Busy {
                shared: &shared,
                random: &random,
                others: 8 + round % 30,
                depth: 3,
                results: &results,
            };
            let first = probe(&busy, &token());
            results.borrow_mut().push(first);
            for result in results.borrow().iter() {
                probes += 1;
                // An uncertain result is correct.
                if *result == UNPROVED && expected != UNPROVED {
                    disturbed += 1;
                } else {
                    assert_is(*result, expected, &format!("{numbers:?}, round {round}"));
                }
            }
            assert_is(probe(&shared, &token()), expected, &format!("{numbers:?}, {round}: alone"));
        }
        assert!(expected.is_err() || probes > 800, "{numbers:?}: {probes} probes");
        assert!(disturbed * 10 < probes, "{disturbed} of {probes} are not sure");
    }
}

// The same by threads, in whatever order they come.
#[test]
fn workers_that_probe_at_once_agree() {
    for numbers in [Numbers::OneSequence, Numbers::PerName(1)] {
        for _ in 0..50 {
            let shared = Shared::numbering(numbers);
            let results: Vec<Result> = thread::scope(|scope| {
                let worker = || {
                    shared.put(b"bucket", b"of a request");
                    probe(&shared, &token())
                };
                let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
                workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
            });
            for result in results {
                assert!(result.is_ok(), "{numbers:?}: {result:?}");
                assert!(numbers == Numbers::OneSequence || result == UNPROVED, "{numbers:?}");
            }
        }
    }
}

// The smallest case that shows it: with numbers of each name, a prediction that is the number of a
// later write of the same bucket undoes that write.
#[test]
fn numbers_of_each_name_are_not_predicted() {
    for numbers in [Numbers::OneSequence, Numbers::PerName(1), Numbers::PerName(2)] {
        let shared = Shared::numbering(numbers);
        let document = policy(64, &quota(200, "fixed-window"));
        let mut workers = [(); 3].map(|()| Worker::new(&document, &shared));
        let mut random = Random::new(3);
        let mut admitted = [0; 4];
        for _ in 0..20_000 {
            let [a, b, c, d] = [(); 4].map(|()| usize::from(random.one_in(2)));
            let (worker, key) = ((a + b).min(2), c + 2 * d);
            let key_bytes = [b'k', b'A' + u8::try_from(key).unwrap()];
            admitted[key] += usize::from(workers[worker].ask(&shared, &key_bytes, 1_000).0);
        }
        assert_eq!(admitted, [200; 4], "{numbers:?}");
    }
}
