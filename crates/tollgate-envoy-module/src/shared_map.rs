//! The map that all threads of the process share, and all configurations: what they agree on, such
//! as seeds and the extents of tables.
//!
//! Invariant: it behaves as Envoy's shared data does, so the filter needs to know of one kind of
//! map only: a value is replaced only under the number that it was read with, numbers grow over the
//! whole map, and none is 0 or [`INSERT`]. A lock is held for one lookup. Not here: the
//! tables themselves, and how much the map may hold; a policy has a fixed number of names.

use std::collections::HashMap;
use std::hash::BuildHasher;

use tollgate_filter::host::shared_data::{INSERT, Stored, Written};

use crate::sync::{AtomicU32, LazyLock, Mutex, MutexGuard, Ordering, PoisonError, RandomState};

/// Parts of the map that are locked each on its own, so that workers rarely meet.
const PARTS: usize = 64;

type Part = HashMap<Box<[u8]>, (Vec<u8>, u32)>;

/// A map of the process.
pub(crate) struct SharedMap {
    parts: [Mutex<Part>; PARTS],
    /// Chooses the part of a name; no client can know it.
    hasher: RandomState,
    numbers: AtomicU32,
}

/// The one of this process.
pub(crate) static SHARED: LazyLock<SharedMap> = LazyLock::new(SharedMap::default);

impl Default for SharedMap {
    fn default() -> Self {
        Self {
            parts: core::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            numbers: AtomicU32::new(0),
        }
    }
}

impl SharedMap {
    /// The value under `name`.
    pub(crate) fn get(&self, name: &[u8]) -> Stored {
        self.part(name)
            .get(name)
            .map_or(Stored::Absent, |(bytes, number)| Stored::Value(bytes.clone(), *number))
    }

    /// Replaces the value that was read with the number `cas`, or inserts it where there is none.
    pub(crate) fn set(&self, name: &[u8], value: &[u8], cas: u32) -> Written {
        let mut part = self.part(name);
        match part.get_mut(name) {
            Some((bytes, number)) if *number == cas => {
                bytes.clear();
                bytes.extend_from_slice(value);
                *number = self.next_number();
                Written::Done
            }
            None if cas == INSERT => {
                part.insert(name.into(), (value.to_vec(), self.next_number()));
                Written::Done
            }
            Some(_) | None => Written::Lost,
        }
    }

    fn part(&self, name: &[u8]) -> MutexGuard<'_, Part> {
        let hash = usize::try_from(self.hasher.hash_one(name) >> 32).unwrap_or_default();
        let index = hash.checked_rem(PARTS).unwrap_or_default();
        let [first, ..] = &self.parts;
        // A value is written in one step, so a panic of another thread leaves none half written.
        self.parts.get(index).unwrap_or(first).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_number(&self) -> u32 {
        loop {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if number != 0 && number != INSERT {
                return number;
            }
        }
    }
}

#[cfg(test)]
#[allow(dead_code, reason = "only tests/model uses it")]
impl SharedMap {
    /// An empty map after this many writes.
    pub(crate) fn after(writes: u32) -> Self {
        Self { numbers: AtomicU32::new(writes), ..Self::default() }
    }
}
