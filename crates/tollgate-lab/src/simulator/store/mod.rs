//! Where a node stores the usage of keys: models of the stores on which a policy is enforced.
//!
//! Invariant: a partition is hashed once per decision. A load returns the value stored last, or
//! nothing when the model has evicted it; an eviction that loses usage is counted. Deliberately
//! absent: keys. Only 128-bit keyed hashes of them are kept, so no two keys of a log collide.

mod bounded;
mod exact;

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::num::NonZeroU64;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Partition, PartitionMut, Policy};

use bounded::{Bounded, fingerprint};
use exact::Exact;

/// A model of a store.
#[derive(Debug)]
pub struct Store {
    kind: Kind,
    secret: [u8; 16],
}

#[derive(Debug)]
enum Kind {
    Exact(Exact),
    Bounded(Bounded),
}

/// The location of a partition of the current request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The keyed hash of its key.
    pub(crate) key: u128,
    /// Its place in an exact store, if it has one.
    slot: Option<u32>,
    /// Its fingerprint in a bounded table.
    fingerprint: Option<NonZeroU64>,
}

/// The place of a client's count when its last request was decided
/// ([`Node::known`](crate::simulator::Node)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountPlace {
    high: u64,
    low: u64,
    slot: u32,
}

impl CountPlace {
    /// The 64-bit keyed hash of the key, as decisions show it.
    #[must_use]
    pub const fn key_hash(self) -> u64 {
        self.low
    }

    fn key(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl Place {
    /// The hash of its key that decisions show.
    pub(crate) fn key_hash(self) -> u64 {
        low(self.key)
    }
}

/// The 64-bit hash that is a part of the 128-bit one.
fn low(key: u128) -> u64 {
    u64::try_from(key & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}

impl Store {
    /// Room for every key. A key with an idle state decides like a new one and is removed. So
    /// memory is bounded by the number of live keys: at most about four times as many are held.
    #[must_use]
    pub const fn exact() -> Self {
        Self { kind: Kind::Exact(Exact::new(Span::ZERO)), secret: [0; 16] }
    }

    /// The same for a clock that may step back by `step` in total: a value is kept as long as it
    /// could be needed again after such a step.
    #[must_use]
    pub const fn exact_for_a_clock_that_steps_back(step: Span) -> Self {
        Self { kind: Kind::Exact(Exact::new(step)), secret: [0; 16] }
    }

    /// Envoy's table, in the size of the policy's `capacity`. A full bucket evicts the key that has
    /// used the least share of its quotas.
    #[must_use]
    pub fn envoy() -> Self {
        Self { kind: Kind::Bounded(Bounded::default()), secret: [0; 16] }
    }

    /// The same with this key for its hashes: for a program that shows hashes which must not be
    /// reversed.
    #[must_use]
    pub const fn with_secret(mut self, secret: [u8; 16]) -> Self {
        self.secret = secret;
        self
    }

    /// The same, but an exact store removes no key while a group has fewer than `keys` of them:
    /// finding idle keys, and allocating them again when they return, takes longer than finding
    /// them in place.
    #[must_use]
    pub const fn holding(mut self, keys: usize) -> Self {
        match &mut self.kind {
            Kind::Exact(exact) => exact.hold(keys),
            Kind::Bounded(_) => {} // a full table evicts, no other
        }
        self
    }

    /// Keys that are held now.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::Exact(exact) => exact.len(),
            Kind::Bounded(bounded) => bounded.len(),
        }
    }

    /// True when no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the values that are held now: for an exact store without its index; for Envoy's
    /// table everything in shared data, names included.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let bytes = match &self.kind {
            Kind::Exact(exact) => exact.state_bytes(),
            Kind::Bounded(bounded) => bounded.bytes(),
        };
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Live values that other keys replaced.
    #[must_use]
    pub const fn evictions(&self) -> u64 {
        match &self.kind {
            Kind::Exact(_) => 0,
            Kind::Bounded(bounded) => bounded.evictions().0,
        }
    }

    /// Those of them whose key had used half of a quota or more.
    #[must_use]
    pub const fn evictions_half_used(&self) -> u64 {
        match &self.kind {
            Kind::Exact(_) => 0,
            Kind::Bounded(bounded) => bounded.evictions().1,
        }
    }

    /// The location of a key; nothing is looked up.
    pub(crate) fn place(&self, key: &[u8]) -> Place {
        Place { key: self.hash(key), ..Place::default() }
    }

    /// Loads the stored value of a partition into its plan.
    pub(crate) fn load(&mut self, policy: &Policy, partition: &mut PartitionMut<'_>) -> Place {
        let key = self.hash(partition.key());
        let group = partition.group();
        match &self.kind {
            Kind::Exact(exact) => {
                let (slot, value) = exact.find(group, key).unzip();
                partition.load(policy, value);
                Place { key, slot: slot.flatten(), fingerprint: None }
            }
            Kind::Bounded(bounded) => {
                let fingerprint = fingerprint(&self.secret, partition.key());
                partition.load(policy, bounded.find(group, fingerprint));
                Place { key, slot: None, fingerprint: Some(fingerprint) }
            }
        }
    }

    /// Stores the value of a partition that was charged.
    pub(crate) fn put(
        &mut self,
        policy: &Policy,
        partition: Partition<'_>,
        place: &mut Place,
        now: Timestamp,
    ) {
        match &mut self.kind {
            Kind::Exact(exact) => {
                if place.slot.is_some_and(|slot| exact.replace(partition, place.key, slot)) {
                    return;
                }
                // New, or moved since it was read: removed, or written by another worker.
                place.slot = exact.find(partition.group(), place.key).and_then(|(slot, _)| slot);
                if !place.slot.is_some_and(|slot| exact.replace(partition, place.key, slot)) {
                    place.slot = exact.insert(policy, partition, place.key, now);
                }
            }
            Kind::Bounded(bounded) => {
                if let Some(fingerprint) = place.fingerprint {
                    bounded.put(policy, partition, fingerprint, now);
                }
            }
        }
    }

    /// Copies the unit of reading and writing: an exact store's value, or a bucket of Envoy's
    /// table.
    pub(crate) fn copy(&self, group: usize, place: Place, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.unit(group, place));
    }

    /// True when it has not changed since it was read.
    pub(crate) fn is_still(&self, group: usize, place: Place, read: &[u8]) -> bool {
        self.unit(group, place) == read
    }

    fn unit(&self, group: usize, place: Place) -> &[u8] {
        let unit = match &self.kind {
            Kind::Exact(exact) => exact.find(group, place.key).map(|(_, value)| value),
            Kind::Bounded(bounded) => {
                place.fingerprint.and_then(|fingerprint| bounded.bucket(group, fingerprint))
            }
        };
        unit.unwrap_or_default()
    }

    /// The place of a partition, if it is held and stays in place until it is removed.
    pub(crate) fn known(place: Place) -> Option<CountPlace> {
        let (high, low) = (low(place.key >> 64), low(place.key));
        place.slot.map(|slot| CountPlace { high, low, slot })
    }

    /// True when a key is still held in the same place.
    #[inline]
    pub(crate) fn holds(&self, group: usize, known: CountPlace) -> bool {
        match &self.kind {
            Kind::Exact(exact) => exact.holds(group, known.key(), known.slot),
            Kind::Bounded(_) => false,
        }
    }

    /// The value of a key that was held, if it is still there.
    #[inline]
    pub(crate) fn value_mut(&mut self, group: usize, known: CountPlace) -> Option<&mut [u8]> {
        match &mut self.kind {
            Kind::Exact(exact) => exact.value_mut(group, known.key(), known.slot),
            Kind::Bounded(_) => None, // the place of a key is not remembered
        }
    }

    fn hash(&self, key: &[u8]) -> u128 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write(key);
        hasher.finish128().as_u128().max(1) // 0 means a free place
    }
}
