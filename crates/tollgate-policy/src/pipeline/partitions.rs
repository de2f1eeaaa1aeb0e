//! The stored values of one request: which group and key each is of, what was loaded, and how far
//! it is.
//!
//! Invariant: only the first [`Partitions::len`] are this request's; the others keep their buffers
//! for the next one. No two of them have the same group and key.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use tollgate_core::Timestamp;

use crate::pipeline::key_hashes::KeyHashes;
use crate::policy::tenant::Tenant;

/// Why a stored value could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store did not answer.
    Unreachable,
    /// Every try to commit lost its race.
    Contended,
    /// What was stored is no value of this policy.
    Corrupt,
    /// What was stored is of a newer policy than the plan's, of this version.
    Newer(u64),
    /// The tenant has another entry than the one that the request was planned with.
    OtherEntry,
}

/// How far a partition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nothing is loaded.
    #[default]
    Pending,
    /// Loaded, not decided.
    Loaded,
    /// Decided, and some of this request's costs are in the value.
    Charged,
    /// Decided without charging anything.
    Uncharged,
    /// Could not be loaded or committed.
    Failed(Failure),
}

impl Status {
    /// True when there are decisions.
    pub(crate) const fn is_decided(self) -> bool {
        matches!(self, Self::Charged | Self::Uncharged)
    }

    /// True when there is a value to decide on.
    pub(crate) const fn is_loaded(self) -> bool {
        !matches!(self, Self::Pending | Self::Failed(_))
    }

    pub(crate) const fn has_failed(self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// One stored value.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) group: u16,
    /// Where its key lies among all keys.
    pub(crate) key: Range<usize>,
    pub(crate) value: Vec<u8>,
    /// The time of the decision.
    pub(crate) at: Timestamp,
    pub(crate) status: Status,
    /// What was used under earlier quotas was carried into those of the policy.
    pub(crate) carried: bool,
    /// The hashes of a key that was too long to be kept.
    pub(crate) trimmed: Option<KeyHashes>,
    /// Whose own quotas may count in it, beside those of the group.
    pub(crate) tenant: Option<Arc<Tenant>>,
    /// It is to be decided only while its tenant has the entry of this revision, or none of 0.
    pub(crate) under: Option<u64>,
    /// What is charged must be durable before the answer leaves, whatever the policy says.
    pub(crate) endures: bool,
}

impl Stored {
    /// Its key, among the `keys` of its plan.
    pub(crate) fn key_among<'k>(&self, keys: &'k [u8]) -> &'k [u8] {
        let key = keys.get(self.key.clone());
        debug_assert!(key.is_some(), "a key lies among the keys of its plan");
        key.unwrap_or_default()
    }
}

/// All of one request, with their keys.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    all: Vec<Stored>,
    used: usize,
    /// One after the other, and while a plan is made the one that is being written.
    pub(crate) keys: Vec<u8>,
}

impl Partitions {
    pub(crate) const fn len(&self) -> usize {
        self.used
    }

    pub(crate) fn clear(&mut self) {
        self.all.iter_mut().take(self.used).for_each(|stored| stored.tenant = None);
        self.used = 0;
        self.keys.clear();
    }

    pub(crate) fn live(&self) -> &[Stored] {
        self.all.get(..self.used).unwrap_or_default()
    }

    pub(crate) fn get(&self, i: usize) -> Option<&Stored> {
        self.live().get(i)
    }

    /// Partition `i`, and the keys of all.
    pub(crate) fn get_mut(&mut self, i: usize) -> Option<(&mut Stored, &[u8])> {
        let stored = self.all.get_mut(..self.used)?.get_mut(i)?;
        Some((stored, &self.keys))
    }

    /// The partition of `group` whose key was just written from `start`: an earlier rule's if it
    /// has the same key, which is then taken back.
    pub(crate) fn of_key(&mut self, group: u16, start: usize) -> usize {
        let is_same =
            |p: &Stored| p.group == group && self.keys.get(p.key.clone()) == self.keys.get(start..);
        if let Some(i) = self.live().iter().position(is_same) {
            self.keys.truncate(start);
            return i;
        }
        let end = self.keys.len();
        self.add(group, start..end)
    }

    /// What is charged of all these must be durable before the answer leaves.
    pub(crate) fn endure(&mut self) {
        for stored in self.all.iter_mut().take(self.used) {
            stored.endures = true;
        }
    }

    pub(crate) fn add(&mut self, group: u16, key: Range<usize>) -> usize {
        let i = self.used;
        if self.all.len() == i {
            self.all.push(Stored::default());
        }
        if let Some(stored) = self.all.get_mut(i) {
            stored.group = group;
            stored.key = key;
            stored.status = Status::Pending;
            stored.carried = false;
            stored.trimmed = None;
            stored.under = None;
            stored.endures = false;
            debug_assert!(stored.tenant.is_none(), "let go of in `clear`");
        }
        self.used = i.saturating_add(1);
        i
    }

    /// Replaces every key longer than `longest` by what `shorten` makes of it, which takes note of
    /// what is lost.
    pub(crate) fn shorten_keys(
        &mut self,
        longest: usize,
        mut shorten: impl FnMut(u16, &[u8]) -> (KeyHashes, [u8; 16]),
    ) {
        if self.keys.len() <= longest {
            return;
        }
        let mut keys = Vec::new();
        for stored in self.all.iter_mut().take(self.used) {
            let key = self.keys.get(stored.key.clone()).unwrap_or_default();
            let start = keys.len();
            if key.len() > longest {
                let (hashes, digest) = shorten(stored.group, key);
                stored.trimmed = Some(hashes);
                keys.extend(digest);
            } else {
                keys.extend_from_slice(key);
            }
            stored.key = start..keys.len();
        }
        self.keys = keys;
    }

    /// Lets go of everything but the keys of this request.
    pub(crate) fn shrink(&mut self) {
        self.all.truncate(self.used);
        self.all.iter_mut().for_each(|stored| stored.value = Vec::new());
        self.all.shrink_to_fit();
        self.keys.shrink_to_fit();
    }

    /// Bytes that the buffers hold.
    pub(crate) fn capacity(&self) -> usize {
        let values = self.all.iter().map(|stored| stored.value.capacity());
        let all = self.all.capacity().saturating_mul(size_of::<Stored>());
        values.fold(all.saturating_add(self.keys.capacity()), usize::saturating_add)
    }
}
