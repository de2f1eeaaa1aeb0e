//! The operators' changes of keys, as a store keeps them: the newest [`KEY_ROWS`].
//!
//! Invariant: a row names a key by the hash that clients and logs have (`pk`), never by its value.
//! Numbers only grow, from 1; a row is never changed.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::access::Actor;

/// The most rows that are kept; beyond them the oldest is forgotten.
pub const KEY_ROWS: u64 = 1_000;

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyAct {
    /// Its used quota was forgotten.
    Reset,
    /// It is denied until a time.
    Block,
    /// A block was ended.
    Unblock,
}

/// A key, before and after the operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The rule's name.
    pub rule: String,
    /// The tenant whose own quotas count separately.
    pub tenant: Option<String>,
    /// The hash of the key in responses and logs.
    pub pk: u64,
    /// Its used quota before, in words of bounded length.
    pub before: String,
    /// The same afterwards.
    pub after: String,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
    /// The operation.
    pub act: KeyAct,
    /// The author.
    pub actor: Option<Actor>,
    /// The change.
    pub change: KeyChange,
}

impl KeyRow {
    /// The value of [`Current::relieved`](crate::Current::relieved) for the row of this number. It
    /// contains the time because a store that was set back to an earlier day gives numbers twice.
    #[must_use]
    pub fn relief(&self, number: u64) -> u64 {
        self.at_ms.saturating_mul(1_000).saturating_add(number % 1_000)
    }

    /// As JSON, as a store may keep it.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON; `None` when it is not a row, or one of a later version.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}
