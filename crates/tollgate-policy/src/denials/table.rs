//! The table of remembered counts: a fixed number of positions, found by a hash, each in one of
//! eight ways.
//!
//! Invariant: the table never holds more than [`SETS`] times [`WAYS`] entries and [`MAX_BYTES`] of
//! states, whatever clients send. The entry that was looked up least is evicted. So a client that
//! is denied repeatedly stays, and a client that sprays keys, each denied a few times, evicts only
//! its own. For this an entry counts how often it was found, and each new entry in a full set
//! subtracts one from every other entry's count. So no entry stays because of old hits.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tollgate_core::Timestamp;

/// Entries in which one hash may be found.
pub(crate) const WAYS: usize = 8;
/// Sets of them: 16,384 entries, about 1.3 MB without their states.
pub(crate) const SETS: usize = 2048;
/// Bytes of all states: a full table of a few quotas each, or 500 of the longest logs.
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// Sets that may lose entries to free the bytes of one new entry.
const ROBBED: usize = 8;

/// The remembered state of one count.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    /// The states of its quotas.
    pub(crate) states: Box<[u8]>,
    /// The store's time at which these were its states.
    pub(crate) at: Timestamp,
    /// This process's time at that moment.
    pub(crate) received_at: Timestamp,
    /// This process's time after which the entry is no longer useful.
    pub(crate) over_at: Timestamp,
    /// This process's time when a request was sent to refresh the entry, because it was too old.
    pub(crate) asked_at: Option<Timestamp>,
    /// Nothing comes back before its time while this is the number of the last relief.
    pub(crate) final_under: Option<u64>,
    /// True when it uses up a rule that denies. Otherwise it is kept to be reported with one.
    pub(crate) is_used_up: bool,
    /// The end of an operator's block, by the store's clock.
    pub(crate) blocked_until: Option<Timestamp>,
    /// How often it was found recently.
    pub(crate) hits: u8,
}

impl Entry {
    /// The store's time when this process's clock shows `now`.
    pub(crate) fn at_of_store(&self, now: Timestamp) -> Timestamp {
        self.at.saturating_add(now.since(self.received_at))
    }
}

/// A bounded number of entries.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Empty until something is remembered; then [`SETS`] of them.
    sets: Vec<Vec<Entry>>,
    bytes: usize,
    len: usize,
    /// The set from which bytes are taken next.
    hand: usize,
}

impl Table {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Drops all entries.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn find(&mut self, hash: u64) -> Option<&mut Entry> {
        let set = self.sets.get_mut(set_of(hash))?;
        let entry = set.iter_mut().find(|entry| entry.hash == hash)?;
        Some(entry)
    }

    pub(crate) fn remove(&mut self, hash: u64) {
        let set = set_of(hash);
        let found = self.sets.get(set).and_then(|set| set.iter().position(|e| e.hash == hash));
        if let Some(way) = found {
            self.take(set, way);
        }
    }

    /// Stores `entry` in place of the entry with the same hash; the hit count is kept.
    pub(crate) fn put(&mut self, mut entry: Entry, now: Timestamp) {
        if self.sets.is_empty() {
            self.sets.resize_with(SETS, Vec::new);
        }
        let set = set_of(entry.hash);
        if let Some(known) = self.find(entry.hash) {
            entry.hits = known.hits;
            self.remove(entry.hash);
        }
        if self.sets.get(set).is_some_and(|set| set.len() >= WAYS) {
            self.make_room(set, now);
        }
        let len = entry.states.len();
        for _ in 0..ROBBED {
            if self.bytes.saturating_add(len) <= MAX_BYTES {
                break;
            }
            self.hand = self.hand.wrapping_add(1).checked_rem(SETS).unwrap_or(0);
            self.make_room(self.hand, now);
        }
        if self.bytes.saturating_add(len) > MAX_BYTES {
            return;
        }
        if let Some(set) = self.sets.get_mut(set) {
            set.push(entry);
            self.bytes = self.bytes.saturating_add(len);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Evicts an expired entry of the set, else the one found least, and among those the first to
    /// expire.
    fn make_room(&mut self, set: usize, now: Timestamp) {
        let Some(entries) = self.sets.get_mut(set) else { return };
        let least = |(_, entry): &(usize, &Entry)| {
            let is_over = entry.over_at <= now;
            (!is_over, if is_over { 0 } else { entry.hits }, entry.over_at)
        };
        let Some((way, out)) = entries.iter().enumerate().min_by_key(least) else { return };
        if out.over_at > now {
            entries.iter_mut().for_each(|entry| entry.hits = entry.hits.saturating_sub(1));
        }
        self.take(set, way);
    }

    fn take(&mut self, set: usize, way: usize) {
        let Some(entries) = self.sets.get_mut(set).filter(|set| way < set.len()) else { return };
        let out = entries.swap_remove(way);
        self.bytes = self.bytes.saturating_sub(out.states.len());
        self.len = self.len.saturating_sub(1);
    }
}

/// The low bits, because a hash does not fit into a word of wasm.
fn set_of(hash: u64) -> usize {
    let [a, b, ..] = hash.to_le_bytes();
    usize::from(u16::from_le_bytes([a, b])).checked_rem(SETS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use tollgate_test_support::Random;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn entry(hash: u64, len: usize, over_ms: u64) -> Entry {
        Entry {
            hash,
            states: vec![0; len].into(),
            at: at(0),
            received_at: at(0),
            over_at: at(over_ms),
            asked_at: None,
            final_under: Some(0),
            is_used_up: true,
            blocked_until: None,
            hits: 0,
        }
    }

    /// Hashes of one set.
    fn of_one_set(n: u64) -> u64 {
        n.saturating_mul(u64::try_from(SETS).unwrap())
    }

    fn find(table: &mut Table, hash: u64) -> bool {
        table.find(hash).map(|entry| entry.hits = entry.hits.saturating_add(1)).is_some()
    }

    #[test]
    fn what_is_over_leaves_first_then_what_was_asked_for_least() {
        let mut table = Table::default();
        for n in 0..8 {
            table.put(entry(of_one_set(n), 8, 1_000 + n), at(0));
            (0..n).for_each(|_| assert!(find(&mut table, of_one_set(n))));
        }
        table.put(entry(of_one_set(8), 8, 5_000), at(0));
        assert!(!find(&mut table, of_one_set(0)), "nobody asked for it");
        table.put(entry(of_one_set(9), 8, 5_000), at(1_007));
        assert_eq!(table.len(), 8, "seven were over, one of them left");
        assert!(find(&mut table, of_one_set(8)));
    }

    /// Guards: a spray of denied keys that evicts a client that is denied repeatedly. A key that is
    /// looked up as often as others are added to its set stays for ever.
    #[test]
    fn a_spray_of_refused_keys_does_not_push_out_who_is_asked_for() {
        let mut table = Table::default();
        let hot = of_one_set(1_000_000);
        table.put(entry(hot, 8, 1_000_000), at(0));
        assert!(find(&mut table, hot));
        for n in 0..100_000 {
            table.put(entry(of_one_set(n), 8, 2_000_000), at(1));
            assert!(find(&mut table, hot), "{n}");
        }
        assert_eq!(table.len(), 8);
        // Old hits do not keep it: it leaves after as many new entries as it had lookups.
        for n in 0..300 {
            table.put(entry(of_one_set(n), 8, 2_000_000), at(1));
        }
        assert!(!find(&mut table, hot));
    }

    #[test]
    fn neither_entries_nor_bytes_grow_without_bound() {
        let mut table = Table::default();
        let mut random = Random::new(1);
        for _ in 0..200_000 {
            table.put(entry(random.number(), 16, 1_000), at(0));
        }
        assert_eq!(table.len(), SETS * WAYS);
        for n in 0..20_000 {
            table.put(entry(n, 8_200, 1_000), at(0));
            assert!(table.bytes <= MAX_BYTES);
        }
        let held: usize = table.sets.iter().flatten().map(|entry| entry.states.len()).sum();
        let count: usize = table.sets.iter().map(Vec::len).sum();
        assert_eq!((held, count), (table.bytes, table.len()));
        assert!(find(&mut table, 19_999), "a newcomer finds its bytes");
        for n in 0..20_000 {
            table.remove(n);
        }
        assert!(table.bytes <= SETS * WAYS * 16);
    }
}
