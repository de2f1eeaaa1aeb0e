//! The entries of tenants, as a store keeps them: one for each.
//!
//! Invariant: an entry has a revision, which grows with each write of it, so that of two writes
//! based on the same revision exactly one succeeds.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// An operation on the entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantCall {
    /// One entry: [`TenantReply::Entry`].
    Get {
        /// The tenant.
        id: String,
    },
    /// Writes an entry: [`TenantReply::Written`] or [`TenantReply::Unexpected`].
    Put {
        /// The tenant.
        id: String,
        /// The entry as JSON, validated.
        entry: String,
        /// The expected state.
        expect: Expect,
    },
    /// Removes an entry: [`TenantReply::Removed`] or [`TenantReply::Unexpected`].
    Delete {
        /// The tenant.
        id: String,
        /// The expected state.
        expect: Expect,
    },
    /// Entries in the order of their identifiers: [`TenantReply::List`].
    List {
        /// Only entries after this one.
        after: Option<String>,
        /// The most entries.
        limit: u32,
    },
}

/// The expected state for a write to happen.
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

/// The store's reply to a [`TenantCall`].
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
    /// It is removed.
    Removed,
    /// Nothing was written: this is the present state.
    Unexpected(Option<StoredTenant>),
    /// Nothing was written: there is no room for another.
    Full,
    /// Some of the entries.
    List {
        /// In the order of their identifiers.
        entries: Vec<StoredTenant>,
        /// True when there are more after them.
        more: bool,
    },
}

/// An entry as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTenant {
    /// The tenant.
    pub id: String,
    /// Grows with each write.
    pub revision: u64,
    /// The entry as JSON.
    pub entry: String,
}
