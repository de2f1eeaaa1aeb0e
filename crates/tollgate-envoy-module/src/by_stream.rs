//! Values of streams, found by the numbers that this crate gives them: the lower bits of a number
//! are a place in an array.
//!
//! Invariant: no two streams that live have one number, none is 0, and a place has 512 numbers in
//! turn, so a number that was kept for too long finds nothing. Not here: what a value is.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate_filter::host::streams::StreamMap;

/// The bits of a number that are its place, from 1 on.
const PLACE_BITS: u32 = 22;
const MOST_STREAMS: u32 = 1 << PLACE_BITS;
/// Numbers of roots, which share the space with those of streams, have this bit.
const ROOT: u32 = 1 << 31;

/// Values by the numbers of streams.
pub(crate) struct ByStream<T> {
    /// Each with its number.
    values: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> Default for ByStream<T> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<T> ByStream<T> {
    fn slot(&mut self, id: u32) -> Option<&mut Option<(u32, T)>> {
        self.values.get_mut(place(id))
    }

    /// Any stream whose value `is_it`, with its value. Low places are used first, so one is found
    /// soon.
    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<(u32, &T)> {
        let values = if self.len > 0 { &*self.values } else { &[] };
        let found = values.iter().flatten().find(|(_, value)| is_it(value));
        found.map(|(id, value)| (*id, value))
    }
}

impl<T> StreamMap<T> for ByStream<T> {
    const EMPTY: Self = Self { values: Vec::new(), len: 0 };

    fn insert_new(&mut self, id: u32, value: T) {
        if place(id) >= self.values.len() {
            self.values.resize_with(place(id).saturating_add(1), || None);
        }
        if let Some(slot @ None) = self.slot(id) {
            *slot = Some((id, value));
            self.len = self.len.saturating_add(1);
        }
    }

    fn get(&self, id: u32) -> Option<&T> {
        let (known, value) = self.values.get(place(id))?.as_ref()?;
        (*known == id).then_some(value)
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let (known, value) = self.slot(id)?.as_mut()?;
        (*known == id).then_some(value)
    }

    fn remove(&mut self, id: u32) -> Option<T> {
        let taken = self.slot(id)?.take_if(|(known, _)| *known == id)?;
        self.len = self.len.saturating_sub(1);
        Some(taken.1)
    }

    fn len(&self) -> usize {
        self.len
    }
}

fn place(id: u32) -> usize {
    usize::try_from(id % MOST_STREAMS).unwrap_or_default()
}

/// The numbers of one thread's streams and roots.
pub(crate) struct Numbers {
    /// The number that each place has; of a free one its next number. Nothing has the first place.
    by_place: Vec<u32>,
    /// Places that are free. The lowest is used first.
    free: BinaryHeap<Reverse<usize>>,
    roots: u32,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { by_place: vec![0], free: BinaryHeap::new(), roots: 0 }
    }
}

impl Numbers {
    /// A number for a stream; `None` when there are too many.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(Reverse(place)) = self.free.pop() {
            return self.by_place.get(place).copied();
        }
        let next = u32::try_from(self.by_place.len()).ok();
        let next = next.filter(|place| *place < MOST_STREAMS)?;
        self.by_place.push(next);
        Some(next)
    }

    /// The stream of this number is gone; nothing happens when that is known.
    pub(crate) fn give_back(&mut self, id: u32) {
        let number = self.by_place.get_mut(place(id)).filter(|number| **number == id && id != 0);
        if let Some(number) = number {
            *number = id.wrapping_add(MOST_STREAMS) & !ROOT;
            self.free.push(Reverse(place(id)));
        }
    }

    /// A number for a root. There are fewer than two thousand million configurations in a process.
    pub(crate) const fn take_root(&mut self) -> u32 {
        self.roots = self.roots.wrapping_add(1);
        self.roots | ROOT
    }
}
