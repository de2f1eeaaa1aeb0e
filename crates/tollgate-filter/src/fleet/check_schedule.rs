//! The schedule by which this worker checks its leases: unspent units are returned before the lease
//! ends.
//!
//! Invariant: it contains each key once, and at most [`MAX_KEYS`] keys. A lease that is not checked
//! expires, and counts as spent. Deliberately absent: the check itself.

use std::rc::Rc;

use tollgate_core::Timestamp;
use tollgate_policy::SlabMap;

use crate::active_policy::ActivePolicy;
use crate::fleet::holdings::HoldingsKey;
use crate::fleet::spending::RequestedKey;

/// The most keys that are checked. A key with a lease has had eight requests within the lease's
/// life.
const MAX_KEYS: usize = 65_536;

/// The keys to check, and when.
pub struct CheckSchedule<H> {
    by_time: SlabMap<(Timestamp, HoldingsKey), ()>,
    keys: SlabMap<HoldingsKey, ScheduledCheck<H>>,
}

struct ScheduledCheck<H> {
    at: Timestamp,
    policy: Rc<ActivePolicy<H>>,
    requested: RequestedKey,
}

impl<H> Default for CheckSchedule<H> {
    fn default() -> Self {
        Self { by_time: SlabMap::new(), keys: SlabMap::new() }
    }
}

impl<H> CheckSchedule<H> {
    /// Schedules the check of the key of `requested` for `at` at the latest.
    pub fn schedule(
        &mut self,
        at: Timestamp,
        policy: Rc<ActivePolicy<H>>,
        requested: RequestedKey,
    ) {
        let key = requested.holdings_key;
        let known = self.keys.get(&key).map(|entry| entry.at);
        if known.is_some_and(|known| known <= at) || self.keys.len() >= MAX_KEYS && known.is_none()
        {
            return;
        }
        if let Some(known) = known {
            self.by_time.remove(&(known, key));
        }
        self.by_time.insert((at, key), ());
        self.keys.insert(key, ScheduledCheck { at, policy, requested });
    }

    /// The time of the next check.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|((at, _), ())| *at)
    }

    /// The key that is due at `now`, if it has at most as many rules as there is `room` for.
    pub fn pop_due(
        &mut self,
        now: Timestamp,
        room: usize,
    ) -> Option<(Rc<ActivePolicy<H>>, RequestedKey)> {
        let (&(at, key), ()) = self.by_time.first()?;
        let rules = self.keys.get(&key).map_or(0, |entry| entry.requested.key.rules.len());
        if at > now || rules > room {
            return None;
        }
        self.pop_first().map(|(_, policy, requested)| (policy, requested))
    }

    /// The first key, and when it is to be checked.
    pub fn pop_first(&mut self) -> Option<(Timestamp, Rc<ActivePolicy<H>>, RequestedKey)> {
        let ((at, key), ()) = self.by_time.pop_first()?;
        self.keys.remove(&key).map(|entry| (at, entry.policy, entry.requested))
    }
}
