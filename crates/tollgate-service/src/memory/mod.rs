//! A store of rules in memory: for a server that keeps no other, and for tests.
//!
//! Invariant: it means what every store means by a [`StoreCall`], and each call is one step. What
//! it keeps is bounded ([`MemoryLimits`]). Deliberately absent: what is counted; keys and metrics
//! are whoever decides about requests asked for.

pub(crate) mod policies;
pub(crate) mod tenants;
pub(crate) mod limits;

use self::limits::MemoryLimits;
use self::policies::Policies;
use self::tenants::Tenants;
use crate::store::{StoreCall, StoreReply};

/// A store of rules in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    policies: Policies,
    tenants: Tenants,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(limits: MemoryLimits) -> Self {
        Self { policies: Policies::new(limits), tenants: Tenants::new(limits) }
    }

    /// Carries out `call`; `None` for what is no matter of rules: keys and metrics.
    pub fn answer(&mut self, call: &StoreCall) -> Option<StoreReply> {
        match call {
            StoreCall::Policy(call) => Some(StoreReply::Policy(self.policies.answer(call))),
            StoreCall::Tenants(call) => Some(StoreReply::Tenants(self.tenants.answer(call))),
            StoreCall::Keys(_) | StoreCall::Metrics(_) => None,
        }
    }
}
