//! Counts in memory: the usage of each key, in a table whose size is fixed when the policy is
//! loaded.
//!
//! Invariant: a group never holds more keys than it has places, whatever clients send, and finding
//! a place reads one bucket of sixteen, never the whole table. A key's own bytes are not kept, only
//! a hash of them with a secret of this process, so that no client can aim at a bucket.
//! Deliberately absent: a lock (see `gate`), timers (an idle key is replaced by the next one that
//! needs its place), and anything on disk.

use std::hash::{BuildHasher, RandomState};

use tollgate::{Partition, Policy, Timestamp};

/// Places per bucket.
const WAYS: usize = 16;
/// Places per key of a rule's `capacity`. Keys fall into random buckets; with twice the room fewer
/// than about one in a thousand finds its bucket full.
const ROOM: usize = 2;

/// The counts of every group of a policy.
#[derive(Debug)]
pub struct Counts {
    groups: Vec<Vec<Bucket>>,
    secret: RandomState,
    evicted: u64,
}

type Bucket = Vec<Entry>;

#[derive(Debug)]
struct Entry {
    hash: u64,
    value: Vec<u8>,
}

impl Counts {
    /// A table with room for the `capacity` of each of the policy's groups. A key uses no memory
    /// before it is charged.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let buckets = |capacity: u32| {
            let places = usize::try_from(capacity).unwrap_or(usize::MAX).saturating_mul(ROOM);
            std::iter::repeat_with(Vec::new).take(places.div_ceil(WAYS)).collect()
        };
        let groups = policy.groups().iter().map(|group| buckets(group.capacity())).collect();
        Self { groups, secret: RandomState::new(), evicted: 0 }
    }

    /// The usage of a partition; `None` when it was never stored, or was evicted.
    #[must_use]
    pub fn get(&self, partition: Partition<'_>) -> Option<&[u8]> {
        let hash = self.secret.hash_one(partition.key());
        let buckets = self.groups.get(partition.group())?;
        let bucket = buckets.get(place(hash, buckets.len()))?;
        bucket.iter().find(|entry| entry.hash == hash).map(|entry| entry.value.as_slice())
    }

    /// Stores the usage of a partition. In a full bucket it replaces an idle key, which loses
    /// nothing, or else the key that has used the smallest share of its quotas.
    pub fn put(&mut self, policy: &Policy, partition: Partition<'_>, now: Timestamp) {
        let hash = self.secret.hash_one(partition.key());
        let (value, group) = (partition.value(), partition.group());
        let (Some(group), Some(buckets)) = (policy.groups().get(group), self.groups.get_mut(group))
        else {
            return;
        };
        let at = place(hash, buckets.len());
        let Some(bucket) = buckets.get_mut(at) else { return };
        if let Some(entry) = bucket.iter_mut().find(|entry| entry.hash == hash) {
            entry.value.clear();
            entry.value.extend_from_slice(value);
            return;
        }
        let entry = Entry { hash, value: value.to_vec() };
        if bucket.len() < WAYS {
            bucket.push(entry);
            return;
        }
        let is_live = |entry: &Entry| group.idle_at(policy, &entry.value) > now;
        let rank = |entry: &Entry| (is_live(entry), group.used_share(policy, &entry.value, now));
        if let Some(least) = bucket.iter_mut().min_by_key(|entry| rank(entry)) {
            self.evicted = self.evicted.saturating_add(u64::from(is_live(least)));
            *least = entry;
        }
    }

    /// The number of keys held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.iter().flatten().map(Vec::len).sum()
    }

    /// True when no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The maximum number of keys.
    #[must_use]
    pub fn places(&self) -> usize {
        self.groups.iter().map(|buckets| buckets.len().saturating_mul(WAYS)).sum()
    }

    /// How many keys were evicted while not idle. If this number grows, raise `capacity`.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// The bucket of a hash among `buckets`.
fn place(hash: u64, buckets: usize) -> usize {
    let buckets = u64::try_from(buckets).unwrap_or(u64::MAX);
    usize::try_from(hash.checked_rem(buckets).unwrap_or(0)).unwrap_or(0)
}
