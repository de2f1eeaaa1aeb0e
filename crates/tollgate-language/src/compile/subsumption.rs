//! Whether conditions hold whenever others do.
//!
//! Invariant: a yes is certain, a no may only mean unsure; the work for a whole document is
//! bounded, whatever its lists are.

use core::cell::Cell;

use crate::document::lists::NonEmpty;
use tollgate_policy::spec::Conditions;

/// The most alternatives that are compared for one document; beyond it the result is unsure.
pub(super) const MAX_COMPARED: usize = 50_000;

/// True when `those` hold whenever `these` do; conditions that are absent always hold. False when
/// unsure, or when more comparisons are needed than are `left`.
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

/// True when each of `these` alternatives is one of `those`; an absent list contains all values.
/// False when unsure.
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

/// True when this many comparisons are left; they are then subtracted. To skip some costs one, so
/// that one long list does not end all others.
fn spend(left: &Cell<usize>, comparisons: usize) -> bool {
    let rest = left.get().checked_sub(comparisons);
    left.set(rest.unwrap_or_else(|| left.get().saturating_sub(1)));
    rest.is_some()
}

fn len<T>(list: &Option<NonEmpty<T>>) -> usize {
    list.as_ref().map_or(0, |list| list.0.len())
}
