//! The tables of the process, which all threads share, and all configurations: the counts.
//!
//! A bucket is found by its table and its number, without a name, and each has a lock of its own,
//! which is held while its bytes are copied. Invariant: a bucket is replaced only under the number
//! that it was read with, so a change is decided on the bytes that it replaces. Not here: the
//! meaning of the bytes, and how many buckets a table has; the filter's tables are bounded.

use std::cell::RefCell;
use std::collections::HashMap;

use tollgate_filter::host::shared_data::{BucketRead, INSERT, Written};

use crate::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, thread_local};

/// One table.
#[derive(Default)]
pub(crate) struct BucketTable {
    /// The first bucket, then for each level the buckets that it adds: as many as there were. A
    /// part is there from the first write of one of its buckets.
    parts: [OnceLock<Box<[Mutex<Stored>]>>; 32],
}

/// A bucket.
#[derive(Default)]
struct Stored {
    bytes: Vec<u8>,
    /// Counts its writes; 0 while it is absent.
    number: u32,
}

/// The part of a bucket, its place there, and how many places the part has.
fn place(bucket: u32) -> (usize, usize, usize) {
    let wide = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    match bucket.checked_ilog2() {
        None => (0, 0, 1),
        Some(level) => {
            let first = 1_u32.checked_shl(level).unwrap_or(bucket);
            (wide(level).saturating_add(1), wide(bucket ^ first), wide(first))
        }
    }
}

impl BucketTable {
    /// Reads a bucket into `bytes`.
    pub(crate) fn get(&self, bucket: u32, bytes: &mut Vec<u8>) -> BucketRead {
        let (part, index, _) = place(bucket);
        let part = self.parts.get(part).and_then(OnceLock::get);
        let Some(stored) = part.and_then(|part| part.get(index)) else {
            return BucketRead::Absent;
        };
        let stored = lock(stored);
        if stored.number == 0 {
            return BucketRead::Absent;
        }
        bytes.clear();
        bytes.extend_from_slice(&stored.bytes);
        BucketRead::Present(stored.number)
    }

    /// Replaces the bucket that was read with the number `cas`, or inserts it where there is none.
    pub(crate) fn set(&self, bucket: u32, bytes: &[u8], cas: u32) -> Written {
        let (part, index, len) = place(bucket);
        let empty = || (0..len).map(|_| Mutex::default()).collect();
        let part = self.parts.get(part).map(|part| part.get_or_init(empty));
        let Some(stored) = part.and_then(|part| part.get(index)) else {
            return Written::Unreachable;
        };
        let mut stored = lock(stored);
        if stored.number != if cas == INSERT { 0 } else { cas } {
            return Written::Lost;
        }
        stored.bytes.clear();
        stored.bytes.extend_from_slice(bytes);
        // Neither of the two numbers with a meaning, also after the wrap.
        stored.number = stored.number.checked_add(1).filter(|it| *it != INSERT).unwrap_or(1);
        Written::Done
    }
}

/// A bucket is written in one step, so a panic of another thread leaves none half written.
fn lock(stored: &Mutex<Stored>) -> MutexGuard<'_, Stored> {
    stored.lock().unwrap_or_else(PoisonError::into_inner)
}

static ALL: LazyLock<RwLock<HashMap<u64, Arc<BucketTable>>>> = LazyLock::new(RwLock::default);

/// As many tables are found by a thread without a look into the process's map.
const NEAR: usize = 64;

type Near = [Option<(u64, Arc<BucketTable>)>; NEAR];

thread_local! {
    static NEAR_BY: RefCell<Near> = const { RefCell::new([const { None }; NEAR]) };
}

/// Acts on the table of this identity.
pub(crate) fn with<T>(identity: u64, act: impl FnOnce(&BucketTable) -> T) -> T {
    // Identities are hashes already.
    let near = usize::try_from(identity).unwrap_or_default() % NEAR;
    NEAR_BY.with(|tables| match tables.borrow_mut().get_mut(near) {
        Some(Some((known, table))) if *known == identity => act(table),
        place => {
            let table = find(identity);
            let result = act(&table);
            if let Some(place) = place {
                *place = Some((identity, table));
            }
            result
        }
    })
}

fn find(identity: u64) -> Arc<BucketTable> {
    let known = ALL.read().unwrap_or_else(PoisonError::into_inner).get(&identity).cloned();
    known.unwrap_or_else(|| {
        let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(identity).or_default())
    })
}

#[cfg(test)]
#[allow(dead_code, reason = "only tests/model uses it")]
impl BucketTable {
    /// The first bucket with these bytes, after this many writes, and no other.
    pub(crate) fn after(writes: u32, bytes: &[u8]) -> Self {
        let table = Self::default();
        table.set(0, bytes, INSERT);
        let first = table.parts.first().and_then(OnceLock::get).and_then(|part| part.first());
        first.into_iter().for_each(|stored| lock(stored).number = writes);
        table
    }
}
