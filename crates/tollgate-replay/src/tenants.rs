//! A replay that knows entries of tenants.
//!
//! Invariant: every policy of the replay decides with the same entries, each by what it knows of
//! them. Deliberately absent: where entries come from, and what is wrong with them.

use std::sync::Arc;

use tollgate_policy::TenantEntry;
use tollgate_sim::Tenants;

use crate::observer::Observer;
use crate::replay::Replay;

impl<O: Observer> Replay<O> {
    /// The same with entries of tenants and their names, for every policy of it. Before the first
    /// request, and after [`Replay::against`].
    #[must_use]
    pub fn with_tenants(mut self, entries: &[(String, TenantEntry)]) -> Self {
        for lane in &mut self.lanes {
            let tenants = Arc::new(Tenants::under(&lane.policy, entries));
            lane.know_tenants(tenants);
        }
        self
    }
}
