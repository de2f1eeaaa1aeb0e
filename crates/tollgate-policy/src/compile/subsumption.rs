//! Whether conditions hold whenever others do.
//!
//! Invariant: a yes is certain, a no may only mean unsure; the work is bounded for a whole
//! document, whatever its lists are.

use core::cell::Cell;

use crate::document::conditions::Conditions;
use crate::document::lists::NonEmpty;

/// The most alternatives that are compared for one document; beyond it one is unsure.
pub(super) const MAX_COMPARED: usize = 50_000;

/// True when `those` hold whenever `these` do, where none given always hold; false when unsure, or
/// when more would have to be compared than is `left`.
pub(super) fn implies(
    these: Option<&Conditions>,
    those: Option<&Conditions>,
    left: &Cell<usize>,
) -> bool {
    let Some(those) = those else { return true };
    let none = Conditions::default();
    let these = these.unwrap_or(&none);
    spend(left, those.comparisons(these)) && those.are_implied_by(these)
}

/// True when each of `these` alternatives is one of `those`, where none given are all; false when
/// unsure.
pub(super) fn implies_values<T: PartialEq>(
    these: &Option<NonEmpty<T>>,
    those: &Option<NonEmpty<T>>,
    left: &Cell<usize>,
) -> bool {
    spend(left, len(these).saturating_mul(len(those)))
        && those.as_ref().is_none_or(|those| {
            these.as_ref().is_some_and(|these| these.0.iter().all(|one| those.0.contains(one)))
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
