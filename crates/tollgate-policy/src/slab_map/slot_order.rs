//! The order of values that are stored in the slots of a slab.
//!
//! Invariant: the slots are in the order of their keys, in chunks of at most [`MOST`]; a chunk is
//! empty only if it is the only one. Keys are compared by the caller, so a module contains this
//! code once, whatever the types of keys and values: an ordered map of the standard library takes 7
//! KB per pair of types. A change moves at most 64 slots and, rarely, the list of chunks: about
//! 2,000 for 65,536 slots. Deliberately absent: the keys.

use alloc::vec::Vec;
use core::cmp::Ordering;

/// The most slots in a chunk.
const MOST: usize = 64;

/// Compares the key of a slot with the key that is looked for.
pub(super) type Compare<'a> = dyn FnMut(usize) -> Ordering + 'a;

/// Slots in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct SlotOrder {
    chunks: Vec<Vec<usize>>,
}

/// The chunk of a slot, and its index there; an `Err` is where it would be.
type Position = (usize, Result<usize, usize>);

impl SlotOrder {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// All slots.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.chunks.iter().flatten().copied()
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.chunks.first()?.first().copied()
    }

    pub(super) fn last(&self) -> Option<usize> {
        self.chunks.last()?.last().copied()
    }

    /// The slots before the key that is looked for.
    pub(super) fn before<'a>(
        &'a self,
        compare: &mut Compare<'_>,
    ) -> impl DoubleEndedIterator<Item = usize> + use<'a> {
        let (chunk, Ok(index) | Err(index)) = self.position(compare);
        let (chunks, last) = self.chunks.split_at_checked(chunk).unwrap_or_default();
        let last = last.first().and_then(|slots| slots.get(..index)).unwrap_or_default();
        chunks.iter().flatten().chain(last).copied()
    }

    /// The slots from the key that is looked for to the last one.
    pub(super) fn rest_from<'a>(
        &'a self,
        compare: &mut Compare<'_>,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let (chunk, Ok(index) | Err(index)) = self.position(compare);
        self.chunks.iter().skip(chunk).flatten().skip(index).copied()
    }

    /// The slot of the key that is looked for.
    pub(super) fn find(&self, compare: &mut Compare<'_>) -> Option<usize> {
        let (chunk, Ok(index)) = self.position(compare) else { return None };
        self.chunks.get(chunk)?.get(index).copied()
    }

    /// Inserts a slot whose key is the one that is looked for, and is not there yet.
    pub(super) fn insert(&mut self, slot: usize, compare: &mut Compare<'_>) {
        let (chunk, Ok(index) | Err(index)) = self.position(compare);
        if self.chunks.is_empty() {
            self.chunks.push(Vec::new());
        }
        let Some(slots) = self.chunks.get_mut(chunk) else { return };
        slots.insert(index, slot);
        if slots.len() > MOST {
            let upper = slots.split_off(MOST / 2);
            self.chunks.insert(chunk.saturating_add(1), upper);
        }
    }

    /// Removes the slot of the key that is looked for.
    pub(super) fn remove(&mut self, compare: &mut Compare<'_>) -> Option<usize> {
        let (chunk, Ok(index)) = self.position(compare) else { return None };
        let slot = self.chunks.get_mut(chunk)?.remove(index);
        self.join(chunk);
        Some(slot)
    }

    /// Removes the first slot.
    pub(super) fn pop_first(&mut self) -> Option<usize> {
        let slots = self.chunks.first_mut().filter(|slots| !slots.is_empty())?;
        let slot = slots.remove(0);
        self.join(0);
        Some(slot)
    }

    fn position(&self, compare: &mut Compare<'_>) -> Position {
        let begins_before = |slots: &Vec<usize>| {
            slots.first().is_some_and(|first| compare(*first) != Ordering::Greater)
        };
        // One chunk, which up to 64 streams fill, needs no search for it.
        let chunk = match self.chunks.len() {
            0 | 1 => 0,
            _ => self.chunks.partition_point(begins_before).saturating_sub(1),
        };
        let slots = self.chunks.get(chunk).map_or(&[][..], Vec::as_slice);
        (chunk, slots.binary_search_by(|slot| compare(*slot)))
    }

    /// Joins a chunk that became smaller with the next one, or the last with the one before it, if
    /// both are small: there are never many chunks of few slots.
    fn join(&mut self, chunk: usize) {
        let first = chunk.min(self.chunks.len().saturating_sub(2));
        let pair = self.chunks.get_mut(first..).and_then(<[_]>::first_chunk_mut);
        let Some([one, next]) = pair else { return };
        let is_small = one.len().saturating_add(next.len()) <= MOST / 2;
        if is_small || one.is_empty() || next.is_empty() {
            one.append(next);
            self.chunks.remove(first.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A slot is its key here.
    fn insert(order: &mut SlotOrder, key: usize) {
        order.insert(key, &mut |slot| slot.cmp(&key));
    }

    fn remove(order: &mut SlotOrder, key: usize) -> Option<usize> {
        order.remove(&mut |slot| slot.cmp(&key))
    }

    #[test]
    fn chunks_split_when_they_are_full_and_join_when_they_are_small() {
        let mut order = SlotOrder::new();
        (0..MOST).for_each(|key| insert(&mut order, key));
        assert_eq!(order.chunks.len(), 1);
        insert(&mut order, MOST);
        assert_eq!(order.chunks.len(), 2);
        (MOST..1_000).for_each(|key| insert(&mut order, key + 1));
        assert!(order.iter().eq(0..=1_000));
        // All but one of a hundred: few chunks remain, and none is empty.
        for key in (0..=1_000).filter(|key| key % 100 != 0) {
            assert_eq!(remove(&mut order, key), Some(key));
            assert!(order.chunks.iter().all(|slots| !slots.is_empty()));
        }
        assert!(order.iter().eq((0..=1_000).step_by(100)));
        assert!(order.chunks.len() <= 2, "{:?}", order.chunks);
    }

    // Guards: memory that is allocated again for each request when there is one at a time.
    #[test]
    fn the_last_chunk_stays() {
        let mut order = SlotOrder::new();
        insert(&mut order, 7);
        assert_eq!((remove(&mut order, 7), remove(&mut order, 7)), (Some(7), None));
        assert_eq!((order.chunks.len(), order.iter().count()), (1, 0));
    }
}
