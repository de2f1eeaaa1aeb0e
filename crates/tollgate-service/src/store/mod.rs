//! What a service asks of its store, and what the store answers: as values, and as JSON on the wire
//! to wherever the store is.
//!
//! Invariant: a store decides races and nothing else: whoever writes names what it saw, and the
//! store compares and writes in one step. What may be written was validated before. A store bounds
//! what it keeps. Deliberately absent: a trait; a store may be synchronous, or far away.

pub(crate) mod keys;
pub(crate) mod key_history;
pub(crate) mod metrics;
pub(crate) mod policy;
pub(crate) mod tenants;

use alloc::string::String;

use serde::{Deserialize, Serialize};

use self::keys::{KeyCall, KeyReply};
use self::metrics::{MetricsCall, MetricsReply};
use self::policy::{PolicyCall, PolicyReply};
use self::tenants::{TenantCall, TenantReply};

/// One operation on the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreCall {
    /// On the policy in force and its history.
    Policy(PolicyCall),
    /// On what is known about tenants.
    Tenants(TenantCall),
    /// On one client of a rule.
    Keys(KeyCall),
    /// On what was counted.
    Metrics(MetricsCall),
}

/// What the store answers: the arm of the call, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreReply {
    /// To a [`StoreCall::Policy`].
    Policy(PolicyReply),
    /// To a [`StoreCall::Tenants`].
    Tenants(TenantReply),
    /// To a [`StoreCall::Keys`].
    Keys(KeyReply),
    /// To a [`StoreCall::Metrics`].
    Metrics(MetricsReply),
    /// The store did not answer, or could not do it: why, for the log of the service. A write may
    /// have happened.
    Failed(String),
}

impl StoreCall {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Neither maps nor floats are in it, so nothing can fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON; `None` for what is no call, or one of a later version.
    #[must_use]
    pub fn from_json(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }
}

impl StoreReply {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON; what is no reply is a failure.
    #[must_use]
    pub fn from_json(json: &[u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_else(|_| Self::Failed("it is no reply".into()))
    }
}
