//! Where a node keeps what keys have used: models of the stores that a policy is enforced on.
//!
//! Invariant: a partition is hashed once for each decision; what is loaded is what was stored last,
//! or nothing when the model has forgotten it, which it counts if that was a loss. Deliberately
//! absent: keys. Only keyed hashes of them are kept, of 128 bits, so that no two of a log are one.

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

/// Where a partition of the current request lies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The keyed hash of its key.
    pub(crate) key: u128,
    /// Where an exact store holds it already.
    slot: Option<u32>,
    /// What a bounded table knows it by.
    fingerprint: Option<NonZeroU64>,
}

/// Where a client's count was when its last request was decided ([`Node::known`](crate::Node)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    high: u64,
    low: u64,
    slot: u32,
}

impl Known {
    /// The 64-bit keyed hash of the key, as decisions tell it.
    #[must_use]
    pub const fn key_hash(self) -> u64 {
        self.low
    }

    fn key(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl Place {
    /// What is told of its key.
    pub(crate) fn key_hash(self) -> u64 {
        low(self.key)
    }
}

/// The hash of 64 bits that is a part of the one of 128.
fn low(key: u128) -> u64 {
    u64::try_from(key & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}

impl Store {
    /// Room for every key. One whose state is idle, and so decides like a key never seen, is
    /// forgotten, so that memory is bounded by the keys that are live at once: at most about four
    /// times as many are held.
    #[must_use]
    pub const fn exact() -> Self {
        Self { kind: Kind::Exact(Exact::new(Span::ZERO)), secret: [0; 16] }
    }

    /// The same for a clock that may step back by `step` in all: what would be owed again then is
    /// not forgotten before.
    #[must_use]
    pub const fn exact_for_a_clock_that_steps_back(step: Span) -> Self {
        Self { kind: Kind::Exact(Exact::new(step)), secret: [0; 16] }
    }

    /// Envoy's table, as large as the policy's `capacity` asks: a full bucket gives up who has used
    /// the least share of its quotas.
    #[must_use]
    pub fn envoy() -> Self {
        Self { kind: Kind::Bounded(Bounded::default()), secret: [0; 16] }
    }

    /// The same with this key for its hashes: for whoever shows hashes that nobody may undo.
    #[must_use]
    pub const fn with_secret(mut self, secret: [u8; 16]) -> Self {
        self.secret = secret;
        self
    }

    /// The same, but an exact store forgets nobody while it holds fewer than so many keys of a
    /// group: to look for those that are idle, and to make room for them anew when they come back,
    /// takes longer than to find them where they were.
    #[must_use]
    pub const fn holding(mut self, keys: usize) -> Self {
        match &mut self.kind {
            Kind::Exact(exact) => exact.hold(keys),
            Kind::Bounded(_) => {} // it forgets nobody before it is full
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

    /// Bytes of the values that are held now: of an exact store without what finding them takes, of
    /// Envoy's table all that is in shared data, names included.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        let bytes = match &self.kind {
            Kind::Exact(exact) => exact.state_bytes(),
            Kind::Bounded(bounded) => bounded.bytes(),
        };
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Live values that others took the place of.
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

    /// Whose a key is; nothing is looked up.
    pub(crate) fn place(&self, key: &[u8]) -> Place {
        Place { key: self.hash(key), ..Place::default() }
    }

    /// Hands the stored value of a partition to its plan.
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
                // New, or moved since it was read: forgotten, or written by another worker.
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

    /// Copies what is read and written as one: the value of an exact store, the bucket of Envoy's.
    pub(crate) fn copy(&self, group: usize, place: Place, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.unit(group, place));
    }

    /// True when that is what it was when it was read.
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

    /// Where a partition lies, if it is held and stays where it is until it is forgotten.
    pub(crate) fn known(place: Place) -> Option<Known> {
        let (high, low) = (low(place.key >> 64), low(place.key));
        place.slot.map(|slot| Known { high, low, slot })
    }

    /// True when a key that was held still is, where it was.
    #[inline]
    pub(crate) fn holds(&self, group: usize, known: Known) -> bool {
        match &self.kind {
            Kind::Exact(exact) => exact.holds(group, known.key(), known.slot),
            Kind::Bounded(_) => false,
        }
    }

    /// The value of a key that was held, if it still is.
    #[inline]
    pub(crate) fn value_mut(&mut self, group: usize, known: Known) -> Option<&mut [u8]> {
        match &mut self.kind {
            Kind::Exact(exact) => exact.value_mut(group, known.key(), known.slot),
            Kind::Bounded(_) => None, // where a key lies is not remembered
        }
    }

    fn hash(&self, key: &[u8]) -> u128 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write(key);
        hasher.finish128().as_u128().max(1) // 0 is nobody's
    }
}
