//! The counts of a key as a store that decides on its own keeps them, from a stored value.

use alloc::borrow::Cow;

use tollgate_storage::Counts;

use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::record;
use crate::policy::records::is_value;

impl Group {
    /// The usage in a stored value of this group, for a store that decides on its own: the states
    /// of all quotas that its `policy` has. `None` for bytes that are not such a value.
    #[must_use]
    pub fn counts_of(&self, policy: &Policy, value: &[u8]) -> Option<Counts> {
        let states = |set: &QuotaSet| {
            Some((set.to_stored(), record::find(value, set).map(Cow::into_owned)?))
        };
        let sets = policy.sets.iter().filter_map(states);
        is_value(value).then(|| Counts::of_states(self.identity(), sets))
    }
}
