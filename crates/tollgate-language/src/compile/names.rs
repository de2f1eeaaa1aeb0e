//! The check for unique names.
//!
//! Invariant: when a name occurs twice, the problem is at the later one.

use alloc::collections::BTreeSet;

use crate::json::place::At;
use tollgate_policy::spec::Name;

pub(super) const TWICE: &str = "is the name of an earlier one; names are unique";

/// Notes every name that occurred before.
pub(super) fn unique<'a>(names: impl Iterator<Item = (usize, &'a Name)>, at: &At<'_>) {
    let mut seen = BTreeSet::new();
    for (i, name) in names {
        if !seen.insert(&name.0) {
            at.item(i).field("name").problem(TWICE.into());
        }
    }
}
