//! The keys that were limited most: a table of bounded size.
//!
//! Invariant: up to the bound every count is exact. When the table is full the half with the
//! smallest counts is removed, and the greatest of those is remembered. A key that is added
//! afterwards may have been limited that many times before, and its error shows this. A count is
//! never too high, and with its error never too low (after Misra and Gries, "Finding repeated
//! elements", 1982).

use hashbrown::HashTable;
use tollgate_core::Timestamp;

/// The number of event types counted per key.
pub(crate) const KINDS: usize = 4;

/// A counted key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The rule, or another number that distinguishes types of keys.
    pub(crate) of: usize,
    /// The keyed hash.
    pub(crate) hash: u64,
    pub(crate) label: Box<str>,
    pub(crate) counts: [u64; KINDS],
    /// The count may be higher by this many.
    pub(crate) error: u64,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

impl Entry {
    /// All events of it.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().copied().fold(0, u64::saturating_add)
    }

    /// An upper bound of its events.
    fn at_most(&self) -> u64 {
        self.total().saturating_add(self.error)
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Top {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    most: usize,
    /// No removed key had more.
    error: u64,
}

impl Top {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.clamp(2, 1 << 30);
        Self { index: HashTable::new(), entries: Vec::new(), most, error: 0 }
    }

    /// Counts one event of this kind; `label` is called only for a key that is not in the table.
    pub(crate) fn count(
        &mut self,
        (of, hash): (usize, u64),
        kind: usize,
        at: Timestamp,
        label: impl FnOnce() -> String,
    ) {
        let is_it = |entry: &Entry| entry.hash == hash && entry.of == of;
        let found = self.index.find(hash, |i| get(&self.entries, *i).is_some_and(is_it));
        let entry = match found.copied() {
            Some(i) => usize::try_from(i).ok().and_then(|i| self.entries.get_mut(i)),
            None => self.add(of, hash, at, label().into_boxed_str()),
        };
        let Some(entry) = entry else { return };
        if let Some(count) = entry.counts.get_mut(kind) {
            *count = count.saturating_add(1);
        }
        entry.first = entry.first.min(at);
        entry.last = entry.last.max(at);
    }

    fn add(&mut self, of: usize, hash: u64, at: Timestamp, label: Box<str>) -> Option<&mut Entry> {
        if self.entries.len() >= self.most {
            self.halve();
        }
        let (counts, error) = ([0; KINDS], self.error);
        self.entries.push(Entry { of, hash, label, counts, error, first: at, last: at });
        let at = u32::try_from(self.entries.len()).ok()?.checked_sub(1)?;
        let entries = &self.entries;
        self.index.insert_unique(hash, at, |i| get(entries, *i).map_or(0, |entry| entry.hash));
        self.entries.last_mut()
    }

    /// Removes the half with the smallest counts.
    fn halve(&mut self) {
        let half = self.entries.len() / 2;
        self.entries.select_nth_unstable_by_key(half, Entry::at_most);
        for given_up in self.entries.drain(..half) {
            self.error = self.error.max(given_up.at_most());
        }
        self.index.clear();
        for (i, entry) in (0..).zip(&self.entries) {
            let entries = &self.entries;
            let hash = |i: &u32| get(entries, *i).map_or(0, |entry| entry.hash);
            self.index.insert_unique(entry.hash, i, hash);
        }
    }

    /// The first `many`, those with most events first; of equals the earliest.
    pub(crate) fn first(&self, many: usize) -> Vec<&Entry> {
        let mut all: Vec<&Entry> = self.entries.iter().collect();
        let order = |entry: &&Entry| {
            (std::cmp::Reverse(entry.total()), entry.first, entry.of, entry.label.clone())
        };
        all.sort_by_cached_key(order);
        all.truncate(many);
        all
    }

    /// The number of keys of this rule; a lower bound unless [`Top::error`] is 0.
    pub(crate) fn count_of(&self, of: usize) -> u64 {
        let many = self.entries.iter().filter(|entry| entry.of == of).count();
        u64::try_from(many).unwrap_or(u64::MAX)
    }

    /// The most events of a key outside the table; 0 when all keys are in it.
    pub(crate) const fn error(&self) -> u64 {
        self.error
    }

    /// The most keys in the table.
    pub(crate) fn most(&self) -> u64 {
        u64::try_from(self.most).unwrap_or(u64::MAX)
    }
}

fn get(entries: &[Entry], i: u32) -> Option<&Entry> {
    entries.get(usize::try_from(i).ok()?)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn count(top: &mut Top, key: u64, at: u64) {
        // The hash of a real key is spread; here all collide, which only costs time.
        top.count((0, key % 7 + (key << 8)), 0, Timestamp::from_millis(at), || key.to_string());
    }

    #[test]
    fn what_fits_is_exact() {
        let mut top = Top::new(100);
        for (at, key) in (0..1000).map(|i| (i, i % 100)).chain([(1000, 7), (1001, 7)]) {
            count(&mut top, key, at);
        }
        let first = top.first(2);
        assert_eq!((&*first[0].label, first[0].total(), first[0].error), ("7", 12, 0));
        assert_eq!(first[0].first, Timestamp::from_millis(7));
        assert_eq!(first[0].last, Timestamp::from_millis(1001));
        assert_eq!((&*first[1].label, first[1].total()), ("0", 10), "of equals who came first");
        assert_eq!((top.error(), top.count_of(0), top.count_of(1)), (0, 100, 0));
    }

    /// Heavy keys among a flood of others, some of which come before and some after the table is
    /// full. Counts are never too high, with their error never too low, and no heavy key is lost.
    #[test]
    fn what_does_not_fit_is_bounded() {
        let mut top = Top::new(64);
        let mut truth = std::collections::BTreeMap::new();
        for i in 0..200_000_u64 {
            let key = match i % 20 {
                0 => 1,
                1 | 2 if i > 100_000 => 2,
                _ => 1000 + i,
            };
            *truth.entry(key.to_string()).or_insert(0) += 1;
            count(&mut top, key, i);
        }
        assert!(top.entries.len() <= 64 && top.error() > 0);
        for entry in &top.entries {
            let true_count = truth[&*entry.label];
            assert!(entry.total() <= true_count, "{entry:?}: {true_count}");
            assert!(true_count <= entry.at_most(), "{entry:?}: {true_count}");
        }
        let first = top.first(2);
        assert_eq!((&*first[0].label, first[0].total()), ("1", 10_000));
        assert!(&*first[1].label == "2" && first[1].at_most() >= 10_000);
        let lost = truth.iter().filter(|(key, _)| top.entries.iter().all(|e| *e.label != ***key));
        assert!(lost.into_iter().all(|(_, count)| *count <= top.error()));
    }

    #[test]
    fn kinds_and_rules_are_told_apart() {
        let mut top = Top::new(10);
        let at = Timestamp::from_millis(1);
        for (of, kind) in [(0, 0), (1, 3), (1, 3), (1, 1)] {
            top.count((of, 5), kind, at, || "k".to_owned());
        }
        let first = top.first(9);
        assert_eq!((first[0].of, first[0].counts), (1, [0, 1, 0, 2]));
        assert_eq!((first[1].of, first[1].counts), (0, [1, 0, 0, 0]));
    }
}
