//! An ordered map that stores its keys and values in a slab.
//!
//! Invariant: every key has one value, and every value one key. Only the numbers of slots are
//! ordered, so a module contains the code of one order for all types of keys and values. Memory
//! that was allocated once is used again, and not freed.

mod slot_order;

use core::cmp::Ordering;
use core::fmt::{Debug, Formatter, Result};

use slab::Slab;

use slot_order::SlotOrder;

/// Values by their keys.
pub struct SlabMap<K, V> {
    order: SlotOrder,
    entries: Slab<(K, V)>,
}

impl<K, V> Default for SlabMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Debug, V: Debug> Debug for SlabMap<K, V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K, V> SlabMap<K, V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self { order: SlotOrder::new(), entries: Slab::new() }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values in the order of the keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.order.iter().filter_map(|slot| self.entry(slot))
    }

    /// The values in the order of the keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The first key, with its value.
    #[must_use]
    pub fn first(&self) -> Option<(&K, &V)> {
        self.entry(self.order.first()?)
    }

    /// The last key, with its value.
    #[must_use]
    pub fn last(&self) -> Option<(&K, &V)> {
        self.entry(self.order.last()?)
    }

    /// Calls `each` with the keys and values in the order of the keys.
    pub fn for_each_mut(&mut self, mut each: impl FnMut(&K, &mut V)) {
        for slot in self.order.iter() {
            if let Some((key, value)) = self.entries.get_mut(slot) {
                each(key, value);
            }
        }
    }

    fn entry(&self, slot: usize) -> Option<(&K, &V)> {
        self.entries.get(slot).map(|(key, value)| (key, value))
    }
}

impl<K: Ord, V> SlabMap<K, V> {
    /// Keys before `key` and their values, in the order of the keys.
    pub fn before<'a>(
        &'a self,
        key: &K,
    ) -> impl DoubleEndedIterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let slots = self.order.before(&mut |slot| compare(&self.entries, slot, key));
        slots.filter_map(|slot| self.entry(slot))
    }

    /// Keys from `key` on and their values, in the order of the keys.
    pub fn rest_from<'a>(
        &'a self,
        key: &K,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        let slots = self.order.rest_from(&mut |slot| compare(&self.entries, slot, key));
        slots.filter_map(|slot| self.entry(slot))
    }

    /// The value under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(self.slot_of(key)?).map(|(_, value)| value)
    }

    /// The value under `key`, for changes.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(self.slot_of(key)?).map(|(_, value)| value)
    }

    /// Inserts `value` under `key`, replacing an existing value.
    pub fn insert(&mut self, key: K, value: V) {
        match self.get_mut(&key) {
            Some(there) => *there = value,
            None => self.add(key, value),
        }
    }

    /// Inserts `value` under `key` unless there is one; false if there is.
    pub fn insert_new(&mut self, key: K, value: V) -> bool {
        let is_new = self.slot_of(&key).is_none();
        if is_new {
            self.add(key, value);
        }
        is_new
    }

    /// The value under `key`, or `value`, which is inserted if there is none.
    pub fn get_or_insert(&mut self, key: K, value: V) -> V
    where
        V: Copy,
    {
        if let Some(there) = self.get(&key) {
            return *there;
        }
        self.add(key, value);
        value
    }

    /// Removes the value under `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entries = &self.entries;
        let slot = self.order.remove(&mut |slot| compare(entries, slot, key))?;
        self.entries.try_remove(slot).map(|(_, value)| value)
    }

    /// Removes the first key, with its value.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let slot = self.order.pop_first()?;
        self.entries.try_remove(slot)
    }

    fn add(&mut self, key: K, value: V) {
        let slot = self.entries.vacant_key();
        let entries = &self.entries;
        self.order.insert(slot, &mut |other| compare(entries, other, &key));
        self.entries.insert((key, value));
    }

    fn slot_of(&self, key: &K) -> Option<usize> {
        self.order.find(&mut |slot| compare(&self.entries, slot, key))
    }
}

fn compare<K: Ord, V>(entries: &Slab<(K, V)>, slot: usize, key: &K) -> Ordering {
    debug_assert!(entries.contains(slot), "a slot in the order has an entry");
    entries.get(slot).map_or(Ordering::Less, |(other, _)| other.cmp(key))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use tollgate_test_support::Random;

    use super::*;

    // Compared with the map of the standard library, over thousands of changes of enough keys for
    // chunks to split and join; slots are used repeatedly.
    #[test]
    fn it_holds_what_an_ordered_map_holds() {
        let (mut map, mut expected) = (SlabMap::new(), BTreeMap::new());
        let mut random = Random::new(7);
        for step in 0..3_000 {
            let key = random.below(300);
            // More are inserted than removed, and then the other way round.
            match random.below(if step < 2_000 { 4 } else { 2 }) {
                1 if step % 16 == 0 => assert_eq!(map.pop_first(), expected.pop_first()),
                0 | 1 => assert_eq!(map.remove(&key), expected.remove(&key)),
                2 => {
                    map.insert(key, step);
                    expected.insert(key, step);
                }
                _ if step % 2 == 0 => {
                    assert_eq!(map.insert_new(key, step), !expected.contains_key(&key));
                    expected.entry(key).or_insert(step);
                }
                _ => {
                    let there = *expected.entry(key).or_insert(step);
                    assert_eq!(map.get_or_insert(key, step), there);
                }
            }
            map.for_each_mut(|key, value| *value += *key);
            expected.iter_mut().for_each(|(key, value)| *value += *key);
            assert_eq!(map.get(&key), expected.get(&key));
            assert!(map.iter().eq(&expected), "step {step}");
            assert!(map.values().eq(expected.values()), "step {step}");
            assert_eq!((map.first(), map.last()), (expected.iter().next(), expected.iter().last()));
            assert!(map.before(&key).rev().eq(expected.range(..key).rev()), "step {step}");
            assert!(map.rest_from(&key).eq(expected.range(key..)), "step {step}");
            assert_eq!((map.len(), map.is_empty()), (expected.len(), expected.is_empty()));
        }
        assert!(map.entries.capacity() <= 256, "{}", map.entries.capacity());
    }
}
