//! What operators did to keys, as a store keeps it: the newest [`KEY_ROWS`].
//!
//! Invariant: a row names a key by the hash that clients and logs know it by (`pk`), never by its
//! value. Numbers only grow, from 1; a row is never changed.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::access::Actor;

/// The most rows that are kept; beyond them the oldest is forgotten.
pub const KEY_ROWS: u64 = 1_000;

/// What was done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyAct {
    /// What it used was forgotten.
    Reset,
    /// It was refused until a time.
    Block,
    /// A block was ended.
    Unblock,
}

/// A key, before and after something was done to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The rule's name.
    pub rule: String,
    /// The tenant whose own quotas count apart.
    pub tenant: Option<String>,
    /// What clients and logs know the key by.
    pub pk: u64,
    /// What it had used, in words of bounded length.
    pub before: String,
    /// The same afterwards.
    pub after: String,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What was done.
    pub act: KeyAct,
    /// Who did it.
    pub actor: Option<Actor>,
    /// To what.
    pub change: KeyChange,
}

impl KeyRow {
    /// What the row of this number makes of [`Current::relieved`](crate::Current::relieved). The
    /// time is in it because a store that was set back to an earlier day gives numbers twice.
    #[must_use]
    pub fn relief(&self, number: u64) -> u64 {
        self.at_ms.saturating_mul(1_000).saturating_add(number % 1_000)
    }

    /// As JSON, as a store may keep it.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From JSON; `None` for what is none, or of a later version.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}
