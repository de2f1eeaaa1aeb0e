//! A store that loses nothing: every key that is not idle, in memory that is reused.
//!
//! Invariant: a value is removed only when its state decides like that of a new key, at every time
//! that the clock can still show. Every new key checks two places and frees those that are idle. So
//! there is never a sweep, and with `n` live keys at most about `4 n` are held.
//!
//! A place is the 16 bytes of the keyed hash of its key, or zeros when it is free, then the value:
//! one cache line for a small one. Values of another length than their group's are stored
//! separately. They belong to tenants with quotas of their own, or have few of many records.

use hashbrown::HashTable;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Partition, Policy};

/// Bytes of the hash before a value.
const OWNER: usize = 16;
/// The number of values of other lengths from which idle ones are removed, each time that the
/// number has doubled.
const FEW_LONG: usize = 4_096;
/// Places that a new key checks.
const LOOKS: usize = 2;

/// Every group's keys.
#[derive(Debug)]
pub(super) struct Exact {
    shelves: Vec<KeyGroup>,
    /// Values of other lengths. (An ordered map would be 2 KB more of the page.)
    long: HashTable<TenantValue>,
    /// How many of them there may be before idle ones are removed.
    room: usize,
    /// How long a value is kept after it becomes idle.
    keeps: Span,
    /// The number of keys that a group holds before any is removed.
    holds: usize,
}

/// A value with a tenant's own quotas, and when it may be removed.
#[derive(Debug)]
struct TenantValue {
    group: usize,
    key: u128,
    value: Vec<u8>,
    idle_at: Timestamp,
}

/// The keys of one group.
#[derive(Debug, Default)]
struct KeyGroup {
    /// Bytes per place.
    width: usize,
    places: Vec<u8>,
    /// Places by key.
    by_key: HashTable<u32>,
    free: Vec<u32>,
    /// The place that is checked next.
    hand: usize,
}

impl Exact {
    pub(super) const fn new(keeps: Span) -> Self {
        Self { shelves: Vec::new(), long: HashTable::new(), room: FEW_LONG, keeps, holds: 0 }
    }

    pub(super) const fn hold(&mut self, keys: usize) {
        self.holds = keys;
    }

    pub(super) fn len(&self) -> usize {
        let held: usize = self.shelves.iter().map(|shelf| shelf.by_key.len()).sum();
        held.saturating_add(self.long.len())
    }

    pub(super) fn state_bytes(&self) -> usize {
        let bytes =
            |shelf: &KeyGroup| shelf.by_key.len().saturating_mul(shelf.width.saturating_sub(OWNER));
        let long = self.long.iter().map(|long| long.value.len());
        self.shelves.iter().map(bytes).chain(long).fold(0, usize::saturating_add)
    }

    /// The value of a key, and its place if it has one.
    #[inline]
    pub(super) fn find(&self, group: usize, key: u128) -> Option<(Option<u32>, &[u8])> {
        if let Some(long) = self.long.find(low(key), |long| long.is_of(group, key)) {
            return Some((None, &long.value));
        }
        let shelf = self.shelves.get(group)?;
        let slot = *shelf
            .by_key
            .find(low(key), |slot| owner_at(&shelf.places, shelf.width, *slot) == key)?;
        Some((Some(slot), shelf.place(slot)?.get(OWNER..)?))
    }

    /// Writes a value over the key's last one; false when the place no longer belongs to the key,
    /// or has another width.
    #[inline]
    pub(super) fn replace(&mut self, partition: Partition<'_>, key: u128, slot: u32) -> bool {
        let value = partition.value();
        let place = self.value_mut(partition.group(), key, slot);
        match place.filter(|place| place.len() == value.len()) {
            Some(place) => {
                place.copy_from_slice(value);
                true
            }
            None => false,
        }
    }

    /// True when a place belongs to this key.
    #[inline]
    pub(super) fn holds(&self, group: usize, key: u128, slot: u32) -> bool {
        let shelf = self.shelves.get(group);
        shelf.is_some_and(|shelf| owner_at(&shelf.places, shelf.width, slot) == key)
    }

    /// The value in a place, for writing, if the place still belongs to this key.
    #[inline]
    pub(super) fn value_mut(&mut self, group: usize, key: u128, slot: u32) -> Option<&mut [u8]> {
        let shelf = self.shelves.get_mut(group)?;
        let (owner, value) = shelf.place_mut(slot)?.split_first_chunk_mut::<OWNER>()?;
        (u128::from_le_bytes(*owner) == key).then_some(value)
    }

    /// Stores the value of a new key, and removes values that are idle at `now`.
    pub(super) fn insert(
        &mut self,
        policy: &Policy,
        partition: Partition<'_>,
        key: u128,
        now: Timestamp,
    ) -> Option<u32> {
        let group = partition.group();
        let compiled = policy.groups().get(group)?;
        if compiled.is_sparse() || partition.value().len() != compiled.value_len() {
            self.insert_long(policy, partition, key, now);
            return None;
        }
        self.take_long(group, key); // its entry is over
        if self.shelves.len() <= group {
            self.shelves.resize_with(policy.groups().len(), KeyGroup::default);
        }
        let keeps = self.keeps;
        let shelf = self.shelves.get_mut(group)?;
        shelf.width = partition.value().len().checked_add(OWNER)?;
        let looks = if shelf.by_key.len() < self.holds { 0 } else { LOOKS };
        for _ in 0..looks {
            shelf.look(|value| compiled.idle_at(policy, value).saturating_add(keeps) <= now);
        }
        shelf.insert(key, partition.value())
    }

    /// Stores a value of another length than its group's. When the number of live values has
    /// doubled, values that are idle at `now` are removed.
    fn insert_long(
        &mut self,
        policy: &Policy,
        partition: Partition<'_>,
        key: u128,
        now: Timestamp,
    ) {
        if self.long.len() >= self.room {
            let keeps = self.keeps;
            self.long.retain(|long| long.idle_at.saturating_add(keeps) > now);
            self.room = self.long.len().saturating_mul(2).max(FEW_LONG);
        }
        let idle_at = partition.idle_at(policy);
        let (group, value) = (partition.group(), partition.value().to_vec());
        self.take_long(group, key);
        let long = TenantValue { group, key, value, idle_at };
        self.long.insert_unique(low(key), long, |long| low(long.key));
    }

    fn take_long(&mut self, group: usize, key: u128) {
        if let Ok(long) = self.long.find_entry(low(key), |long| long.is_of(group, key)) {
            long.remove();
        }
    }
}

impl TenantValue {
    const fn is_of(&self, group: usize, key: u128) -> bool {
        self.group == group && self.key == key
    }
}

impl KeyGroup {
    fn range(&self, slot: u32) -> Option<core::ops::Range<usize>> {
        let start = usize::try_from(slot).ok()?.checked_mul(self.width)?;
        Some(start..start.checked_add(self.width)?)
    }

    fn place(&self, slot: u32) -> Option<&[u8]> {
        self.places.get(self.range(slot)?)
    }

    fn place_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        let range = self.range(slot)?;
        self.places.get_mut(range)
    }

    /// Checks the next place, and frees it if it `is_idle`.
    fn look(&mut self, is_idle: impl FnOnce(&[u8]) -> bool) {
        let held = self.places.len().checked_div(self.width).unwrap_or(0);
        self.hand = self.hand.checked_rem(held).unwrap_or(0);
        let Ok(slot) = u32::try_from(self.hand) else { return };
        self.hand = self.hand.saturating_add(1);
        let owner = owner_at(&self.places, self.width, slot);
        let value = self.place(slot).and_then(|place| place.get(OWNER..));
        if owner == 0 || !value.is_some_and(is_idle) {
            return;
        }
        if let Ok(entry) = self.by_key.find_entry(low(owner), |other| *other == slot) {
            entry.remove();
        }
        if let Some(place) = self.place_mut(slot) {
            place.fill(0);
            self.free.push(slot);
        }
    }

    fn insert(&mut self, key: u128, value: &[u8]) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => {
                let place = self.place_mut(slot)?;
                let (owner, held) = place.split_at_mut_checked(OWNER)?;
                owner.copy_from_slice(&key.to_le_bytes());
                held.copy_from_slice(value);
                slot
            }
            None => {
                let held = self.places.len().checked_div(self.width).unwrap_or(0);
                let slot = u32::try_from(held).ok()?;
                self.places.extend_from_slice(&key.to_le_bytes());
                self.places.extend_from_slice(value);
                slot
            }
        };
        let (places, width) = (&self.places, self.width);
        self.by_key.insert_unique(low(key), slot, |slot| low(owner_at(places, width, *slot)));
        Some(slot)
    }
}

/// The key that owns the place; 0 for a free one.
#[inline]
fn owner_at(places: &[u8], width: usize, slot: u32) -> u128 {
    let start = usize::try_from(slot).unwrap_or(usize::MAX).saturating_mul(width);
    let owner = places.get(start..).and_then(|place| place.first_chunk::<OWNER>());
    owner.map_or(0, |owner| u128::from_le_bytes(*owner))
}

/// The bits by which a key is found.
#[inline]
fn low(key: u128) -> u64 {
    u64::try_from(key & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}
