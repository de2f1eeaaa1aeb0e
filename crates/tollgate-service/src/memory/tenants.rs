//! The entries of tenants, in memory.
//!
//! Invariant: a revision never comes back, not even after an entry was removed and written again.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use core::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::memory::limits::MemoryLimits;
use crate::store::tenants::{Expect, StoredTenant, TenantCall, TenantReply};

/// The known state of tenants.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tenants {
    #[serde(skip)]
    limits: MemoryLimits,
    entries: BTreeMap<String, StoredTenant>,
    last_revision: u64,
    removed: u64,
}

impl Tenants {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    pub(crate) const fn set_limits(&mut self, limits: MemoryLimits) {
        self.limits = limits;
    }

    /// Greater after each change.
    pub(crate) const fn changes(&self) -> u64 {
        self.last_revision.saturating_add(self.removed)
    }

    /// Carries out `call`.
    pub(crate) fn answer(&mut self, call: &TenantCall) -> TenantReply {
        match call {
            TenantCall::Get { id } => TenantReply::Entry(self.entries.get(id).cloned()),
            TenantCall::Put { id, entry, expect } => self.put(id, entry, expect),
            TenantCall::Delete { id, expect } => self.delete(id, expect),
            TenantCall::List { after, limit } => self.list(after.as_deref(), *limit),
        }
    }

    /// True when `call` would change something.
    pub(crate) fn would_change(&self, call: &TenantCall) -> bool {
        match call {
            TenantCall::Put { id, expect, .. } => {
                let found = self.entries.get(id);
                is_expected(found, expect) && self.has_room(found)
            }
            TenantCall::Delete { id, expect } => is_expected(self.entries.get(id), expect),
            TenantCall::Get { .. } | TenantCall::List { .. } => false,
        }
    }

    /// True when an entry can be written where `found` is now.
    fn has_room(&self, found: Option<&StoredTenant>) -> bool {
        found.is_some() || self.entries.len() < self.limits.tenants
    }

    fn put(&mut self, id: &str, entry: &str, expect: &Expect) -> TenantReply {
        let found = self.entries.get(id);
        if !is_expected(found, expect) {
            return TenantReply::Unexpected(found.cloned());
        }
        if !self.has_room(found) {
            return TenantReply::Full;
        }
        let is_new = found.is_none();
        self.last_revision = self.last_revision.saturating_add(1);
        let revision = self.last_revision;
        let (id, entry) = (id.to_string(), entry.to_string());
        self.entries.insert(id.clone(), StoredTenant { id, revision, entry });
        TenantReply::Written { revision, is_new }
    }

    fn delete(&mut self, id: &str, expect: &Expect) -> TenantReply {
        let found = self.entries.get(id);
        if !is_expected(found, expect) {
            return TenantReply::Unexpected(found.cloned());
        }
        self.entries.remove(id);
        self.removed = self.removed.saturating_add(1);
        TenantReply::Removed
    }

    fn list(&self, after: Option<&str>, limit: u32) -> TenantReply {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self.entries.range::<str, _>((from, Bound::Unbounded));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let entries = behind.by_ref().take(limit).map(|(_, entry)| entry.clone()).collect();
        TenantReply::List { entries, more: behind.next().is_some() }
    }
}

fn is_expected(found: Option<&StoredTenant>, expect: &Expect) -> bool {
    match expect {
        Expect::Nothing => found.is_none(),
        Expect::Anything => found.is_some(),
        Expect::Revisions(wanted) => found.is_some_and(|it| wanted.contains(&it.revision)),
    }
}
