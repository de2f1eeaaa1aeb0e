//! What is to be done when.
//!
//! Invariant: entries come out by time; at the same time the turns of lines before deadlines, so
//! that a request whose time is its deadline is decided; and then in the order in which they were
//! put in, so that one line that is due again and again does not keep another one from its turn.

use alloc::collections::BTreeMap;

use tollgate_core::Timestamp;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    /// The first of this line.
    Line(u64),
    /// The deadline of this waiter.
    Deadline(u64),
}

/// Where an entry is.
pub(super) type Entry = (Timestamp, bool, u64);

/// The entries by time.
#[derive(Debug)]
pub(super) struct Agenda {
    entries: BTreeMap<Entry, Wake>,
    added: u64,
}

impl Agenda {
    pub(super) const fn new() -> Self {
        Self { entries: BTreeMap::new(), added: 0 }
    }

    pub(super) fn add(&mut self, at: Timestamp, wake: Wake) -> Entry {
        self.added = self.added.saturating_add(1);
        let entry = (at, matches!(wake, Wake::Deadline(_)), self.added);
        self.entries.insert(entry, wake);
        entry
    }

    pub(super) fn remove(&mut self, entry: Option<Entry>) {
        if let Some(entry) = entry {
            self.entries.remove(&entry);
        }
    }

    /// The next entry whose time has come.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<Wake> {
        let first = self.entries.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.entries.first_key_value().map(|((at, ..), _)| *at)
    }
}
