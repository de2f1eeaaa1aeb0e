//! Places in a list by identity: of a record, or of a rule or tier by its name.
//!
//! Invariant: sorted once, so that one of a thousand is found by ten comparisons, and all records
//! of a value are read in time by their number and not by its square.

use alloc::vec::Vec;

use crate::sort::sort_by;

/// Places by identity, in the order of the identities.
#[derive(Clone, Debug, Default)]
pub(crate) struct ById(Vec<(u64, u16)>);

impl ById {
    pub(crate) fn new(mut all: Vec<(u64, u16)>) -> Self {
        sort_by(&mut all, |(one, _), (other, _)| one.cmp(other));
        Self(all)
    }

    /// The place with this identity; of several the first that was given.
    pub(crate) fn find(&self, id: u64) -> Option<usize> {
        let first = self.0.partition_point(|(one, _)| *one < id);
        let (found, place) = self.0.get(first)?;
        (*found == id).then_some(usize::from(*place))
    }
}
