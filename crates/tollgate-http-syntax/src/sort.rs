//! Sorting outside the path of requests: one sort for values of all types.
//!
//! Invariant: the sort is stable and as fast, up to a constant factor, as the standard library's. A
//! separate sort per type would add five kilobytes to a module, which is loaded before the first
//! decision. Deliberately absent: sorting while a request is decided.

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
    from.sort_by(|one, other| items.order(*one, *other));
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
}
