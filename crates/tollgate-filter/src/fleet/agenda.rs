//! When this worker checks its leases again: units that remain unspent go back before they end.
//!
//! Invariant: it contains a key once, and at most `MOST` keys. A lease that is not checked expires,
//! and counts as spent. Deliberately absent: what a check does.

use std::collections::BTreeSet;
use std::rc::Rc;

use tollgate_core::Timestamp;
use tollgate_policy::waiting::SlabMap;

use crate::active_policy::ActivePolicy;
use crate::fleet::holdings::Place;
use crate::fleet::spending::AskedKey;

/// The most keys that are checked. A key with a lease has had eight requests within the lease's
/// life.
const MOST: usize = 65_536;

/// The keys to check, and when.
pub struct Agenda<H> {
    by_time: BTreeSet<(Timestamp, Place)>,
    keys: SlabMap<Place, Entry<H>>,
}

struct Entry<H> {
    at: Timestamp,
    policy: Rc<ActivePolicy<H>>,
    asked: AskedKey,
}

impl<H> Default for Agenda<H> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), keys: SlabMap::new() }
    }
}

impl<H> Agenda<H> {
    /// Schedules the check of the key of `asked` for `at` at the latest.
    pub fn put(&mut self, at: Timestamp, policy: Rc<ActivePolicy<H>>, asked: AskedKey) {
        let place = asked.place;
        let known = self.keys.get(&place).map(|entry| entry.at);
        if known.is_some_and(|known| known <= at) || self.keys.len() >= MOST && known.is_none() {
            return;
        }
        if let Some(known) = known {
            self.by_time.remove(&(known, place));
        }
        self.by_time.insert((at, place));
        self.keys.insert(place, Entry { at, policy, asked });
    }

    /// The time of the next check.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// The key that is due at `now`, if it has at most as many rules as there is `room` for.
    pub fn pop(&mut self, now: Timestamp, room: usize) -> Option<(Rc<ActivePolicy<H>>, AskedKey)> {
        let (at, place) = *self.by_time.first()?;
        let rules = self.keys.get(&place).map_or(0, |entry| entry.asked.key.rules.len());
        if at > now || rules > room {
            return None;
        }
        self.by_time.remove(&(at, place));
        self.keys.remove(&place).map(|entry| (entry.policy, entry.asked))
    }
}
