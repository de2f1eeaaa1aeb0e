//! Sorting where nobody waits for it: one sort for values of all types.
//!
//! Invariant: stable, and of the standard library's order of time. Sorted by itself each type would
//! be five kilobytes of a module, which is loaded before anything is decided. Deliberately absent:
//! what a request sorts.

use alloc::vec::Vec;
use core::cmp::Ordering;

/// Sorts `items` by `order`; equal ones stay as they stand.
pub(crate) fn sort_by<T>(items: &mut Vec<T>, order: impl Fn(&T, &T) -> Ordering) {
    let mut sorted: Vec<usize> = (0..items.len()).collect();
    sort_indices(&mut sorted, &|one, other| match (items.get(one), items.get(other)) {
        (Some(one), Some(other)) => order(one, other),
        _ => Ordering::Equal,
    });
    let mut unsorted: Vec<Option<T>> = items.drain(..).map(Some).collect();
    items.extend(sorted.into_iter().filter_map(|index| unsorted.get_mut(index)?.take()));
}

/// Not generic, so there is one.
fn sort_indices(indices: &mut [usize], order: &dyn Fn(usize, usize) -> Ordering) {
    indices.sort_by(|one, other| order(*one, *other));
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
