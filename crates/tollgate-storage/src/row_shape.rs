//! A row without its states: what the rows of many keys have in common. A store in memory keeps it
//! once.
//!
//! Invariant: a shape and the states contain all that [`Counts::encode`] would write, and nothing
//! else: counts with marks, leases, earlier quotas or an alarm have no shape.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::counted_set::{CountedSet, SharedQuotas};
use crate::counts::Counts;

/// The group, the version and the quotas of a row.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RowShape {
    group: u64,
    version: u64,
    quotas: Vec<Arc<SharedQuotas>>,
}

impl RowShape {
    /// Bytes of all states.
    #[must_use]
    pub fn states_len(&self) -> usize {
        self.lens().fold(0, usize::saturating_add)
    }

    /// The counts with this shape and these states; states that are missing were never charged.
    #[must_use]
    pub fn counts(&self, mut states: &[u8]) -> Counts {
        let mut sets = Vec::with_capacity(self.quotas.len());
        for (quotas, len) in self.quotas.iter().zip(self.lens()) {
            let (own, rest) = states.split_at_checked(len).unwrap_or_default();
            let mut own = own.to_vec();
            own.resize(len, 0);
            sets.push(CountedSet::shared(Arc::clone(quotas), own));
            states = rest;
        }
        Counts { group: self.group, version: self.version, sets, ..Counts::default() }
    }

    fn lens(&self) -> impl Iterator<Item = usize> {
        self.quotas.iter().map(|quotas| quotas.set.states_len())
    }
}

impl Counts {
    /// The shape of the row at `now`, of which sets that are idle are dropped; `None` when the row
    /// contains more than a shape and states. It does not depend on the order in which the rules
    /// were first used: the sets are sorted.
    pub fn shape(&mut self, now: Timestamp) -> Option<RowShape> {
        self.sets.retain(|kept| kept.before.is_some() || !kept.is_idle(now));
        self.sets.sort_unstable_by_key(CountedSet::stable_id);
        let quotas = || self.sets.iter().map(|kept| Arc::clone(&kept.quotas)).collect();
        let Self { group, version, .. } = *self;
        self.is_plain(now).then(|| RowShape { group, version, quotas: quotas() })
    }

    /// True when the row still has `shape`, from which these counts were made.
    #[must_use]
    pub fn still_has(&self, shape: &RowShape, now: Timestamp) -> bool {
        let mut both = self.sets.iter().zip(&shape.quotas);
        (self.group, self.version) == (shape.group, shape.version)
            && self.sets.len() == shape.quotas.len()
            && both.all(|(kept, quotas)| Arc::ptr_eq(&kept.quotas, quotas))
            && self.is_plain(now)
    }

    /// The states of each set, in the order of the shape.
    pub fn states(&self) -> impl Iterator<Item = &[u8]> {
        self.sets.iter().map(|kept| &*kept.states)
    }

    /// True when there is nothing besides the sets and their states at `now`.
    fn is_plain(&self, now: Timestamp) -> bool {
        let has_only_states = |kept: &CountedSet| kept.leases.is_empty() && kept.before.is_none();
        self.alarm_at == Timestamp::ZERO
            && self.settled.idle_at() <= now
            && self.released.idle_at() <= now
            && self.marks.iter().all(|mark| mark.idle_at() <= now)
            && self.sets.iter().all(has_only_states)
    }
}
