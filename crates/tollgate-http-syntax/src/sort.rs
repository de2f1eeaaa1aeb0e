//! Sorting: one sort for values of all types, and a small one for numbers of rules.
//!
//! Invariant: both take at most n log n steps, whatever the order before, as the standard library's
//! do. A sort of the standard library adds five kilobytes to a module, which is loaded before the
//! first decision, and each of these a few hundred bytes. Deliberately absent: any other sort while
//! a request is decided.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::mem;

/// Sorts `items` by `order`; equal items keep their order.
pub fn sort_by<T>(items: &mut [T], order: impl Fn(&T, &T) -> Ordering) {
    let len = items.len();
    sort(&mut Items { items, order }, len);
}

/// The items to sort, by index. Closures would also be compiled twice, to be called once.
trait Sortable {
    fn order(&self, one: usize, other: usize) -> Ordering;
    fn swap(&mut self, one: usize, other: usize);
}

struct Items<'a, T, F> {
    items: &'a mut [T],
    order: F,
}

impl<T, F: Fn(&T, &T) -> Ordering> Sortable for Items<'_, T, F> {
    fn order(&self, one: usize, other: usize) -> Ordering {
        match (self.items.get(one), self.items.get(other)) {
            (Some(one), Some(other)) => (self.order)(one, other),
            _ => Ordering::Equal,
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.items.swap(one, other);
    }
}

/// Not generic, so that only one copy is compiled.
fn sort(items: &mut dyn Sortable, len: usize) {
    let mut from: Vec<usize> = (0..len).collect();
    let before = |one: usize, other: usize| match items.order(one, other) {
        Ordering::Less => true,
        Ordering::Equal => one < other,
        Ordering::Greater => false,
    };
    heap_sort(&mut from, before);
    // Each item moves to the position that has its index, by swaps along each cycle.
    for first in 0..len {
        let mut to = first;
        while let Some(next) = from.get_mut(to).map(|next| mem::replace(next, to)) {
            if next == first {
                break;
            }
            items.swap(to, next);
            to = next;
        }
    }
}

/// Sorts numbers. Numbers that are in order already, as most are, cost one look at each.
pub fn sort_numbers(numbers: &mut [u16]) {
    if !numbers.is_sorted() {
        heap_sort(numbers, |one, other| one < other);
    }
}

/// A heap sort: in place, and without a bad case.
fn heap_sort<T: Copy>(items: &mut [T], before: impl Fn(T, T) -> bool) {
    let mut unsettled = items.len() / 2;
    let mut len = items.len();
    while len > 1 {
        if unsettled > 0 {
            unsettled = unsettled.saturating_sub(1);
        } else {
            len = len.saturating_sub(1);
            items.swap(0, len);
        }
        let Some(heap) = items.get_mut(..len) else { return };
        sift_down(heap, unsettled, &before);
    }
}

/// Moves the item at `at` below all of its descendants in the heap that come after it.
fn sift_down<T: Copy>(heap: &mut [T], mut at: usize, before: &impl Fn(T, T) -> bool) {
    loop {
        let left = at.saturating_mul(2).saturating_add(1);
        let (Some(item), Some(first)) = (heap.get(at), heap.get(left)) else { return };
        let right = left.saturating_add(1);
        let is_right = heap.get(right).is_some_and(|second| before(*first, *second));
        let last = if is_right { right } else { left };
        if heap.get(last).is_none_or(|last| !before(*item, *last)) {
            return;
        }
        heap.swap(at, last);
        at = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sorts_as_the_standard_library_does() {
        for length in 0..200_u64 {
            let value = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60, i);
            let mut ours: Vec<(u64, u64)> = (0..length).map(value).collect();
            let mut theirs = ours.clone();
            sort_by(&mut ours, |one, other| one.0.cmp(&other.0));
            theirs.sort_by_key(|(key, _)| *key);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn numbers_are_sorted_in_every_small_order() {
        for length in 0..8_u32 {
            for code in 0..5_u32.pow(length.min(6)) {
                let number = |i: u32| u16::try_from(code / 5_u32.pow(i.min(6)) % 5).unwrap();
                let mut ours: Vec<u16> = (0..length).map(number).collect();
                let mut theirs = ours.clone();
                sort_numbers(&mut ours);
                theirs.sort_unstable();
                assert_eq!(ours, theirs);
            }
        }
        let mut many: Vec<u16> = (0..u16::MAX).map(|i| i.wrapping_mul(40_503)).collect();
        let mut sorted = many.clone();
        sorted.sort_unstable();
        sort_numbers(&mut many);
        assert_eq!(many, sorted);
    }
}
