//! One quota set as it is kept: its parameters beside its states.
//!
//! Invariant: the states are of exactly these parameters and in today's layout, so that they are
//! never read by other quotas; states that are all zeros were never charged.

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{ALLOWED_SKEW, Decision, Timestamp};

use crate::pipeline::counted::Counted;
use crate::policy::stored_set::{StoredQuota, StoredSet, carry_set};

/// A quota set and its states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The set as bytes: what it is compared and written by.
    pub(crate) parameters: Vec<u8>,
    pub(crate) set: StoredSet,
    pub(crate) states: Vec<u8>,
}

impl Kept {
    /// Of a set that nothing was charged to yet.
    pub(crate) fn fresh(set: StoredSet) -> Self {
        let states = vec![0; set.states_len()];
        Self::new(set, states)
    }

    /// Of states in today's layout.
    pub(crate) fn new(set: StoredSet, states: Vec<u8>) -> Self {
        let mut parameters = Vec::new();
        set.write(&mut parameters);
        Self { parameters, set, states }
    }

    pub(crate) fn stable_id(&self) -> u64 {
        self.set.stable_id()
    }

    /// Makes it one of `set`, with what is used carried over at `now`; false when nothing was.
    pub(crate) fn carry_to(&mut self, set: StoredSet, now: Timestamp) -> bool {
        let mut next = Self::fresh(set);
        let was_used = self.states.iter().any(|byte| *byte != 0);
        carry_set(&self.set, &self.states, &next.set, now, &mut next.states);
        *self = next;
        was_used
    }

    /// The time from which it may be forgotten without loss.
    pub(crate) fn idle_at(&self) -> Timestamp {
        self.set.idle_at(&self.states)
    }

    /// True when it may be forgotten at `now`, however the clock oscillates.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        self.idle_at().saturating_add(ALLOWED_SKEW) <= now || self.states.iter().all(|b| *b == 0)
    }

    /// The greatest share of a quota that is used at `now`.
    pub(crate) fn used(&self, now: Timestamp) -> u32 {
        let of = |quota: &StoredQuota| Some(quota.limiter().used(quota.state(&self.states)?, now));
        self.set.quotas().iter().filter_map(of).max().unwrap_or(0)
    }

    /// Bytes that it takes in a row.
    pub(crate) const fn len(&self) -> usize {
        self.parameters.len().saturating_add(self.states.len()).saturating_add(STATES_LEN)
    }

    /// Its quotas and states, with a decision for each quota.
    pub(crate) fn counted<'a>(
        &'a mut self,
        decisions: &'a mut [Decision],
    ) -> Counted<'a, StoredQuota> {
        Counted { quotas: self.set.quotas(), states: &mut self.states, decisions }
    }
}

/// Bytes of the length of its states in a row.
pub(crate) const STATES_LEN: usize = 4;
