//! The stored values of one request: the group and key of each, the loaded bytes, and its status.
//!
//! Invariant: only the first [`Partitions::len`] belong to this request; the others keep their
//! buffers for the next one. No two of them have the same group and key.

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
    /// Every attempt to commit lost its race.
    Contended,
    /// The stored bytes are not a value of this policy.
    Corrupt,
    /// The stored bytes were written by a newer policy than the plan's, with this version.
    Newer(u64),
    /// The tenant has a different entry from the one with which the request was planned.
    OtherEntry,
}

/// The status of a partition.
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
    /// The range of its key in all keys.
    pub(crate) key: Range<usize>,
    pub(crate) value: Vec<u8>,
    /// The time of the decision.
    pub(crate) at: Timestamp,
    pub(crate) status: Status,
    /// Usage under earlier quotas was carried into those of the policy.
    pub(crate) carried: bool,
    /// The denial of this request started a penalty in the value.
    pub(crate) punished: bool,
    /// The hashes of a key that was too long to be stored.
    pub(crate) trimmed: Option<KeyHashes>,
    /// The tenant whose own quotas may count in it, in addition to those of the group.
    pub(crate) tenant: Option<Arc<Tenant>>,
    /// Decide it only while its tenant has the entry of this revision; revision 0 means no entry.
    pub(crate) under: Option<u64>,
    /// Charges must be durable before the response is sent, whatever the policy requires.
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

/// All partitions of one request, with their keys.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    all: Vec<Stored>,
    used: usize,
    /// The keys one after the other; while planning, the last one is the key being written.
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

    /// The partition of `group` with the key that was just written from `start`. If an earlier rule
    /// has the same key, its partition is returned and the new key is removed.
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

    /// Every charge to these must be durable before the response is sent.
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
            stored.punished = false;
            stored.trimmed = None;
            stored.under = None;
            stored.endures = false;
            debug_assert!(stored.tenant.is_none(), "let go of in `clear`");
        }
        self.used = i.saturating_add(1);
        i
    }

    /// Replaces every key longer than `longest` by the result of `shorten`, which also returns the
    /// hashes of the original key.
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

    /// Frees everything except the keys of this request.
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
