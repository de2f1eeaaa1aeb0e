//! The queue's agenda: entries by time.
//!
//! Invariant: entries are returned by time. At the same time the turns of lines come before
//! deadlines, so that a request whose time is its deadline is decided. After that they are returned
//! in the order in which they were added, so that one line that is due repeatedly does not delay
//! the turn of another.

use tollgate_core::Timestamp;

use crate::slab_map::SlabMap;

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    /// The first waiter of this line.
    Line(u64),
    /// The deadline of this waiter.
    Deadline(u64),
}

/// The position of an entry.
pub(super) type Entry = (Timestamp, bool, u64);

/// The entries by time.
#[derive(Debug)]
pub(super) struct Agenda {
    entries: SlabMap<Entry, Wake>,
    added: u64,
}

impl Agenda {
    pub(super) const fn new() -> Self {
        Self { entries: SlabMap::new(), added: 0 }
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
        self.next_at().filter(|at| *at <= now)?;
        self.entries.pop_first().map(|(_, wake)| wake)
    }

    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.entries.first().map(|((at, ..), _)| *at)
    }
}
