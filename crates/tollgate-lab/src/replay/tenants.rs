//! A replay with tenant entries.
//!
//! Invariant: every policy of the replay decides with the same entries, each with the parts that it
//! knows. Deliberately absent: the source of the entries, and their mistakes.

use std::sync::Arc;

use tollgate_policy::TenantEntry;

use crate::replay::engine::Replay;
use crate::replay::observer::Observer;
use crate::simulator::Tenants;

impl<O: Observer> Replay<O> {
    /// The same with tenant entries and their names, for each of its policies. Call it before the
    /// first request, and after [`Replay::against`].
    #[must_use]
    pub fn with_tenants(mut self, entries: &[(String, TenantEntry)]) -> Self {
        for lane in &mut self.lanes {
            let tenants = Arc::new(Tenants::under(&lane.policy, entries));
            lane.set_tenants(tenants);
        }
        self
    }
}
