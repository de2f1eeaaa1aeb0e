//! A store of rules in memory: for a server that keeps no other, and for tests.
//!
//! Invariant: it means what every store means by a [`StoreCall`], and each call is one step. What
//! it keeps is bounded ([`MemoryLimits`]). Deliberately absent: what is counted; keys and metrics
//! are whoever decides about requests asked for.

pub(crate) mod policies;
pub(crate) mod tenants;
pub(crate) mod limits;

use alloc::string::String;

use serde::{Deserialize, Serialize};

use self::limits::MemoryLimits;
use self::policies::Policies;
use self::tenants::Tenants;
use crate::store::{StoreCall, StoreReply};

/// A store of rules in memory.
#[derive(Debug, Default, Serialize, Deserialize)]
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

    /// How much was changed since the store was empty: more after each change, and the same after
    /// what only reads.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.policies.changes().saturating_add(self.tenants.changes())
    }

    /// All of it as JSON, on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What [`MemoryStore::to_json`] wrote, within these limits from now on; `None` for what is no
    /// store, or one of a later version.
    #[must_use]
    pub fn from_json(limits: MemoryLimits, json: &str) -> Option<Self> {
        let mut store: Self = serde_json::from_str(json).ok()?;
        store.policies.set_limits(limits);
        store.tenants.set_limits(limits);
        Some(store)
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
