//! Counts of an earlier layout of states: a filter that is deployed over them forgets no client.
//!
//! `layout_1.txt` was left by the filter of commit 7a4de38 and is never written again. The values
//! of that policy are longer today, by enough that a bucket has fewer ways: the table has to grow
//! on the way, too.

use crate::support::{SEED, Shared, Worker, policy};
use serde_json::{Value, json};
use tollgate_storage::table::{Bucket, Table, TableSize};

const SECOND: u64 = 1_000_000_000;
/// The time of the first request of each key; one more every 7 s.
const THEN: u64 = 1_000 * SECOND;
const NOW: u64 = THEN + 35 * SECOND;
const KEYS: u64 = 12;

fn buckets() -> Value {
    let quota = json!({"name": "parts", "limit": 5, "window": "118s", "algorithm": "sliding-buckets", "buckets": 118});
    policy(16, &json!([quota]))
}

fn left_by_layout_1() -> Shared {
    let shared = Shared::default();
    for line in include_str!("layout_1.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.split_once(' ').unwrap();
        shared.put(&bytes(name), &bytes(value));
    }
    shared
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn client(number: u64) -> Vec<u8> {
    format!("client-{number}").into_bytes()
}

#[test]
fn a_new_layout_forgets_nobody() {
    let shared = left_by_layout_1();
    let mut worker = Worker::new(&buckets(), &shared);
    assert_eq!(worker.log, Vec::<String>::new(), "nothing is lost, and nothing to be said");
    let table = worker.config.tables[0];
    assert_eq!((table.size().ways(), table.extent().base, table.extent().level), (8, 1, 2));
    for number in 0..KEYS {
        let left = usize::try_from(5 - number % 6).unwrap();
        assert_eq!(worker.passes(&shared, &client(number), NOW, 9), left, "key {number}");
    }
    // The first units come back when they always would have: one window after the end of their
    // part.
    let back = THEN + 119 * SECOND;
    for number in (0..KEYS).filter(|number| number % 6 > 0) {
        assert_eq!(worker.passes(&shared, &client(number), back - 1, 9), 0, "key {number}");
        assert_eq!(worker.passes(&shared, &client(number), back, 9), 1, "key {number}");
    }
}

/// The stored value of a key, in whichever bucket.
fn value(worker: &mut Worker, shared: &Shared, number: u64) -> Vec<u8> {
    let fingerprint = Table::fingerprint(&SEED, &worker.key_of(&client(number)));
    let buckets =
        shared.entries().into_iter().filter(|(name, _)| name.len() == TableSize::BUCKET_NAME);
    let values: Vec<Vec<u8>> = buckets
        .filter_map(|(_, (bytes, _))| {
            Some(Bucket::parse(&bytes).unwrap().find(fingerprint)?.to_vec())
        })
        .collect();
    assert_eq!(values.len(), 1, "key {number} is in one bucket");
    values[0].clone()
}

// A client that is denied writes nothing: the old value stays and denies, whichever worker reads
// and however often. A client that is charged also has a value of today, in the same buckets.
#[test]
fn an_old_value_is_rewritten_when_its_key_is_charged() {
    let shared = left_by_layout_1();
    let mut worker = Worker::new(&buckets(), &shared);
    let old: Vec<Vec<u8>> = (1..6).map(|number| value(&mut worker, &shared, number)).collect();
    for _ in 0..3 {
        let mut worker = Worker::new(&buckets(), &shared);
        assert_eq!(worker.passes(&shared, &client(5), NOW, 9), 0);
    }
    assert!(worker.ask(&shared, &client(1), NOW).0);
    let (one, others) = (value(&mut worker, &shared, 1), 2..6);
    assert_eq!((old[0].len(), one.len()), (496, 504), "492 and 500 bytes, in words");
    for number in others {
        let index = usize::try_from(number - 1).unwrap();
        assert_eq!(value(&mut worker, &shared, number), old[index], "key {number}");
    }
}

// A value of layout 1 is as much a claim to its place as one of today: a flood of keys that used
// less takes none.
#[test]
fn a_value_of_layout_1_keeps_its_place() {
    let shared = left_by_layout_1();
    let mut worker = Worker::new(&buckets(), &shared);
    let mut evicted = 0;
    for number in 1_000..1_400 {
        evicted += worker.ask(&shared, &client(number), NOW).1.evictions;
    }
    assert!(evicted > 0, "the table is full");
    for number in [3, 4, 5, 9, 10, 11] {
        let left = usize::try_from(5 - number % 6).unwrap();
        assert_eq!(worker.passes(&shared, &client(number), NOW, 9), left, "key {number}");
    }
}
