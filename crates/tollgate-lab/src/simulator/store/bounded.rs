//! Envoy's bounded table, with its production code: the same bytes, buckets and evictions.
//!
//! Invariant: this stores the bytes that the filter would store in shared data; only bucket names
//! are numbers here. Deliberately absent: tables that grow, and hosts that do not respond.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use tollgate_core::Timestamp;
use tollgate_policy::{Directory, Partition, Policy};
use tollgate_storage::table::{Bucket, Seed, Table, TableSize, bucket_of};

/// The tables of every group.
#[derive(Debug, Default)]
pub(super) struct Bounded {
    tables: Vec<Shared>,
    out: Vec<u8>,
    keys: usize,
    bytes: usize,
    evictions: u64,
    evictions_half_used: u64,
}

/// One group's table and its buckets.
#[derive(Debug)]
struct Shared {
    table: Table,
    buckets: BTreeMap<u32, Vec<u8>>,
}

impl Bounded {
    pub(super) const fn len(&self) -> usize {
        self.keys
    }

    /// Bytes of all buckets and their names.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Live values that were lost, and those of them that had used half of a quota.
    pub(super) const fn evictions(&self) -> (u64, u64) {
        (self.evictions, self.evictions_half_used)
    }

    /// The stored value of a key.
    pub(super) fn find(&self, group: usize, fingerprint: NonZeroU64) -> Option<&[u8]> {
        Bucket::parse(self.bucket(group, fingerprint)?).ok()?.find(fingerprint)
    }

    /// The bytes of a key's bucket.
    pub(super) fn bucket(&self, group: usize, fingerprint: NonZeroU64) -> Option<&[u8]> {
        let shared = self.tables.get(group)?;
        shared.buckets.get(&shared.bucket(fingerprint)).map(Vec::as_slice)
    }

    /// Writes a key's value; in a full bucket it replaces another key's.
    pub(super) fn put(
        &mut self,
        policy: &Policy,
        partition: Partition<'_>,
        fingerprint: NonZeroU64,
        now: Timestamp,
    ) {
        if self.tables.is_empty() {
            let shared = |(identity, size)| Shared {
                table: Table::new(b"", identity, size),
                buckets: BTreeMap::new(),
            };
            let groups = policy.groups().iter().map(|group| (group.identity(), group.table_size()));
            self.tables = groups.map(shared).collect();
        }
        let group = policy.groups().get(partition.group());
        let shared = self.tables.get_mut(partition.group());
        let (Some(group), Some(shared)) = (group, shared) else { return };
        let number = shared.bucket(fingerprint);
        let empty = Bucket::empty(shared.table.extent().level);
        let before = shared.buckets.get(&number).map(Vec::as_slice);
        let (known, is_new) = (before.unwrap_or(&empty), before.is_none());
        let Ok(bucket) = Bucket::parse(known) else { return };
        let way = (fingerprint, partition.value());
        let ways = shared.table.size().ways();
        let none = Directory::default(); // a policy in virtual time never changes
        let claim_of = |value: &[u8]| group.eviction_claim(policy, &none, value, now);
        let lost = bucket.with(way, ways, claim_of, &mut self.out);
        if let Some(lost) = lost {
            self.evictions = self.evictions.saturating_add(1);
            let half_used = u64::from(lost.is_half_used());
            self.evictions_half_used = self.evictions_half_used.saturating_add(half_used);
        }
        let keys = Bucket::parse(&self.out).map_or(0, |bucket| bucket.keys());
        self.keys = self.keys.saturating_sub(bucket.keys()).saturating_add(keys);
        let gone = if is_new { 0 } else { known.len().saturating_add(TableSize::BUCKET_NAME) };
        let stored = self.out.len().saturating_add(TableSize::BUCKET_NAME);
        self.bytes = self.bytes.saturating_sub(gone).saturating_add(stored);
        shared.buckets.entry(number).or_default().clone_from(&self.out);
    }
}

impl Shared {
    fn bucket(&self, fingerprint: NonZeroU64) -> u32 {
        bucket_of(fingerprint, self.table.extent().level)
    }
}

/// The key's fingerprint in the table.
pub(super) fn fingerprint(secret: &Seed, key: &[u8]) -> NonZeroU64 {
    Table::fingerprint(secret, key)
}
