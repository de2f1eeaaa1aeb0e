//! Whether conditions hold whenever others do.
//!
//! Invariant: a yes is certain, a no may only mean unsure; the work is bounded for a whole document,
//! whatever its lists are.

use core::cell::Cell;

use crate::document::conditions::Conditions;
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
    let Some(mine) = mine else { return true };
    let none = Conditions::default();
    let theirs = theirs.unwrap_or(&none);
    spend(left, mine.comparisons(theirs)) && mine.are_implied_by(theirs)
}

/// True when no alternatives are `mine`, or each of `theirs` is one of them; false when unsure.
pub(super) fn covers_values<T: PartialEq>(
    mine: &Option<NonEmpty<T>>,
    theirs: &Option<NonEmpty<T>>,
    left: &Cell<usize>,
) -> bool {
    spend(left, len(mine).saturating_mul(len(theirs)))
        && mine.as_ref().is_none_or(|mine| {
            theirs.as_ref().is_some_and(|theirs| theirs.0.iter().all(|t| mine.0.contains(t)))
        })
}

/// True when so much may still be compared.
fn spend(left: &Cell<usize>, comparisons: usize) -> bool {
    let rest = left.get().checked_sub(comparisons);
    left.set(rest.unwrap_or(0));
    rest.is_some()
}

fn len<T>(list: &Option<NonEmpty<T>>) -> usize {
    list.as_ref().map_or(0, |list| list.0.len())
}
