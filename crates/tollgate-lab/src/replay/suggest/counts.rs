//! The greatest number of quota units that each key used in any one window, for one quota.
//!
//! All keys share one queue of the units used within the last window, in the order of time. Units
//! older than a window leave at the front and are subtracted from their key's sum. So a key costs
//! 32 bytes and its place in the index, and a request 16 bytes for one window. A key that is idle
//! for longer than a window keeps only its maximum.
//!
//! Invariant: a maximum is never below the true one. It is the true one while a key has at most
//! [`Bounds::log`] requests within a window. Those beyond are added up in parts of the window. Each
//! part counts until its end has left, so the window is longer by at most one part.
//!
//! Beyond [`Bounds::keys`] keys or [`Bounds::live`] requests within a window, half of all keys are
//! removed, chosen by their hashes alone, and so is each new key of that half. The rest is a
//! uniform sample of the keys, each of them counted as exactly as before (Gibbons, "Distinct
//! sampling for highly-accurate answers to distinct values queries", VLDB 2001). Of the removed
//! keys only an upper bound of the greatest maximum is kept (`given_up`).
//!
//! Deliberately not here: percentiles and limits (`spread`), and the decisions of an algorithm
//! (`trial`).

use std::collections::{HashMap, VecDeque};

use hashbrown::HashTable;
use tollgate_core::{Span, Timestamp};

use super::unsampled_keys::UnsampledKeys;

/// The number of parts of a window for keys that have more requests in it than their log holds.
pub const PARTS: u64 = 4096;

/// The bounds on the counts of one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Keys, each counted separately; above this number a sample of them.
    pub keys: usize,
    /// Requests of all keys within one window; above this number a sample of the keys.
    pub live: usize,
    /// Requests of one key within one window that are counted one by one; 4,096.
    pub log: u16,
    /// Bytes of states in the second pass.
    pub trial: usize,
}

impl Default for Bounds {
    /// 10,000,000 keys (at most 500 MB), 32 Mi requests within a window (512 MiB), and states of
    /// 512 MiB in the second pass.
    fn default() -> Self {
        Self { keys: 10_000_000, live: 1 << 25, log: 4096, trial: 1 << 29 }
    }
}

/// One key; 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub hash: u64,
    /// The greatest sum of any window.
    pub peak: u64,
    /// The sum of the window that ends now.
    current: u64,
    /// The number of its requests in `recent`.
    live: u16,
    /// True when some of its requests were counted in parts of a window.
    pub in_parts: bool,
}

/// One request within the last window.
#[derive(Clone, Copy, Debug)]
struct Recent {
    at: u64,
    key: u32,
    /// [`WIDE`]: the cost is the next one in `wide`.
    cost: u32,
}

const WIDE: u32 = u32::MAX;

/// The units of one key in one part of a window.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The start of the part.
    from: u64,
    cost: u64,
    key: u32,
}

/// The counts of one quota.
#[derive(Debug)]
pub(super) struct Counts {
    window: u64,
    /// The length of one part of the window.
    part: u64,
    bounds: Bounds,
    index: HashTable<u32>,
    keys: Vec<Key>,
    recent: VecDeque<Recent>,
    wide: VecDeque<u64>,
    parts: VecDeque<Part>,
    /// The number of parts that have left `parts` at the front so far.
    parts_gone: u64,
    /// The index of each key's newest part, counted from the first one ever.
    newest_part: HashMap<u32, u64>,
    now: u64,
    requests: u64,
    /// How often half of all keys was removed.
    halvings: u32,
    given_up: Option<UnsampledKeys>,
}

impl Counts {
    pub fn new(window: Span, bounds: Bounds) -> Self {
        let window = window.as_nanos().max(1);
        Self {
            window,
            part: window.div_ceil(PARTS),
            bounds,
            index: HashTable::new(),
            keys: Vec::new(),
            recent: VecDeque::new(),
            wide: VecDeque::new(),
            parts: VecDeque::new(),
            parts_gone: 0,
            newest_part: HashMap::new(),
            now: 0,
            requests: 0,
            halvings: 0,
            given_up: None,
        }
    }

    /// Counts one request. A time earlier than the one before counts as that one.
    pub fn push(&mut self, hash: u64, at: Timestamp, cost: u64) {
        self.now = self.now.max(at.as_nanos());
        self.requests = self.requests.saturating_add(1);
        self.leave();
        let Some(i) = self.key_of(hash) else {
            if let Some(given_up) = &mut self.given_up {
                given_up.push(mixed(hash), self.now, cost);
            }
            return;
        };
        if cost > 0 {
            self.add(i, cost);
        }
    }

    fn add(&mut self, i: u32, cost: u64) {
        let Some(key) = self.keys.get_mut(place(i)) else { return };
        key.current = key.current.saturating_add(cost);
        key.peak = key.peak.max(key.current);
        if key.live < self.bounds.log {
            key.live = key.live.saturating_add(1);
            self.push_recent(self.now, i, cost);
            return;
        }
        key.in_parts = true;
        let from = self.now.wrapping_sub(self.now.checked_rem(self.part).unwrap_or(0));
        let newest = self.newest_part.get(&i).and_then(|n| n.checked_sub(self.parts_gone));
        let newest = newest.and_then(|n| self.parts.get_mut(usize::try_from(n).ok()?));
        match newest {
            Some(part) if part.from == from => part.cost = part.cost.saturating_add(cost),
            _ => {
                let n = self.parts_gone.saturating_add(count(self.parts.len()));
                self.newest_part.insert(i, n);
                self.parts.push_back(Part { from, cost, key: i });
            }
        }
    }

    fn push_recent(&mut self, at: u64, key: u32, cost: u64) {
        let narrow = u32::try_from(cost).unwrap_or(WIDE);
        if narrow == WIDE {
            self.wide.push_back(cost);
        }
        self.recent.push_back(Recent { at, key, cost: narrow });
    }

    /// Subtracts units that are at least one window old: windows are half-open.
    fn leave(&mut self) {
        let Some(until) = self.now.checked_sub(self.window) else { return };
        while let Some(recent) = self.recent.pop_front_if(|recent| recent.at <= until) {
            let cost = cost_of(recent, &mut self.wide);
            if let Some(key) = self.keys.get_mut(place(recent.key)) {
                key.current = key.current.saturating_sub(cost);
                key.live = key.live.saturating_sub(1);
            }
        }
        let Some(until) = until.checked_sub(self.part) else { return };
        while let Some(part) = self.parts.pop_front_if(|part| part.from <= until) {
            if self.newest_part.get(&part.key) == Some(&self.parts_gone) {
                self.newest_part.remove(&part.key);
            }
            self.parts_gone = self.parts_gone.saturating_add(1);
            if let Some(key) = self.keys.get_mut(place(part.key)) {
                key.current = key.current.saturating_sub(part.cost);
            }
        }
    }

    /// The key of this hash, created if necessary; `None` when it is outside the sample.
    fn key_of(&mut self, hash: u64) -> Option<u32> {
        while self.is_full() && self.halvings < MOST_HALVINGS {
            self.halve();
        }
        let mixed = mixed(hash);
        if !self.keeps(mixed) {
            return None;
        }
        if let Some(i) = self.find(hash) {
            return Some(i);
        }
        let i = u32::try_from(self.keys.len()).ok()?;
        let keys = &self.keys;
        self.index.insert_unique(mixed, i, |i| hash_at(keys, *i));
        self.keys.push(Key { hash, peak: 0, current: 0, live: 0, in_parts: false });
        Some(i)
    }

    /// The index of a key in [`Counts::keys`].
    pub fn find(&self, hash: u64) -> Option<u32> {
        let is_it = |i: &u32| self.keys.get(place(*i)).is_some_and(|key| key.hash == hash);
        self.index.find(mixed(hash), is_it).copied()
    }

    fn is_full(&self) -> bool {
        let live = self.recent.len().saturating_add(self.parts.len());
        self.keys.len() >= self.bounds.keys || live >= self.bounds.live
    }

    /// True when this key belongs to the sample: one bit of its hash decides each halving.
    const fn keeps(&self, mixed: u64) -> bool {
        // Not the bits that the index uses (its lowest and its highest 7), because keys would
        // cluster.
        let bits = (mixed >> 25) & 0xffff_ffff;
        bits & (1_u64 << self.halvings).wrapping_sub(1) == 0
    }

    /// Removes half of all keys, and keeps only an upper bound of their maxima.
    fn halve(&mut self) {
        self.halvings = self.halvings.saturating_add(1);
        let mut given_up = self
            .given_up
            .take()
            .unwrap_or_else(|| UnsampledKeys::new(Span::from_nanos(self.window)));
        let old_keys = core::mem::take(&mut self.keys);
        let mut moved: Vec<Option<u32>> = Vec::with_capacity(old_keys.len());
        for key in &old_keys {
            if self.keeps(mixed(key.hash)) {
                moved.push(u32::try_from(self.keys.len()).ok());
                self.keys.push(*key);
            } else {
                moved.push(None);
                given_up.reached(key.peak);
            }
        }
        self.index = HashTable::new();
        let keys = &self.keys;
        self.index.reserve(keys.len(), |i| hash_at(keys, *i));
        for (i, key) in (0_u32..).zip(keys) {
            self.index.insert_unique(mixed(key.hash), i, |i| hash_at(keys, *i));
        }
        let hash = |old: u32| old_keys.get(place(old)).map_or(0, |key| mixed(key.hash));
        let new = |old: u32| moved.get(place(old)).copied().flatten();
        let mut wide = core::mem::take(&mut self.wide);
        for recent in core::mem::take(&mut self.recent) {
            let cost = cost_of(recent, &mut wide);
            match new(recent.key) {
                Some(key) => self.push_recent(recent.at, key, cost),
                None => given_up.push(hash(recent.key), recent.at, cost),
            }
        }
        self.parts_gone = 0;
        self.newest_part.clear();
        for part in core::mem::take(&mut self.parts) {
            match new(part.key) {
                Some(key) => {
                    self.newest_part.insert(key, count(self.parts.len()));
                    self.parts.push_back(Part { key, ..part });
                }
                None => {
                    given_up.push(hash(part.key), part.from.saturating_add(self.part), part.cost)
                }
            }
        }
        self.given_up = Some(given_up);
    }

    /// The counted keys, in the order of arrival.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The number of requests, of all keys.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// One of this many keys is counted: 1, or a power of two.
    pub const fn one_in(&self) -> u64 {
        1 << self.halvings
    }

    /// By how much the longest counted window exceeds the quota's own.
    pub const fn part(&self) -> Span {
        Span::from_nanos(self.part)
    }

    /// An upper bound for all removed keys; 0 when there are none.
    pub fn given_up_peak(&self) -> u64 {
        self.given_up.as_ref().map_or(0, UnsampledKeys::peak)
    }

    /// Frees the data needed only for counting, and keeps the keys and their maxima.
    pub fn settle(&mut self) {
        self.recent = VecDeque::new();
        self.wide = VecDeque::new();
        self.parts = VecDeque::new();
        self.newest_part = HashMap::new();
    }

    /// Bytes that are allocated for keys, their index and the requests of the last window.
    #[cfg(test)]
    pub fn allocated(&self) -> usize {
        let bytes = [
            self.keys.capacity().saturating_mul(size_of::<Key>()),
            self.index.allocation_size(),
            self.recent.capacity().saturating_mul(size_of::<Recent>()),
            self.parts.capacity().saturating_mul(size_of::<Part>()),
        ];
        bytes.into_iter().sum()
    }
}

/// The maximum number of halvings: one key of 4,294,967,296 would be left.
const MOST_HALVINGS: u32 = 32;

fn cost_of(recent: Recent, wide: &mut VecDeque<u64>) -> u64 {
    if recent.cost == WIDE { wide.pop_front().unwrap_or(0) } else { recent.cost.into() }
}

fn hash_at(keys: &[Key], i: u32) -> u64 {
    keys.get(place(i)).map_or(0, |key| mixed(key.hash))
}

/// Spreads a value over all bits, in case it is not a hash (2^64 divided by the golden ratio).
const fn mixed(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The position of a key in the index: every supported target has addresses of at least 32 bits.
fn place(i: u32) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
