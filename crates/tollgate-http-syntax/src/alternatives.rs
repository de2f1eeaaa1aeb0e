//! Lists of alternatives: exact values and networks, with a binary search for one of them.
//!
//! Invariant: a value is in a list exactly when a comparison with each item in turn finds it. The
//! order is derived from the list and is never stored. The list is sorted, not hashed: a value is
//! compared while it is read, and no client can choose values that take long to find.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::iter;
use core::ops::Deref;

use crate::sort::sort_by;

/// Only a longer list has an order; in a shorter one each item is compared in turn.
const SHORT: usize = 8;

/// An item of a list.
pub trait Alternative {
    /// False for a pattern, which is compared with every value.
    fn is_ordered(&self) -> bool;

    /// By the start of each, and the wider one first when both start together.
    fn order(&self, other: &Self) -> Ordering;

    /// True when it contains all of `other`, which does not come before it. Two ordered items of
    /// which neither covers the other have nothing in common.
    fn covers(&self, other: &Self) -> bool;
}

/// A list of alternatives, in the order of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternatives<T> {
    list: Vec<T>,
    /// Indices: first those of ordered items that no other covers, by their order, then those of
    /// patterns. The items of a short list all count as patterns.
    indices: Vec<usize>,
    /// The number of ordered items among them.
    ordered: usize,
}

impl<T: Alternative> From<Vec<T>> for Alternatives<T> {
    fn from(list: Vec<T>) -> Self {
        let (mut indices, mut patterns) = (Vec::new(), Vec::new());
        for (index, item) in list.iter().enumerate() {
            let is_ordered = list.len() > SHORT && item.is_ordered();
            if is_ordered { &mut indices } else { &mut patterns }.push(index);
        }
        let both = |one: &usize, other: &usize| list.get(*one).zip(list.get(*other));
        sort_by(&mut indices, |one, other| {
            both(one, other).map_or(Ordering::Equal, |(one, other)| one.order(other))
        });
        indices.dedup_by(|next, last| both(last, next).is_some_and(|(last, it)| last.covers(it)));
        let ordered = indices.len();
        indices.append(&mut patterns);
        Self { list, indices, ordered }
    }
}

impl<T> Alternatives<T> {
    /// The items, in the order of the document.
    pub const fn list(&self) -> &Vec<T> {
        &self.list
    }

    /// The items, to change what their order does not depend on.
    pub fn items_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.list.iter_mut()
    }

    /// The items that can match a value: all patterns, and among the ordered items the last one for
    /// which `is_before` is true, that is, which does not begin after the value.
    pub fn candidates(&self, is_before: impl Fn(&T) -> bool) -> impl Iterator<Item = &T> {
        let at = |index: &usize| self.list.get(*index);
        let (ordered, patterns) = self.indices.split_at_checked(self.ordered).unwrap_or_default();
        let end = ordered.partition_point(|index| at(index).is_some_and(&is_before));
        let mut nearest = end.checked_sub(1).and_then(|place| ordered.get(place));
        let mut patterns = patterns.iter();
        // A chain would generate two copies of the caller's code.
        iter::from_fn(move || at(nearest.take().or_else(|| patterns.next())?))
    }
}

impl<T: Clone> Alternatives<T> {
    /// The same list without an order: every item is a candidate for every value.
    pub fn in_turn(&self) -> Self {
        Self { list: self.list.clone(), indices: (0..self.list.len()).collect(), ordered: 0 }
    }
}

impl<T> Deref for Alternatives<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.list
    }
}
