//! Decides a plan: all or nothing, in one place for every surface.
//!
//! Invariant: a request is charged to every quota of every binding rule that applies or, when one
//! of them denies, to none. A rule that only marks or shadows is charged when the request is
//! allowed and its own quotas allow it. A rule that charges by the response is only checked before
//! the response, or holds a place. Only a charge that was made is refunded, and only once, however
//! often its commit loses a race.

use alloc::vec::Vec;
use core::mem;

use tollgate_core::{Decision, Timestamp};

use crate::pipeline::applied::{AppliedRule, Basis, Effect, SettledCharge};
use crate::pipeline::now::Now;
use crate::pipeline::partition::{PartitionMut, counted_in};
use crate::pipeline::partitions::Status;
use crate::pipeline::plan::{Plan, denies};
use crate::policy::compiled::Policy;
use crate::policy::record;
use crate::policy::rule::Rule;
use crate::spec::charging::Charging;
use crate::spec::on_failure::OnFailure;
use crate::spec::settled_cost::ResponseFacts;
use crate::spec::status::Ending;
use tollgate_storage::Due;

impl Plan {
    /// Decides all loaded partitions together at `now`: every cost is charged, or none.
    pub fn decide(&mut self, policy: &Policy, now: impl Into<Now>) {
        let now: Now = now.into();
        let mut admitted = !self.is_refused_without_quota(policy);
        if admitted
            && self.len() == 1
            && let Some(mut only) = self.partition_mut(0)
        {
            let now = now.of(policy, only.stored.group.into());
            only.redecide(policy, now);
            return;
        }
        self.each_partition(|partition| {
            let now = now.of(policy, partition.stored.group.into());
            partition.locate(policy, now);
            admitted &= partition.peek(policy, now);
        });
        self.each_partition(|partition| {
            let now = now.of(policy, partition.stored.group.into());
            partition.record(policy, now, admitted);
        });
    }

    /// Computes the decisions at `now` without charging. A denial starts penalties.
    pub(crate) fn look(&mut self, policy: &Policy, now: Now) {
        let mut admitted = true;
        self.each_partition(|partition| {
            let now = now.of(policy, partition.stored.group.into());
            partition.locate(policy, now);
            admitted &= partition.peek(policy, now);
        });
        self.each_partition(|partition| {
            let now = now.of(policy, partition.stored.group.into());
            partition.leave(policy, now);
            if !admitted {
                partition.punish(policy, now);
            }
        });
    }

    /// Turns the plan of an allowed request into the charges that its `ending` requires: costs to
    /// charge, and held units to settle. False when there are none. Then load, decide and commit as
    /// before: the partitions that the plan [applies](crate::Partition::applies) to. A cost that is
    /// charged now and no longer fits is not charged: the quota is already used up. Units that the
    /// response used above an estimate are recorded whether or not they fit.
    ///
    /// Where the plan then [awaits the end](crate::Settlement::awaits_end) of the response, which
    /// alone shows a cost, commit what is due, and call this again at the end.
    pub fn settle(
        &mut self,
        policy: &Policy,
        ending: Ending,
        response: &dyn ResponseFacts,
    ) -> bool {
        let Self { applied, decisions, settled_costs, settled_before, awaited, .. } = self;
        if awaited.rules.is_empty() {
            settled_costs.clear();
        } else {
            // The head's charges may have been loaded from records of another policy.
            mem::swap(applied, &mut awaited.rules);
            mem::swap(decisions, &mut awaited.decisions);
            awaited.rules.clear();
        }
        *settled_before = settled_costs.len();
        applied.retain_mut(|applied| {
            let rule = usize::from(applied.rule);
            let Some(charging) = policy.rules.get(rule).map(|rule| &rule.terms.charging) else {
                return false;
            };
            if applied.is_binding() {
                applied.effect = Effect::Mark; // a response denies nothing
            }
            applied.located = None;
            let estimate = applied.cost;
            let used = match charging {
                // Its end is that of the plan of requests in flight.
                Charging::Request | Charging::InFlight => return false,
                Charging::Response(_) => charging.used(estimate, ending, response),
                Charging::Settled(_) if applied.charged.is_none() => return false,
                Charging::Settled(settled) => {
                    let Some(actual) = settled.used(ending, response) else {
                        awaited.rules.push(applied.clone());
                        return false;
                    };
                    settled_costs.push(SettledCharge { rule, estimate, actual });
                    actual.unwrap_or(estimate)
                }
            };
            applied.due = match applied.due {
                Due::Later if used > 0 && !denies(applied, policy, decisions) => Due::Now,
                Due::Held
                    if applied.charged.is_some()
                        && (used != estimate || policy.keeps_holds(applied)) =>
                {
                    Due::Settled(used)
                }
                _ => return false,
            };
            true
        });
        if !awaited.rules.is_empty() {
            awaited.decisions.clone_from(decisions);
        }
        !self.applied.is_empty()
    }

    /// Uses the decisions that were made without a store as those of the request; rules whose
    /// counts were not requested have none.
    pub(crate) fn take_for_decided(&mut self) {
        let asked = self.applied.iter().filter(|applied| !applied.is_unasked());
        let asked_at = asked.filter_map(|applied| self.partitions.get(applied.partition()?));
        let at = asked_at.map(|stored| stored.at).max().unwrap_or_default();
        self.each_partition(|partition| {
            partition.stored.at = at;
            partition.stored.status = Status::Uncharged;
        });
    }

    /// Discards these decisions: the request is in the state after planning.
    pub(crate) fn forget_decisions(&mut self, policy: &Policy) {
        for applied in &mut self.applied {
            applied.basis = Basis::Count;
        }
        self.each_partition(|partition| partition.stored.status = Status::Pending);
        self.reserve_decisions(policy);
    }

    /// True when the request is denied whatever its quotas decide: it cannot be read, a key part is
    /// missing, or a partition failed whose rules deny on failure.
    pub(crate) fn is_refused_without_quota(&self, policy: &Policy) -> bool {
        self.applied.iter().filter(|applied| applied.is_binding()).any(|applied| {
            let Some(i) = applied.partition() else { return true };
            let has_failed = self.partitions.get(i).is_some_and(|p| p.status.has_failed());
            let rule = policy.rules.get(usize::from(applied.rule));
            has_failed && rule.is_some_and(|rule| rule.terms.on_failure == OnFailure::Deny)
        })
    }
}

impl PartitionMut<'_> {
    /// Decides this partition alone at `now`, after it lost its race and was loaded again, while
    /// the others stay charged. False when it denies now: then refund the charges of the others. A
    /// request that was denied with several partitions stays denied, because none is charged: only
    /// its penalties start again.
    pub fn redecide(&mut self, policy: &Policy, now: Timestamp) -> bool {
        self.locate(policy, now);
        if self.stored.punished && self.has_others() {
            self.punish_again(policy, now);
            return true;
        }
        if let Some(admitted) = self.decide_at_once(policy, now) {
            return admitted;
        }
        let admitted = self.peek(policy, now);
        self.record(policy, now, admitted);
        admitted
    }

    /// Refunds this request's charge in a value that was committed and then loaded again. Then
    /// commit [`Partition::value`](crate::Partition::value). If the commit loses its race, load and
    /// refund again; if it succeeds, call [`PartitionMut::refunded`]. False when a place in the
    /// queue stays taken: a `leaky-queue` can only release its last place.
    pub fn refund(&mut self, policy: &Policy, now: Timestamp) -> bool {
        self.locate(policy, now);
        let Self { index, stored, applied, decisions, .. } = self;
        let mut is_free = true;
        for applied in applied.iter().filter(|applied| applied.counts_in(*index)) {
            is_free &= take_back(policy, applied, &mut stored.value, decisions, now);
        }
        is_free
    }

    /// Sets the decisions to the remaining units without the refunded charge.
    pub fn refunded(&mut self, policy: &Policy, now: Timestamp) {
        self.locate(policy, now);
        let Self { index, stored, applied, decisions, .. } = self;
        for applied in applied.iter_mut().filter(|applied| applied.counts_in(*index)) {
            applied.charged = None;
            if let Some(mut counted) = counted_in(policy, applied, &mut stored.value, decisions) {
                counted.leave(now);
            }
        }
        stored.status = Status::Uncharged;
    }

    /// Checks and charges in one step when that gives the same result: one quota of one rule is the
    /// only one that counts here, and an allowed request is charged now. `None`, with nothing
    /// decided, in every other case.
    fn decide_at_once(&mut self, policy: &Policy, now: Timestamp) -> Option<bool> {
        let Self { index, stored, applied, decisions, .. } = self;
        let mut counted = applied.iter_mut().filter(|applied| applied.counts_in(*index));
        let (Some(applied), None) = (counted.next(), counted.next()) else { return None };
        let rule = policy.rules.get(usize::from(applied.rule))?;
        let set = policy.applied_set(applied)?;
        let is_charged_now = applied.is_charged_now();
        let ([quota], true, None) = (&*set.quotas, is_charged_now, rule.longest_wait()) else {
            return None;
        };
        if !stored.status.is_loaded() {
            return None;
        }
        let state =
            quota.state_mut(record::states_mut(set, applied.located, &mut stored.value)?)?;
        let decision = decisions.get_mut(applied.first_decision)?;
        stored.punished = false;
        *decision = quota.limiter.check(state, now, applied.cost);
        let charged = decision.is_admitted();
        applied.charged = charged.then_some(now);
        stored.at = now;
        stored.status = if charged { Status::Charged } else { Status::Uncharged };
        let passes = charged || !applied.is_binding();
        if !passes {
            self.punish(policy, now);
        }
        Some(passes)
    }

    /// Fills in the decisions without charging; true unless a binding rule denies.
    fn peek(&mut self, policy: &Policy, now: Timestamp) -> bool {
        let Self { index, stored, applied, decisions, .. } = self;
        if !stored.status.is_loaded() {
            return true;
        }
        stored.at = now;
        stored.punished = false;
        let mut admitted = true;
        let counted = applied.iter().filter(|applied| applied.counts_in(*index));
        // The decision of a charge is needed to refund it.
        for applied in counted.filter(|applied| !applied.due.is_settled()) {
            let rule = policy.rules.get(usize::from(applied.rule));
            let longest = rule.and_then(Rule::longest_wait);
            if let Some(mut counted) = counted_in(policy, applied, &mut stored.value, decisions) {
                counted.look(now, applied.decided_cost(), longest);
            }
            admitted &= !(applied.is_binding() && denies(applied, policy, decisions));
        }
        admitted
    }

    /// Charges the request or, when it is denied, sets the decisions to the remaining units without
    /// it. The denials are unchanged.
    fn record(&mut self, policy: &Policy, now: Timestamp, admitted: bool) {
        let Self { index, stored, applied, decisions, .. } = self;
        if !stored.status.is_loaded() {
            return;
        }
        stored.status = Status::Uncharged;
        for applied in applied.iter_mut().filter(|applied| applied.counts_in(*index)) {
            if applied.due == Due::Renewed {
                let counted = counted_in(policy, applied, &mut stored.value, decisions);
                let charged = counted.zip(applied.charged);
                // The time of its charge stays until this is committed: it may be decided again.
                if let Some((mut counted, at)) = charged {
                    if !counted.renew(at, applied.cost, now) {
                        counted.count_again(applied.cost, now);
                    }
                    stored.status = Status::Charged;
                }
                continue;
            }
            if applied.due.is_settled() {
                settle(policy, applied, &mut stored.value, decisions, now);
                stored.status = Status::Charged;
                continue;
            }
            if applied.reports() {
                applied.charged = None; // so it is never refunded
                if let Some(mut counted) = counted_in(policy, applied, &mut stored.value, decisions)
                {
                    counted.report(now, applied.cost);
                    stored.status = Status::Charged;
                }
                continue;
            }
            let charged =
                admitted && applied.is_charged_now() && !denies(applied, policy, decisions);
            applied.charged = charged.then_some(now);
            if charged {
                stored.status = Status::Charged;
            }
            let counted = counted_in(policy, applied, &mut stored.value, decisions);
            match (counted, charged) {
                (Some(mut counted), true) => counted.charge(now, applied.cost),
                (Some(mut counted), false) => counted.leave(now),
                (None, _) => {}
            }
        }
        if !admitted {
            self.punish(policy, now);
        }
    }

    /// Charges nothing, and sets the decisions to the remaining units. The denials are unchanged.
    fn leave(&mut self, policy: &Policy, now: Timestamp) {
        let Self { index, stored, applied, decisions, .. } = self;
        if !stored.status.is_loaded() {
            return;
        }
        stored.status = Status::Uncharged;
        for applied in applied.iter_mut().filter(|applied| applied.counts_in(*index)) {
            applied.charged = None;
            if let Some(mut counted) = counted_in(policy, applied, &mut stored.value, decisions) {
                counted.leave(now);
            }
        }
    }
}

/// Settles the rule's charge in `value` as its response requires.
fn settle(
    policy: &Policy,
    applied: &AppliedRule,
    value: &mut Vec<u8>,
    decisions: &mut [Decision],
    now: Timestamp,
) {
    let counted = counted_in(policy, applied, value, decisions);
    if let (Some(mut counted), Due::Settled(used), Some(at)) =
        (counted, applied.due, applied.charged)
    {
        counted.settle(at, applied.cost, used, now);
    }
}

/// Removes the rule's charge, if there is one, from `value`. False when a place in the queue stays
/// taken.
fn take_back(
    policy: &Policy,
    applied: &AppliedRule,
    value: &mut Vec<u8>,
    decisions: &mut [Decision],
    now: Timestamp,
) -> bool {
    let counted = counted_in(policy, applied, value, decisions);
    counted
        .zip(applied.charged)
        .is_none_or(|(mut counted, at)| counted.take_back(at, applied.cost, now))
}
