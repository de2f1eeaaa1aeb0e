//! A model of the state that the threads of the process share: `tables.rs` and `shared_map.rs` of
//! the module, unchanged, over locks at each step of which a scheduler chooses the next thread.
//!
//! Invariant: two threads that change one value once are run in every order; more threads, more
//! changes and panics in orders that a seed chooses. A failure prints its schedule, with which
//! `shuttle::replay` repeats it. Each of these was tried and fails: a write without the comparison
//! of numbers, a number and its bytes read or compared and written under two locks, a panic on a
//! poisoned lock, a number that wraps to 0 or `INSERT`, a table that replaces another.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test fails by a panic"
)]

#[path = "../../src/shared_map.rs"]
mod shared_map;
mod sync;
#[path = "../../src/tables.rs"]
mod tables;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use shuttle::scheduler::{DfsScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};
use tollgate_filter::host::shared_data::{BucketRead, INSERT, Stored, Written};

use shared_map::{SHARED, SharedMap};
use sync::{Fault, panics_after};
use tables::BucketTable;

/// A value that threads share. Its bytes are the number of its changes, several times.
trait Value: Send + Sync + 'static {
    fn get(&self) -> Option<(Vec<u8>, u32)>;
    fn set(&self, bytes: &[u8], number: u32) -> Written;
}

/// A bucket of a table.
struct InTable(BucketTable, u32);

impl Value for InTable {
    fn get(&self) -> Option<(Vec<u8>, u32)> {
        bucket(&self.0, self.1)
    }

    fn set(&self, bytes: &[u8], number: u32) -> Written {
        self.0.set(self.1, bytes, number)
    }
}

/// A bucket of a table that each thread finds by its identity.
struct InProcess(u64);

impl Value for InProcess {
    fn get(&self) -> Option<(Vec<u8>, u32)> {
        tables::with(self.0, |table| bucket(table, 5))
    }

    fn set(&self, bytes: &[u8], number: u32) -> Written {
        tables::with(self.0, |table| table.set(5, bytes, number))
    }
}

fn bucket(table: &BucketTable, bucket: u32) -> Option<(Vec<u8>, u32)> {
    let mut bytes = vec![];
    match table.get(bucket, &mut bytes) {
        BucketRead::Present(number) => Some((bytes, number)),
        BucketRead::Absent => None,
        BucketRead::Unreachable => panic!("a table is always there"),
    }
}

/// A value of the map by its name.
struct InMap(SharedMap, &'static [u8]);

impl Value for InMap {
    fn get(&self) -> Option<(Vec<u8>, u32)> {
        value(&self.0, self.1)
    }

    fn set(&self, bytes: &[u8], number: u32) -> Written {
        self.0.set(self.1, bytes, number)
    }
}

fn value(map: &SharedMap, name: &[u8]) -> Option<(Vec<u8>, u32)> {
    match map.get(name) {
        Stored::Value(bytes, number) => Some((bytes, number)),
        Stored::Absent => None,
        Stored::Unreachable => panic!("the map is always there"),
    }
}

/// The bytes after this many changes, of a length of their own.
fn after(changes: u8) -> Vec<u8> {
    vec![changes; 8 + usize::from(changes)]
}

/// What all threads have read and written of one value.
#[derive(Default)]
struct History {
    /// The changes under each number that was read.
    read: HashMap<u32, u8>,
    done: u8,
}

/// A value and what its threads have seen of it.
struct Watched<V> {
    value: V,
    /// A lock without a step: no thread waits for it.
    history: Mutex<History>,
}

impl<V: Value> Watched<V> {
    fn new(value: V) -> Arc<Self> {
        Arc::new(Self { value, history: Mutex::default() })
    }

    /// The changes, and the number to replace them with.
    fn read(&self) -> (u8, u32) {
        let Some((bytes, number)) = self.value.get() else { return (0, INSERT) };
        assert!(!matches!(number, 0 | INSERT), "{number} has a meaning of its own");
        let changes = bytes[0];
        assert_eq!(bytes, after(changes), "one write's bytes");
        let known = *self.history.lock().unwrap().read.entry(number).or_insert(changes);
        assert_eq!(known, changes, "the bytes that were written under {number}");
        (changes, number)
    }

    /// Changes the value once, by what it reads.
    fn change(&self) {
        loop {
            let (changes, number) = self.read();
            match self.value.set(&after(changes + 1), number) {
                Written::Done => break self.history.lock().unwrap().done += 1,
                Written::Lost => assert_ne!(self.read().1, number, "lost to no other write"),
                Written::Unreachable => panic!("it is always there"),
            }
        }
    }

    /// All changes were made one after the other.
    fn ends_with(&self, changes: u8) {
        assert_eq!((self.read().0, self.history.lock().unwrap().done), (changes, changes));
    }
}

/// Runs threads that act on the value, to their ends.
fn threads<V: Value>(value: &Arc<Watched<V>>, acts: &[fn(&Watched<V>)]) {
    let start = |act: &fn(&Watched<V>)| {
        let (act, value) = (*act, Arc::clone(value));
        thread::spawn(move || act(&value))
    };
    let started: Vec<_> = acts.iter().map(start).collect();
    started.into_iter().for_each(|thread| thread.join().unwrap());
}

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    // Statics are dropped with each execution here, and there is one order of memory.
    config.silence_warnings = true;
    config.stack_size = 256 * 1024; // bytes: without optimisation tables are moved through it
    Runner::new(scheduler, config).run(model)
}

/// In every order of the threads' steps.
fn every_order(model: impl Fn() + Send + Sync + 'static) {
    let orders = run(DfsScheduler::new(None, false), model);
    println!("{orders} orders");
    assert!(orders > 10, "only {orders} orders");
}

/// In this many orders, the same ones each time.
fn orders(count: usize, model: impl Fn() + Send + Sync + 'static) {
    assert_eq!(run(RandomScheduler::new_from_seed(1, count), model), count);
}

#[test]
fn two_first_changes_are_both_counted() {
    fn model(value: impl Value) {
        let value = Watched::new(value);
        threads(&value, &[Watched::change, Watched::change]);
        value.ends_with(2);
    }
    every_order(|| model(InTable(BucketTable::default(), 5)));
    every_order(|| model(InMap(SharedMap::default(), b"name")));
}

#[test]
fn two_later_changes_are_both_counted() {
    fn model(value: impl Value) {
        let value = Watched::new(value);
        value.change();
        threads(&value, &[Watched::change, Watched::change]);
        value.ends_with(3);
    }
    every_order(|| model(InTable(BucketTable::default(), 5)));
    every_order(|| model(InMap(SharedMap::default(), b"name")));
}

#[test]
fn a_read_gives_the_bytes_of_its_number() {
    fn model(value: impl Value) {
        let value = Watched::new(value);
        value.change();
        let read_twice = |value: &Watched<_>| {
            let (first, second) = (value.read(), value.read());
            assert!(first <= second, "{first:?} is read before {second:?}");
        };
        threads(&value, &[Watched::change, read_twice]);
        value.ends_with(2);
    }
    every_order(|| model(InTable(BucketTable::default(), 5)));
    every_order(|| model(InMap(SharedMap::default(), b"name")));
}

#[test]
fn no_change_of_many_is_lost() {
    fn model(value: impl Value) {
        let value = Watched::new(value);
        let change: fn(&Watched<_>) = |value| (0..4).for_each(|_| value.change());
        threads(&value, &[change; 4]);
        value.ends_with(16);
    }
    orders(300, || model(InTable(BucketTable::default(), 5)));
    orders(300, || model(InProcess(7)));
    orders(300, || model(InMap(SharedMap::default(), b"name")));
}

#[test]
fn numbers_wrap_to_none_with_a_meaning() {
    fn model(value: impl Value) {
        let value = Watched::new(value);
        let change: fn(&Watched<_>) = |value| (0..3).for_each(|_| value.change());
        threads(&value, &[change; 3]);
        value.ends_with(9);
    }
    orders(500, || {
        let table = BucketTable::after(INSERT - 4, &after(0));
        model(InTable(table, 0));
    });
    orders(500, || model(InMap(SharedMap::after(INSERT - 4), b"name")));
}

#[test]
fn a_panic_under_any_lock_leaves_a_whole_value() {
    /// Panics at the end of the guard that this many are before, and changes the value again.
    fn change_twice(value: &Watched<impl Value>, ends: usize, has_panicked: &AtomicBool) -> u8 {
        panics_after(Some(ends));
        let result = catch_unwind(AssertUnwindSafe(|| value.change()));
        panics_after(None);
        let panics = match result {
            Ok(()) => 0,
            Err(panic) if panic.is::<Fault>() => 1,
            Err(panic) => resume_unwind(panic),
        };
        has_panicked.fetch_or(panics > 0, Ordering::Relaxed);
        value.change();
        panics
    }
    fn model(value: impl Value, ends: usize, has_panicked: &Arc<AtomicBool>) {
        let value = Watched::new(value);
        let (other, has_panicked) = (Arc::clone(&value), Arc::clone(has_panicked));
        let other = thread::spawn(move || change_twice(&other, ends, &has_panicked));
        value.change();
        let panics = other.join().unwrap();
        let done = value.history.lock().unwrap().done;
        // The change in which it panicked was made or not.
        assert!((0..=panics).contains(&(value.read().0 - done)) && done + panics == 3);
    }
    fn each_end<V: Value>(value: fn() -> V) {
        let panics_at = |&ends: &usize| {
            let has_panicked = Arc::<AtomicBool>::default();
            let seen = Arc::clone(&has_panicked);
            orders(100, move || model(value(), ends, &has_panicked));
            seen.load(Ordering::Relaxed)
        };
        let ends = (0..).take_while(panics_at).count();
        assert!(ends >= 4, "a read and a write have a guard each");
    }
    each_end(|| InTable(BucketTable::default(), 5));
    each_end(|| InProcess(7));
    each_end(|| InMap(SharedMap::default(), b"name"));
}

#[test]
fn first_writes_of_one_part_are_all_kept() {
    every_order(|| {
        let table = Arc::new(BucketTable::default());
        let other = Arc::clone(&table);
        let other = thread::spawn(move || assert_eq!(other.set(6, b"six", INSERT), Written::Done));
        assert_eq!(table.set(5, b"five", INSERT), Written::Done);
        assert_eq!(bucket(&table, 5), Some((b"five".to_vec(), 1)));
        other.join().unwrap();
        assert_eq!(bucket(&table, 6), Some((b"six".to_vec(), 1)));
        assert_eq!(bucket(&table, 7), None);
    });
}

#[test]
fn threads_that_look_for_a_table_at_once_find_one() {
    every_order(|| {
        let find = || tables::with(7, |table| std::ptr::from_ref(table).addr());
        let other = thread::spawn(find);
        assert_eq!(find(), other.join().unwrap());
    });
}

#[test]
fn tables_of_other_identities_are_apart() {
    // Of one place in the tables that a thread has near by.
    const IDENTITIES: [u64; 2] = [7, 7 + 64];
    fn insert(identity: u64) -> bool {
        let bytes = identity.to_le_bytes();
        tables::with(identity, |table| table.set(0, &bytes, INSERT)) == Written::Done
    }
    orders(1_000, || {
        let other = thread::spawn(|| IDENTITIES.map(insert));
        let [second, first] = [IDENTITIES[1], IDENTITIES[0]].map(insert);
        let others = other.join().unwrap();
        assert!(first != others[0] && second != others[1], "one of two inserts is done");
        for identity in IDENTITIES {
            let found = tables::with(identity, |table| bucket(table, 0));
            assert_eq!(found, Some((identity.to_le_bytes().to_vec(), 1)));
        }
    });
}

#[test]
fn numbers_of_all_names_are_one_sequence() {
    every_order(|| {
        let other = thread::spawn(|| SHARED.set(b"a", b"", INSERT));
        assert_eq!(SHARED.set(b"b", b"", INSERT), Written::Done);
        assert_eq!(other.join().unwrap(), Written::Done);
        let number = |name| value(&SHARED, name).unwrap().1;
        assert_eq!(number(b"a") + number(b"b"), 1 + 2);
        assert_eq!(SHARED.set(b"a", b"", number(b"b")), Written::Lost);
    });
}
