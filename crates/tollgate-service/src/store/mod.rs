//! A service's calls to its store, and the store's replies: as values, and as JSON on the wire to
//! wherever the store is.
//!
//! Invariant: a store decides races and nothing else: a write names the state that it expects, and
//! the store compares and writes in one step. A write was validated before. A store bounds its
//! data. Deliberately absent: a trait; a store may be synchronous, or far away.

pub(crate) mod keys;
pub(crate) mod key_history;
pub(crate) mod metrics;
pub(crate) mod policy;
pub(crate) mod tenants;
pub(crate) mod usage;

use alloc::string::String;

use serde::{Deserialize, Serialize};

use self::keys::{KeyCall, KeyReply};
use self::metrics::{MetricsCall, MetricsReply};
use self::policy::{PolicyCall, PolicyReply};
use self::tenants::{TenantCall, TenantReply};
use self::usage::{UsageCall, UsageReply};

/// One operation on the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreCall {
    /// On the policy in force and its history.
    Policy(PolicyCall),
    /// On the entries of tenants.
    Tenants(TenantCall),
    /// On one client of a rule.
    Keys(KeyCall),
    /// A report of what clients of a rule have used. It is carried out where the counts are asked,
    /// and is never JSON on the wire.
    #[serde(skip)]
    Usage(UsageCall),
    /// On the counters.
    Metrics(MetricsCall),
}

/// The store's reply: the variant of the call, or a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreReply {
    /// To a [`StoreCall::Policy`].
    Policy(PolicyReply),
    /// To a [`StoreCall::Tenants`].
    Tenants(TenantReply),
    /// To a [`StoreCall::Keys`].
    Keys(KeyReply),
    /// To a [`StoreCall::Usage`].
    #[serde(skip)]
    Usage(UsageReply),
    /// To a [`StoreCall::Metrics`].
    Metrics(MetricsReply),
    /// The store did not respond, or could not carry out the call: the reason, for the log of the
    /// service. A write may have happened.
    Failed(String),
}

impl StoreCall {
    /// As JSON; empty for a [`StoreCall::Usage`].
    #[must_use]
    pub fn to_json(&self) -> String {
        // It contains neither maps nor floats, so nothing else can fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON; `None` when it is not a call, or one of a later version.
    #[must_use]
    pub fn from_json(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }
}

impl StoreReply {
    /// As JSON; empty for a [`StoreReply::Usage`].
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON; an invalid reply is a failure.
    #[must_use]
    pub fn from_json(json: &[u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_else(|_| Self::Failed("it is not a reply".into()))
    }
}
