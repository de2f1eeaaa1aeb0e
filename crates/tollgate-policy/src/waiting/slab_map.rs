//! An ordered map that stores its values in a slab.
//!
//! Invariant: every key has one value, and every value one key. Only keys and places are ordered,
//! so a module contains the code of one tree per key type, whatever the type of the values: with
//! trees of values the filter was 7 KB larger per type. Memory that was allocated once is used
//! again, and not freed.

use alloc::collections::BTreeMap;

use slab::Slab;

/// Values by their keys.
#[derive(Debug)]
pub struct SlabMap<K, V> {
    places: BTreeMap<K, u64>,
    values: Slab<V>,
}

impl<K, V> Default for SlabMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> SlabMap<K, V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self { places: BTreeMap::new(), values: Slab::new() }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// True when there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Keys and values in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places.iter().filter_map(|(key, place)| Some((key, self.values.get(index(*place))?)))
    }

    /// The values in the order of the keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Calls `each` with the keys and values in the order of the keys.
    pub fn for_each_mut(&mut self, mut each: impl FnMut(&K, &mut V)) {
        for (key, place) in &self.places {
            if let Some(value) = self.values.get_mut(index(*place)) {
                each(key, value);
            }
        }
    }
}

impl<K: Ord, V> SlabMap<K, V> {
    /// The value under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(index(*self.places.get(key)?))
    }

    /// The value under `key`, for changes.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(index(*self.places.get(key)?))
    }

    /// Inserts `value` under `key`, replacing an existing value.
    pub fn insert(&mut self, key: K, value: V) {
        match self.get_mut(&key) {
            Some(there) => *there = value,
            None => self.add(key, value),
        }
    }

    /// Inserts `value` under `key` unless there is one.
    pub fn insert_new(&mut self, key: K, value: V) {
        if self.get(&key).is_none() {
            self.add(key, value);
        }
    }

    fn add(&mut self, key: K, value: V) {
        let place = u64::try_from(self.values.insert(value)).unwrap_or(u64::MAX);
        self.places.insert(key, place);
    }

    /// Removes the value under `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        self.values.try_remove(index(place))
    }
}

/// Places are 64 bits wide, so that numbers of any kind share the code of one tree.
fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use tollgate_test_support::Random;

    use super::*;

    // Compared with the map of the standard library, over a thousand changes of a few keys, so that
    // places are used repeatedly.
    #[test]
    fn it_holds_what_an_ordered_map_holds() {
        let (mut map, mut expected) = (SlabMap::new(), BTreeMap::new());
        let mut random = Random::new(7);
        for step in 0..1_000 {
            let key = random.below(20);
            match random.below(3) {
                0 => assert_eq!(map.remove(&key), expected.remove(&key)),
                1 => {
                    map.insert(key, step);
                    expected.insert(key, step);
                }
                _ => {
                    map.insert_new(key, step);
                    expected.entry(key).or_insert(step);
                }
            }
            map.for_each_mut(|key, value| *value += *key);
            expected.iter_mut().for_each(|(key, value)| *value += *key);
            assert_eq!(map.get(&key), expected.get(&key));
            assert!(map.iter().eq(&expected), "step {step}");
            assert!(map.values().eq(expected.values()), "step {step}");
            assert_eq!((map.len(), map.is_empty()), (expected.len(), expected.is_empty()));
        }
        assert!(map.values.capacity() <= 32, "{}", map.values.capacity());
    }
}
