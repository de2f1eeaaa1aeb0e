//! The shipped module on hosts that number the writes of shared data in three ways.
//!
//! Guards: a limit that is exceeded on a host that is not Envoy, and a module that starts where it
//! cannot count.

use serde_json::json;
use tollgate_test_support::Random;

use crate::envoy_host::{Filter, Numbers, Shared};

const LIMIT: usize = 200;
const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

fn policy() -> serde_json::Value {
    json!({"version": 1, "rules": [{
        "name": "each",
        "key": [{"header": "x-key"}],
        "quotas": [{"name": "each", "limit": LIMIT, "window": "1d", "algorithm": "fixed-window"}],
    }]})
}

fn map(numbers: Numbers) -> Shared {
    let map = Shared::default();
    map.borrow_mut().numbers = numbers;
    map
}

/// How many of 4,000 requests of each key three workers allow, and how often they looked.
fn admitted(numbers: Numbers) -> ([usize; KEYS.len()], u32) {
    let shared = map(numbers);
    let mut workers = [(); 3].map(|()| Filter::new(&policy(), &shared));
    let before = shared.borrow().looks;
    let (mut random, mut admitted) = (Random::new(3), [0; KEYS.len()]);
    for _ in 0..4_000 {
        let (worker, key) = (random.index(workers.len()), random.index(KEYS.len()));
        let answer = workers[worker].request(1_000, &[("x-key", KEYS[key])]);
        admitted[key] += usize::from(answer.passed());
    }
    let looks = shared.borrow().looks - before;
    (admitted, looks)
}

#[test]
fn counts_are_exact_with_one_sequence_and_with_one_for_each_name() {
    let [one, each] = [Numbers::OneSequence, Numbers::PerName].map(admitted);
    assert_eq!((one.0, each.0), ([LIMIT; KEYS.len()], [LIMIT; KEYS.len()]));
    assert!(one.1 < each.1, "nothing is guessed: {} and {} looks", one.1, each.1);
}

#[test]
fn a_host_that_does_not_insert_is_refused_with_the_reason() {
    let shared = map(Numbers::NoInsertion);
    // The second worker finds the result of the first one's probe.
    for _ in 0..2 {
        let mut filter = Filter::without_policy(&shared);
        assert!(!filter.configure_policy(&policy()));
        let [said] = filter.log() else { panic!("{:?}", filter.log()) };
        assert_eq!(
            said,
            "tollgate: this host's shared data cannot count exactly: it replaces a value under the \
             number 4294967295, which must only insert one"
        );
    }
}
