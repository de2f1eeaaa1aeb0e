//! A bounded table in memory: the used quota of each key, as its row.
//!
//! Invariant: a decision is one step under one lock, at a time that is read under it, so no two
//! requests are allowed for the same unit. The table never holds more keys than its places, nor
//! more bytes than its limit, whatever clients send. While a bucket has a free or an idle way, and
//! there is room, nothing is lost. Bytes are allocated bytes: spare places of buckets, the
//! allocator's overhead for each block, and the table itself count. A full bucket evicts as those
//! of Envoy do (`tollgate_storage::table`): an idle key, else the key that used the least share of
//! its quotas, never a blocked key before one that is not. Keys are not kept, only a hash of them
//! with a seed of this process, so a client cannot aim at a bucket.
//!
//! The table is divided into shards with a lock each, which is held for about a microsecond and
//! never across an await. Deliberately absent: durability; counts are lost with the process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use tollgate_core::{ALLOWED_SKEW, Timestamp};
use tollgate_storage::{Answered, Counts, WireError};

use crate::store::request::Name;
use crate::store::row::{Row, Shapes};

/// Places in a bucket, and places for each key that the table is to hold: keys fall into buckets by
/// chance, and with twice the room hardly one of a thousand finds its bucket full.
const WAYS: usize = 16;
const ROOM: usize = 2;

/// The number of locks: enough that two threads seldom want the same one.
const SHARDS: usize = 256;

/// Places that a bucket gets at a time.
const WAYS_AT_ONCE: usize = 2;

/// A key takes at least this. A table has no places for more keys than there can be bytes for, or
/// its empty buckets would take these bytes.
const LEAST_KEY: usize = size_of::<Entry>();

/// The allocator's overhead for a block, and the multiple that it rounds the sum up to: glibc's
/// malloc for 64 bits ("Overview of Malloc" in glibc's wiki). Others are not far from it.
const BLOCK_HEAD: usize = 8;
const BLOCK_ROUNDING: usize = 16;
const LEAST_BLOCK: usize = 32;

/// Buckets that are searched for a key to evict when there is no room for bytes.
const MAX_LOOKS: usize = 64;

/// The limits of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// Keys that it can hold, if there are bytes for them; there are twice as many places.
    pub keys: usize,
    /// Bytes that are allocated for them, and for the table itself.
    pub bytes: usize,
}

/// How full a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Keys in the table.
    pub keys: usize,
    /// Bytes that are allocated for them.
    pub bytes: usize,
    /// Keys that were forgotten although they were not idle, since the start.
    pub evicted: u64,
}

/// The table.
#[derive(Debug)]
pub struct Table {
    seed: [u8; 16],
    shards: Vec<Mutex<Shard>>,
    shapes: Shapes,
    evicted: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    buckets: Vec<Vec<Entry>>,
    bytes: usize,
    most_bytes: usize,
    keys: usize,
    /// The bucket from which the next key is evicted for lack of bytes.
    hand: usize,
}

#[derive(Debug)]
struct Entry {
    fingerprint: u64,
    idle_at: Timestamp,
    row: Row,
}

/// The time of a step, by the clock of the table, which never goes back, and by the clock that the
/// key is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The time by which keys become idle.
    pub table: Timestamp,
    /// The time of the decision.
    pub key: Timestamp,
}

impl From<Timestamp> for Times {
    fn from(now: Timestamp) -> Self {
        Self { table: now, key: now }
    }
}

/// The place of a key, and the bits that distinguish it from others there.
#[derive(Clone, Copy)]
struct Place {
    bucket: usize,
    fingerprint: u64,
}

impl Table {
    /// An empty table. `seed` is random and known only to this process.
    #[must_use]
    pub fn new(limits: TableLimits, seed: [u8; 16]) -> Self {
        let places = limits.keys.min(limits.bytes / LEAST_KEY).saturating_mul(ROOM);
        let buckets = places.div_ceil(WAYS.saturating_mul(SHARDS)).max(1);
        let own = size_of::<Mutex<Shard>>()
            .saturating_add(block(buckets.saturating_mul(size_of::<Vec<Entry>>())));
        let most_bytes = (limits.bytes / SHARDS).saturating_sub(own);
        let shard = || {
            let buckets = std::iter::repeat_with(Vec::new).take(buckets).collect();
            Mutex::new(Shard { buckets, most_bytes, ..Shard::default() })
        };
        let shards = std::iter::repeat_with(shard).take(SHARDS).collect();
        Self { seed, shards, shapes: Shapes::default(), evicted: AtomicU64::new(0) }
    }

    /// Takes one step with the used quota of the key of this name. `None` when its stored row could
    /// not be read; the row is then forgotten. `times` is called under the lock; `step` gets the
    /// time of the key.
    ///
    /// # Errors
    /// As `step`; nothing is changed then.
    pub fn step(
        &self,
        name: &Name,
        times: impl FnOnce() -> Times,
        step: impl FnOnce(&mut Counts, Timestamp) -> Result<Answered, WireError>,
    ) -> Result<Option<Vec<u8>>, WireError> {
        let (number, hash) = halves(name);
        let Some(mut shard) = self.shard(number) else { return Ok(None) };
        let place = shard.place(hash);
        let times = times();
        let now = times.key;
        let found = shard.counts(place);
        let is_read = found.is_some();
        let mut counts = found.unwrap_or_else(|| Counts::begun_anew(now));
        let answered = if is_read { Some(step(&mut counts, now)?) } else { None };
        if answered.as_ref().is_none_or(|answered| answered.is_changed) {
            let evicted = shard.put(place, &mut counts, times, &self.shapes);
            drop(shard);
            if evicted > 0 {
                self.evicted.fetch_add(evicted, Ordering::Relaxed);
            }
        }
        Ok(answered.map(|answered| answered.reply))
    }

    /// The contents of the table.
    #[must_use]
    pub fn held(&self) -> Occupancy {
        let evicted = self.evicted.load(Ordering::Relaxed);
        self.shards.iter().fold(Occupancy { evicted, ..Occupancy::default() }, |held, shard| {
            let shard = lock(shard);
            let keys = held.keys.saturating_add(shard.keys);
            Occupancy { keys, bytes: held.bytes.saturating_add(shard.bytes), evicted }
        })
    }

    /// Forgets the idle keys of one shard, so that memory comes back after a flood; call it with
    /// ever greater numbers.
    pub fn sweep(&self, number: usize, now: Timestamp) {
        self.shapes.forget_unused();
        let Some(mut shard) = self.shard(number) else { return };
        let shard = &mut *shard;
        for bucket in &mut shard.buckets {
            let (keys, bytes) = (bucket.len(), bytes_of(bucket));
            if keys == 0 {
                continue;
            }
            bucket.retain(|entry| !entry.is_idle(now));
            if bucket.len() < keys {
                bucket.shrink_to_fit();
                shard.keys = shard.keys.saturating_sub(keys.saturating_sub(bucket.len()));
                let left = bytes.saturating_sub(bytes_of(bucket));
                shard.bytes = shard.bytes.saturating_sub(left);
            }
        }
    }

    fn shard(&self, number: usize) -> Option<MutexGuard<'_, Shard>> {
        let number = number.checked_rem(self.shards.len())?;
        self.shards.get(number).map(lock)
    }

    /// The name of a key: the hash that places it.
    #[must_use]
    pub fn name_of(&self, key: &[u8]) -> Name {
        let mut hasher = SipHasher13::new_with_key(&self.seed);
        hasher.write(key);
        let mut name = [0; 32];
        for (byte, of_hash) in name.iter_mut().zip(hasher.finish128().as_bytes()) {
            *byte = of_hash;
        }
        name
    }
}

/// The number of the shard of a name, and the two halves of the hash that places it there.
fn halves(name: &Name) -> (usize, (u64, u64)) {
    let (first, rest) = name.split_first_chunk().unwrap_or((&[0; 8], &[]));
    let hash = u64::from_le_bytes(*first);
    let fingerprint = rest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (usize::try_from(hash >> 40).unwrap_or(0), (hash, fingerprint))
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A step that panicked left the row as it was: it is written after the step.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The allocated bytes for a block of this many bytes.
const fn block(bytes: usize) -> usize {
    let whole = bytes.saturating_add(BLOCK_HEAD).next_multiple_of(BLOCK_ROUNDING);
    match bytes {
        0 => 0,
        _ if whole < LEAST_BLOCK => LEAST_BLOCK,
        _ => whole,
    }
}

/// The allocated bytes for the places of a bucket.
const fn places_of(bucket: &Vec<Entry>) -> usize {
    block(bucket.capacity().saturating_mul(size_of::<Entry>()))
}

/// The allocated bytes for a bucket and the rows in it.
fn bytes_of(bucket: &Vec<Entry>) -> usize {
    bucket.iter().fold(places_of(bucket), |sum, entry| sum.saturating_add(entry.bytes()))
}

impl Entry {
    fn is_idle(&self, now: Timestamp) -> bool {
        self.idle_at.saturating_add(ALLOWED_SKEW) <= now
    }

    /// The allocated bytes for it outside of its bucket.
    const fn bytes(&self) -> usize {
        block(self.row.allocated())
    }

    /// Its claim compared with others: the entry with the least claim is evicted. Idle entries have
    /// `None`.
    fn claim(&self, now: Timestamp) -> Option<(u32, Timestamp, u64)> {
        if self.is_idle(now) {
            return None;
        }
        let used = self.row.counts().map_or(0, |counts| {
            // By the key's clock, which is as far from the table's as it was at the last write.
            let (by_key, by_table) = (counts.idle_at(), self.idle_at);
            let now = now.saturating_add(by_key.since(by_table));
            counts.used(now.saturating_sub(by_table.since(by_key)))
        });
        Some((used, self.idle_at, self.fingerprint))
    }
}

impl Shard {
    fn place(&self, (hash, fingerprint): (u64, u64)) -> Place {
        let buckets = u64::try_from(self.buckets.len()).unwrap_or(u64::MAX);
        let bucket = (hash & 0xff_ffff_ffff).checked_rem(buckets).unwrap_or(0);
        Place { bucket: usize::try_from(bucket).unwrap_or(0), fingerprint }
    }

    fn entry_mut(&mut self, place: Place) -> Option<&mut Entry> {
        let bucket = self.buckets.get_mut(place.bucket)?;
        bucket.iter_mut().find(|entry| entry.fingerprint == place.fingerprint)
    }

    /// The used quota of the key there: empty when it is not there; `None` when it cannot be read.
    fn counts(&self, place: Place) -> Option<Counts> {
        let bucket = self.buckets.get(place.bucket)?;
        match bucket.iter().find(|entry| entry.fingerprint == place.fingerprint) {
            Some(entry) => entry.row.counts(),
            None => Some(Counts::default()),
        }
    }

    fn remove(&mut self, place: Place) {
        let Some(bucket) = self.buckets.get(place.bucket) else { return };
        if let Some(i) = bucket.iter().position(|entry| entry.fingerprint == place.fingerprint) {
            self.take(place.bucket, i);
        }
    }

    /// Removes an entry, and unused places of its bucket if they are as many as it gets at a time:
    /// most rows have no bytes outside of their place.
    fn take(&mut self, bucket: usize, i: usize) {
        let Some(bucket) = self.buckets.get_mut(bucket) else { return };
        let places = places_of(bucket);
        let bytes = bucket.swap_remove(i).bytes();
        if bucket.capacity().saturating_sub(bucket.len()) >= WAYS_AT_ONCE {
            bucket.shrink_to_fit();
        }
        let freed = places.saturating_sub(places_of(bucket)).saturating_add(bytes);
        self.bytes = self.bytes.saturating_sub(freed);
        self.keys = self.keys.saturating_sub(1);
    }

    /// Writes the used quota of the key; returns how many keys that were not idle were evicted for
    /// it.
    fn put(&mut self, place: Place, counts: &mut Counts, times: Times, shapes: &Shapes) -> u64 {
        let Times { table: now, key: key_now } = times;
        // By the table's clock, which may differ from the one of the key.
        let idle_at = match key_now == now {
            true => counts.idle_at(),
            false => now.saturating_add(counts.idle_at().since(key_now)),
        };
        if let Some(entry) = self.entry_mut(place)
            && entry.row.set_states(counts, key_now)
        {
            entry.idle_at = idle_at;
            return 0;
        }
        let row = shapes.row(counts, key_now);
        let evicted = self.put_row(place, row, idle_at, now);
        if self.bytes > self.most_bytes {
            return evicted.saturating_add(self.make_room(place, now));
        }
        evicted
    }

    fn put_row(&mut self, place: Place, row: Row, idle_at: Timestamp, now: Timestamp) -> u64 {
        let new = Entry { fingerprint: place.fingerprint, idle_at, row };
        let bytes = new.bytes();
        if let Some(entry) = self.entry_mut(place) {
            let before = std::mem::replace(entry, new);
            self.bytes = self.bytes.saturating_sub(before.bytes()).saturating_add(bytes);
            return 0;
        }
        let Some(bucket) = self.buckets.get_mut(place.bucket) else { return 0 };
        // No room for more places: a new key takes that of another one, and no block is moved.
        let grown = self.bytes.saturating_add(block(WAYS_AT_ONCE.saturating_mul(LEAST_KEY)));
        let has_no_room = !bucket.is_empty() && grown > self.most_bytes;
        let is_full = bucket.len() >= WAYS || (bucket.len() == bucket.capacity() && has_no_room);
        let evicted = if is_full { self.evict(place.bucket, None, now).unwrap_or(0) } else { 0 };
        let Some(bucket) = self.buckets.get_mut(place.bucket) else { return evicted };
        let places = places_of(bucket);
        if bucket.len() == bucket.capacity() {
            bucket.reserve_exact(WAYS_AT_ONCE);
        }
        let grown = places_of(bucket).saturating_sub(places);
        self.bytes = self.bytes.saturating_add(grown).saturating_add(bytes);
        self.keys = self.keys.saturating_add(1);
        bucket.push(new);
        evicted
    }

    /// Evicts keys until there is room for the bytes, first in the bucket that grew.
    fn make_room(&mut self, place: Place, now: Timestamp) -> u64 {
        let (mut evicted, mut looks) = (0_u64, 0);
        let mut bucket = place.bucket;
        while self.bytes > self.most_bytes && looks < MAX_LOOKS {
            match self.evict(bucket, Some(place.fingerprint), now) {
                Some(lost) => evicted = evicted.saturating_add(lost),
                None => {
                    self.hand = self.hand.saturating_add(1);
                    bucket = self.hand.checked_rem(self.buckets.len()).unwrap_or(0);
                    looks = looks.saturating_add(1);
                }
            }
        }
        // No near key is left to evict: then the new one is evicted.
        if self.bytes > self.most_bytes {
            self.remove(place);
            evicted = evicted.saturating_add(1);
        }
        evicted
    }

    /// Evicts the key with the least claim, but not `kept`: 1 if it was not idle; `None` when there
    /// is no key.
    fn evict(&mut self, bucket: usize, kept: Option<u64>, now: Timestamp) -> Option<u64> {
        let entries = self.buckets.get(bucket)?;
        let others = entries.iter().enumerate().filter(|(_, it)| Some(it.fingerprint) != kept);
        let claims = others.map(|(i, entry)| (entry.claim(now), i));
        let (claim, i) = claims.min()?;
        self.take(bucket, i);
        Some(u64::from(claim.is_some()))
    }
}
