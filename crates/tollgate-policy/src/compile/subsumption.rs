//! Whether conditions hold whenever others do.
//!
//! Invariant: a yes is certain, a no may only mean unsure; the work is bounded for a whole document,
//! whatever its lists are.

use alloc::vec::Vec;
use core::cell::Cell;

use crate::document::conditions::{Conditions, Named};
use crate::document::lists::NonEmpty;

/// The most alternatives that are compared for one document; beyond it one is unsure.
pub(super) const MAX_COMPARED: usize = 50_000;

/// True when `mine` hold whenever `theirs` do, where none given always hold; false when unsure, or when
/// more would have to be compared than is `left`.
pub(super) fn covers(
    mine: Option<&Conditions>,
    theirs: Option<&Conditions>,
    left: &Cell<usize>,
) -> bool {
    mine.is_none_or(|mine| mine.covers(theirs.unwrap_or(&Conditions::default()), left))
}

/// True when no alternatives are `mine`, or each of `theirs` is one of them; false when unsure.
pub(super) fn covers_values<T: PartialEq>(
    mine: &Option<NonEmpty<T>>,
    theirs: &Option<NonEmpty<T>>,
    left: &Cell<usize>,
) -> bool {
    spend(left, len(mine).saturating_mul(len(theirs))) && covered(mine, theirs, PartialEq::eq)
}

/// True when so much may still be compared.
fn spend(left: &Cell<usize>, comparisons: usize) -> bool {
    let rest = left.get().checked_sub(comparisons);
    left.set(rest.unwrap_or(0));
    rest.is_some()
}

impl Conditions {
    fn covers(&self, other: &Self, left: &Cell<usize>) -> bool {
        spend(left, self.comparisons(other))
            && covered(&self.methods, &other.methods, PartialEq::eq)
            && covered(&self.hosts, &other.hosts, PartialEq::eq)
            && covered(&self.paths, &other.paths, |mine, theirs| mine.covers(theirs))
            && covered(&self.client_cidrs, &other.client_cidrs, |mine, theirs| mine.covers(theirs))
            && covered(&self.routes, &other.routes, PartialEq::eq)
            && covered(&self.countries, &other.countries, PartialEq::eq)
            && covered(&self.asns, &other.asns, PartialEq::eq)
            && covered_named(&self.headers, &other.headers)
            && covered_named(&self.query, &other.query)
    }

    /// At most how many alternatives are compared to see whether these cover `other`.
    fn comparisons(&self, other: &Self) -> usize {
        let sizes = self.sizes().into_iter().zip(other.sizes());
        sizes.map(|(mine, theirs)| mine.saturating_mul(theirs)).fold(1, usize::saturating_add)
    }

    fn sizes(&self) -> [usize; 9] {
        [
            len(&self.methods),
            len(&self.hosts),
            len(&self.paths),
            len(&self.client_cidrs),
            len(&self.routes),
            len(&self.countries),
            len(&self.asns),
            self.headers.as_ref().map_or(0, |named| named.0.len()),
            self.query.as_ref().map_or(0, |named| named.0.len()),
        ]
    }
}

fn len<T>(list: &Option<NonEmpty<T>>) -> usize {
    list.as_ref().map_or(0, |list| list.0.len())
}

/// True when `mine` is not given, or every alternative of `theirs` is within one of `mine`.
fn covered<T>(
    mine: &Option<NonEmpty<T>>,
    theirs: &Option<NonEmpty<T>>,
    within: fn(&T, &T) -> bool,
) -> bool {
    let Some(mine) = mine else { return true };
    theirs
        .as_ref()
        .is_some_and(|theirs| theirs.0.iter().all(|t| mine.0.iter().any(|m| within(m, t))))
}

fn covered_named<K: PartialEq>(mine: &Option<Named<K>>, theirs: &Option<Named<K>>) -> bool {
    let theirs: Vec<_> = theirs.iter().flat_map(|named| &named.0).collect();
    mine.iter().flat_map(|named| &named.0).all(|wanted| theirs.contains(&wanted))
}
