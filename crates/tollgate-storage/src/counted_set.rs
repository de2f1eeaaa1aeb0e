//! One stored quota set: its parameters next to its states.
//!
//! Invariant: the states belong to exactly these parameters and are in the current layout, so other
//! quotas never read them. States of all zeros were never charged. Quotas that return after others
//! find at least the usage that they had counted. Units that are leased and not yet charged are
//! stored next to the states, and the set is not dropped before they are charged.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use tollgate_core::{ALLOWED_SKEW, Decision, Timestamp};

use crate::counted::Counted;
use crate::leases::lease::Leases;
use crate::leases::mutation::{self, Mutation};
use crate::stored_set::{StoredQuota, StoredSet, carry_set};

/// A quota set, read from its parameters once.
#[derive(Clone, Debug)]
pub(crate) struct SharedQuotas {
    /// The set as bytes, for comparison and for writing.
    pub(crate) parameters: Vec<u8>,
    pub(crate) set: StoredSet,
}

/// The parameters determine the set.
impl PartialEq for SharedQuotas {
    fn eq(&self, other: &Self) -> bool {
        self.parameters == other.parameters
    }
}

impl Eq for SharedQuotas {}

impl Hash for SharedQuotas {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parameters.hash(state);
    }
}

/// A quota set and its states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountedSet {
    /// Shared with other keys of a store in memory.
    pub(crate) quotas: Arc<SharedQuotas>,
    pub(crate) states: Vec<u8>,
    /// Units of it that nodes may spend on their own.
    pub(crate) leases: Leases,
    /// The usage that other quotas in its place had counted, until that is idle: two versions of a
    /// policy may be deployed at the same time, and usage above the lower limit would be lost if it
    /// were carried to that limit and back. It contains no earlier set itself.
    pub(crate) before: Option<Box<Self>>,
}

impl CountedSet {
    /// A set that nothing was charged to yet.
    pub(crate) fn fresh(set: StoredSet) -> Self {
        let states = vec![0; set.states_len()];
        Self::new(set, states)
    }

    /// A set with states in the current layout.
    pub(crate) fn new(set: StoredSet, states: Vec<u8>) -> Self {
        let mut parameters = Vec::new();
        set.write(&mut parameters);
        Self::shared(Arc::new(SharedQuotas { parameters, set }), states)
    }

    /// The same with quotas that other keys have, too.
    pub(crate) fn shared(quotas: Arc<SharedQuotas>, states: Vec<u8>) -> Self {
        Self { quotas, states, leases: Leases::default(), before: None }
    }

    pub(crate) fn stable_id(&self) -> u64 {
        self.quotas.set.stable_id()
    }

    /// Replaces it with `set`, and carries the usage over at `now`; false when there was none. If
    /// its current quotas `may_return`, their usage is remembered.
    pub(crate) fn carry_to(&mut self, set: StoredSet, may_return: bool, now: Timestamp) -> bool {
        let leases = if mutation::is(Mutation::KeepsAcrossChange) {
            core::mem::take(&mut self.leases)
        } else {
            Leases::default()
        };
        self.charge_leases(now);
        let mut next = Self::fresh(set);
        next.leases = leases;
        carry_set(
            &self.quotas.set,
            &self.states,
            next.quotas.set.limiters(),
            now,
            &mut next.states,
        );
        let mut earlier = core::mem::replace(self, next);
        let before = earlier.before.take().filter(|before| before.quotas == self.quotas);
        if let Some(before) = before.filter(|_| may_return) {
            self.count_at_least(&before, &earlier.quotas.set, now);
        }
        let was_used = earlier.states.iter().any(|byte| *byte != 0);
        // What runs was carried whole: nothing of it would be lost.
        let returns = may_return && was_used && !earlier.limits_requests_in_flight();
        self.before = returns.then(|| Box::new(earlier));
        was_used
    }

    /// Takes the states of `before`, which has the same quotas, where they contain more usage.
    /// Quotas that `between` had without a change continued there.
    fn count_at_least(&mut self, before: &Self, between: &StoredSet, now: Timestamp) {
        for quota in self.quotas.set.quotas() {
            let is_same = |other: &StoredQuota| {
                other.name_hash() == quota.name_hash() && other.limiter() == quota.limiter()
            };
            let (Some(state), Some(earlier)) =
                (quota.state_mut(&mut self.states), quota.state(&before.states))
            else {
                continue;
            };
            let left = |state: &[u8]| quota.limiter().peek(state, now, 0).remaining;
            if !between.quotas().iter().any(is_same) && left(earlier) < left(state) {
                state.copy_from_slice(earlier);
            }
        }
    }

    /// True when it limits requests in flight. What runs is then carried to another limit whole, so
    /// a request can be confirmed and released there.
    pub(crate) fn limits_requests_in_flight(&self) -> bool {
        self.quotas.set.quotas().iter().all(|quota| quota.limiter().max_age().is_some())
    }

    /// The time from which it may be dropped without loss: nothing decides by it any more, and no
    /// report shows it.
    pub(crate) fn idle_at(&self) -> Timestamp {
        let before = self.before.as_ref().map_or(Timestamp::ZERO, |before| before.idle_at());
        let is_out = !self.leases.all.is_empty() && !mutation::is(Mutation::IdleWhileOut);
        let own = if is_out {
            // At the end of a lease, its unreported units are charged.
            self.quotas.set.kept_until(&self.states_in_the_end())
        } else {
            self.quotas.set.kept_until(&self.states)
        };
        own.max(before)
    }

    /// True when it may be dropped at `now`, even if the clock oscillates.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        let is_out = !self.leases.all.is_empty() && !mutation::is(Mutation::IdleWhileOut);
        let is_zero = || self.states.iter().all(|byte| *byte == 0);
        let is_unused = || self.before.is_none() && !is_out && is_zero();
        self.idle_at().saturating_add(ALLOWED_SKEW) <= now || is_unused()
    }

    /// This set and then the remembered earlier one, as stored in a row, without those that are
    /// idle at `now`.
    pub(crate) fn live(&self, now: Timestamp) -> impl Iterator<Item = &Self> {
        let before = self.before.as_deref().filter(|before| !before.is_idle(now));
        (!self.is_idle(now)).then_some(self).into_iter().chain(before)
    }

    /// The greatest used share of a quota at `now`, including leased units: their end may be in
    /// another window, in which nothing else is used yet.
    pub(crate) fn used(&self, now: Timestamp) -> u32 {
        let at = now.max(self.leases.since);
        let with_leases = (!self.leases.all.is_empty()).then(|| self.states_with_leases(at));
        let states = with_leases.as_ref().unwrap_or(&self.states);
        let of = |quota: &StoredQuota| Some(quota.limiter().used(quota.state(states)?, now));
        self.quotas.set.quotas().iter().filter_map(of).max().unwrap_or(0)
    }

    /// Bytes that it takes in a row.
    pub(crate) fn len(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |before| before.len());
        let own = self.quotas.parameters.len().saturating_add(self.states.len());
        let leases = self.leases.len();
        own.saturating_add(STATES_LEN).saturating_add(leases).saturating_add(before)
    }

    /// Ends the penalties of its quotas and of the earlier ones; true when that changed something.
    pub(crate) fn pardon(&mut self) -> bool {
        let mut is_changed = self.before.as_mut().is_some_and(|before| before.pardon());
        for quota in self.quotas.set.quotas() {
            if let Some(state) = quota.state_mut(&mut self.states) {
                is_changed |= quota.limiter().pardon(state);
            }
        }
        is_changed
    }

    /// Calls `of_request` with its quotas limited to those of one request, one per quota.
    pub(crate) fn within(&mut self, limits: &[u64], of_request: impl FnOnce(&mut Self)) {
        let whole = Arc::clone(&self.quotas);
        Arc::make_mut(&mut self.quotas).set.limit(limits);
        of_request(self);
        self.quotas = whole;
    }

    /// Its quotas and states, with a decision for each quota.
    pub fn counted<'a>(&'a mut self, decisions: &'a mut [Decision]) -> Counted<'a, StoredQuota> {
        Counted { quotas: self.quotas.set.quotas(), states: &mut self.states, decisions }
    }
}

/// Bytes of the length of its states in a row.
pub(crate) const STATES_LEN: usize = 4;
