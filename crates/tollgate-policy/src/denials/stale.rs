//! Denials that are no longer trusted. One request asks the store whether they still hold. They
//! decide the other requests, and a request whose store does not respond, for a little longer.
//!
//! Invariant: a denial decides no request that came later than [`FRESH`](super::FRESH) and the
//! [patience](Denials::patient) after it was received. Deliberately absent: the request to the
//! store.

use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::answer::outcome::Disposition;
use crate::denials::memory::{Denials, Recalled, hash};
use crate::denials::table::Entry;
use crate::denials::trust::{Belief, Counts, is_believed};
use crate::pipeline::applied::AppliedRule;
use crate::pipeline::partition::Partition;
use crate::pipeline::plan::{Plan, denies};
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;

impl Denials {
    /// True when the store of a count did not respond to a request that was sent, and a remembered
    /// denial decides the request instead of the policy's setting for failures: a slow store must
    /// not reopen a quota that is used up. The denial was in force when the request came, at the
    /// first of `times`, or was received until now, the second. The caller then refunds the
    /// request's charges. A request that its other counts deny keeps their response.
    pub fn overrules_failure(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        times: (Timestamp, Timestamp),
    ) -> bool {
        if !plan.has_failed() || plan.outdated().is_some() {
            return false;
        }
        let outcome = plan.outcome(policy);
        let is_open =
            outcome.is_failure() || !matches!(outcome.disposition(), Disposition::Deny { .. });
        is_open && self.would_stand_in(policy, plan, times) && self.stands_in(policy, plan, times)
    }

    /// Decides the request by the denials of its counts whose store did not respond: those that
    /// were in force when it came, or were received since. False: nothing is decided.
    fn stands_in(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        (came_at, now): (Timestamp, Timestamp),
    ) -> bool {
        for at in [now, came_at] {
            let belief = Belief { now: at, beyond: self.patience, of: Counts::Silent };
            if self.look(policy, plan, belief).0 == Recalled::Refused {
                self.leave(policy, plan, belief);
                return self.conclude(policy, plan, Recalled::Refused);
            }
        }
        self.conclude(policy, plan, Recalled::Nothing)
    }

    /// True when [`stands_in`](Self::stands_in) would be true; the plan stays unchanged. It never
    /// decides a request that may wait or reports used units, nor one that was sent because a unit
    /// came back: the remembered count is charged with that request. The same holds for the
    /// responses of its other counts, which therefore decide nothing here.
    fn would_stand_in(
        &mut self,
        policy: &Policy,
        plan: &Plan,
        times: (Timestamp, Timestamp),
    ) -> bool {
        let mut silent = plan.partitions().filter(Partition::is_silent);
        silent.any(|partition| self.would_stand_in_for(policy, plan, partition.index(), times))
    }

    /// The same for the count of partition `i` alone, if its store does not respond.
    #[must_use]
    pub fn would_stand_in_for(
        &mut self,
        policy: &Policy,
        plan: &Plan,
        i: usize,
        (came_at, now): (Timestamp, Timestamp),
    ) -> bool {
        if self.is_empty() || plan.may_wait(policy) || plan.reports() {
            return false;
        }
        let (relieved, patience) = (self.relieved, self.patience);
        let stood = plan.suspect.is_some();
        let denies = |entry: &Entry, set: &QuotaSet, cost: u64| {
            let is_received_since = entry.received_at > came_at;
            let time = if is_received_since { now } else { came_at };
            let at = entry.at_of_store(time);
            (is_received_since || stood)
                && is_believed(entry, relieved, time, patience)
                && (entry.blocked_until.is_some_and(|until| until > at)
                    || denies_now(set, &entry.states, at, cost))
        };
        plan.partition(i).is_some_and(|partition| {
            let mut binding = partition.rules().filter(|applied| applied.is_binding());
            binding.any(|applied| {
                let Some(set) = policy.applied_set(applied) else { return false };
                let hash = hash(self.seed, policy, set, partition.key());
                self.table.find(hash).is_some_and(|entry| denies(entry, set, applied.cost))
            })
        })
    }

    /// Forgets everything: units came back in a way that no response shows.
    pub fn forget_all(&mut self) {
        self.table.clear();
    }

    /// Where the counts of partition `i` are remembered, for [`forget`](Self::forget): a charge may
    /// be refunded when its plan is gone.
    #[must_use]
    pub fn places(&self, policy: &Policy, plan: &Plan, i: usize) -> Vec<u64> {
        let Some(partition) = plan.partition(i) else { return Vec::new() };
        let sets = partition.rules().filter_map(|applied| policy.applied_set(applied));
        sets.map(|set| hash(self.seed, policy, set, partition.key())).collect()
    }

    /// Forgets the counts of partition `i`, because a refund of its charge has no reply: the store
    /// may have refunded it.
    pub fn forget_partition(&mut self, policy: &Policy, plan: &Plan, i: usize) {
        let places = self.places(policy, plan, i);
        self.forget(&places);
    }

    /// Forgets these counts, because a charge of them was refunded.
    pub fn forget(&mut self, places: &[u64]) {
        places.iter().for_each(|hash| self.table.remove(*hash));
    }

    /// True when no request is under way for the entry that denies this one; then this one is sent.
    pub(crate) fn is_first_to_ask(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        now: Timestamp,
    ) -> bool {
        let patience = self.patience;
        let is_under_way = |at: Timestamp| now.checked_since(at).is_some_and(|it| it <= patience);
        let mut is_first = true;
        self.each_denial(policy, plan, |entry, _, _| {
            is_first &= !entry.asked_at.is_some_and(is_under_way);
        });
        if is_first {
            self.each_denial(policy, plan, |entry, _, _| entry.asked_at = Some(now));
            plan.suspect = self.latest_denial(policy, plan);
        }
        is_first
    }

    /// The partition whose denial was received last, among those in the plan's decisions.
    pub(crate) fn latest_denial(&mut self, policy: &Policy, plan: &Plan) -> Option<usize> {
        let mut latest: Option<(Timestamp, usize)> = None;
        self.each_denial(policy, plan, |entry, i, _| {
            latest = latest.max(Some((entry.received_at, i)))
        });
        latest.map(|(_, i)| i)
    }

    /// True when the store would start a penalty for this request, and no request is under way that
    /// makes it do so; then this one is sent.
    pub(crate) fn asks_for_penalty(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        now: Timestamp,
    ) -> bool {
        self.starts_penalty(policy, plan, now) && self.is_first_to_ask(policy, plan, now)
    }

    /// True when the store would start a penalty for this request.
    fn starts_penalty(&mut self, policy: &Policy, plan: &Plan, now: Timestamp) -> bool {
        let mut starts = false;
        self.each_denial(policy, plan, |entry, _, applied| {
            let Some(set) = policy.applied_set(applied).filter(|set| set.has_penalty()) else {
                return;
            };
            let (at, mut states) = (entry.at_of_store(now), entry.states.to_vec());
            starts |= applied.punishes()
                && entry.blocked_until.is_none_or(|until| until <= at)
                && set.quotas.iter().any(|quota| {
                    let state = quota.state_mut(&mut states);
                    state.is_some_and(|state| quota.limiter.punish(state, at, applied.cost))
                });
        });
        starts
    }

    /// Calls `each` with every entry that denies by the plan's decisions, and its partition.
    fn each_denial(
        &mut self,
        policy: &Policy,
        plan: &Plan,
        mut each: impl FnMut(&mut Entry, usize, &AppliedRule),
    ) {
        for applied in plan.applied.iter().filter(|applied| applied.is_binding()) {
            let partition = applied.partition().and_then(|i| plan.partition(i));
            let Some((partition, set)) = partition.zip(policy.applied_set(applied)) else {
                continue;
            };
            if applied.is_unasked() || !denies(applied, policy, &plan.decisions) {
                continue;
            }
            if let Some(entry) = self.table.find(hash(self.seed, policy, set, partition.key())) {
                each(entry, partition.index(), applied);
            }
        }
    }
}

/// True when these states deny `cost` at `at`.
fn denies_now(set: &QuotaSet, states: &[u8], at: Timestamp, cost: u64) -> bool {
    let denies = |quota: &CompiledQuota| {
        let state = quota.state(states)?;
        Some(!quota.limiter.peek(state, at, cost).is_admitted())
    };
    set.quotas.iter().filter_map(denies).any(|denies| denies)
}
