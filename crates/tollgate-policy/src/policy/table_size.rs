//! The size of the table that holds a group's values in Envoy.
//!
//! Invariant: the filter and `check` both take the size from here.

use tollgate_storage::table::TableSize;

use crate::policy::group::Group;

/// The most bytes that a node stores for one rule of a fleet, with their header, and for the last
/// response of each of the rule's quotas.
const LONGEST_HOLDING: usize = 381;
const LONGEST_ANSWER: usize = 24;

impl Group {
    /// The size of the table for this group's values, for as many keys as its capacity; for a
    /// fleet, the size for the values that a node stores for it.
    #[must_use]
    pub fn table_size(&self) -> TableSize {
        let answers = self.quotas.saturating_mul(LONGEST_ANSWER);
        let held = self.sets.len().saturating_mul(LONGEST_HOLDING).saturating_add(1);
        let held = held.saturating_add(answers);
        let value_len = if self.is_fleet() { held } else { self.value_len() };
        TableSize::new(self.capacity(), value_len)
    }
}
