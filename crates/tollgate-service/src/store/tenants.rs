//! What is known about tenants, as a store keeps it: one entry for each.
//!
//! Invariant: an entry has a revision, which grows with each write of it, so that of two writers
//! who saw the same one exactly one succeeds.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// An operation on the entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantCall {
    /// One entry: [`TenantReply::Entry`].
    Get {
        /// Whose.
        id: String,
    },
    /// Writes an entry: [`TenantReply::Written`] or [`TenantReply::Unexpected`].
    Put {
        /// Whose.
        id: String,
        /// The entry as JSON, validated.
        entry: String,
        /// What must be there.
        expect: Expect,
    },
    /// Removes an entry: [`TenantReply::Removed`] or [`TenantReply::Unexpected`].
    Delete {
        /// Whose.
        id: String,
        /// What must be there.
        expect: Expect,
    },
    /// Entries in the order of their identifiers: [`TenantReply::List`].
    List {
        /// Only those behind this one.
        after: Option<String>,
        /// At most so many.
        limit: u32,
    },
}

/// What must be there for a write to happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// No entry.
    Nothing,
    /// An entry.
    Anything,
    /// An entry of one of these revisions.
    Revisions(Vec<u64>),
}

/// What the store answers to a [`TenantCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantReply {
    /// The entry, if there is one.
    Entry(Option<StoredTenant>),
    /// It is written.
    Written {
        /// The revision that it has now.
        revision: u64,
        /// True when there was none before.
        is_new: bool,
    },
    /// It is gone.
    Removed,
    /// Nothing was written: this is there instead.
    Unexpected(Option<StoredTenant>),
    /// Nothing was written: there is no room for another.
    Full,
    /// Some of the entries.
    List {
        /// In the order of their identifiers.
        entries: Vec<StoredTenant>,
        /// True when there are more behind them.
        more: bool,
    },
}

/// An entry as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTenant {
    /// Whose.
    pub id: String,
    /// Grows with each write.
    pub revision: u64,
    /// The entry as JSON.
    pub entry: String,
}
