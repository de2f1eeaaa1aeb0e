//! One request on its way: which rules apply, what was loaded, what was decided.
//!
//! Invariant: all or nothing. A request is charged to every quota of every rule that applies, or,
//! when one of them denies, to none: what was already committed elsewhere is given back. A plan is
//! reused from request to request and allocates nothing once its buffers have grown.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

use tollgate_core::{Decision, Timestamp};

use crate::compile::{Meter, Policy};
use crate::document::{OnFailure, OnMissing};
use crate::facts::Facts;
use crate::key::write_key;
use crate::outcome::Outcome;
use crate::path::normalise;
use crate::value;

/// Why a stored value could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store did not answer.
    Unreachable,
    /// Every try to commit lost its race.
    Contended,
    /// What was stored is no value of this policy.
    Corrupt,
}

/// The plan of one request; see the crate's documentation for the order of calls.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) applied: Vec<Applied>,
    /// Only the first `used` are this request's; the others keep their buffers.
    partitions: Vec<Partition>,
    used: usize,
    pub(crate) decisions: Vec<Decision>,
    keys: Vec<u8>,
    path: Vec<u8>,
    candidates: Vec<u16>,
    /// Where an outcome writes the value of a field.
    pub(crate) text: RefCell<String>,
}

/// A rule that applies to the request.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) rule: u16,
    pub(crate) set: u16,
    pub(crate) cost: u64,
    /// `None` when a key part is missing and the rule refuses such requests.
    pub(crate) partition: Option<usize>,
    /// Where its decisions begin, one per quota; empty until decided.
    pub(crate) first_decision: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Partition {
    group: u16,
    key: Range<usize>,
    value: Vec<u8>,
    /// The time of the decision.
    pub(crate) at: Timestamp,
    pub(crate) status: Status,
}

/// How far a partition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nothing is loaded.
    #[default]
    Pending,
    /// Loaded, not decided.
    Loaded,
    /// Decided, and this request's costs are in the value.
    Charged,
    /// Decided without charging: this or another partition denied.
    Uncharged,
    /// Could not be loaded or committed.
    Failed(Failure),
}

impl Policy {
    /// Fills `plan` with the rules that apply to a request and the partitions they count in. Never fails.
    pub fn plan(&self, facts: &impl Facts, plan: &mut Plan) {
        plan.clear();
        self.find_candidates(facts, plan);
        let mut method = None;
        for i in 0..plan.candidates.len() {
            let Some(rule_index) = plan.candidates.get(i).copied() else { continue };
            let Some(rule) = self.rules.get(usize::from(rule_index)) else { continue };
            if !rule.methods.is_empty() {
                let method = method.get_or_insert_with(|| facts.method());
                if !rule.methods.iter().any(|m| m.as_slice() == method.as_ref()) {
                    continue;
                }
            }
            let Some(partition) = self.partition(rule_index, facts, plan) else { continue };
            let first_decision = plan.applied.last().map_or(0, |applied| {
                applied.first_decision.saturating_add(self.meters(applied).len())
            });
            let applied = Applied {
                rule: rule_index,
                set: rule.set,
                cost: 1,
                partition: partition.ok(),
                first_decision,
            };
            plan.applied.push(applied);
        }
        plan.reserve_decisions(self);
    }

    /// The rules whose path condition holds, in the order of the policy.
    fn find_candidates(&self, facts: &impl Facts, plan: &mut Plan) {
        plan.candidates.extend_from_slice(&self.pathless);
        if self.reads_path {
            normalise(&facts.target(), &mut plan.path);
            self.index.find(&plan.path, &mut plan.candidates);
        }
        if plan.candidates.len() > 1 {
            plan.candidates.sort_unstable();
            plan.candidates.dedup();
        }
    }

    /// The partition that `rule` counts in: `None` when the rule is skipped, `Some(Err)` when it
    /// refuses the request because a key part is missing.
    fn partition(
        &self,
        rule: u16,
        facts: &impl Facts,
        plan: &mut Plan,
    ) -> Option<Result<usize, ()>> {
        let rule = self.rules.get(usize::from(rule))?;
        let group = self.groups.get(usize::from(rule.group))?;
        let start = plan.keys.len();
        if !write_key(group, self.prefixes, facts, &mut plan.keys) {
            match rule.on_missing {
                OnMissing::Shared => {}
                OnMissing::Skip => return cut(&mut plan.keys, start, None),
                OnMissing::Deny => return cut(&mut plan.keys, start, Some(Err(()))),
            }
        }
        let known = plan.live().iter().position(|p| p.group == rule.group);
        if let Some(i) = known {
            return cut(&mut plan.keys, start, Some(Ok(i)));
        }
        let end = plan.keys.len();
        Some(Ok(plan.add_partition(rule.group, start..end)))
    }

    pub(crate) fn meters(&self, applied: &Applied) -> &[Meter] {
        self.sets.get(usize::from(applied.set)).map_or(&[], |set| &set.meters)
    }
}

/// Takes back what was written into `keys` from `start`, and returns `result`.
fn cut<T>(keys: &mut Vec<u8>, start: usize, result: T) -> T {
    keys.truncate(start);
    result
}

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True when no rule applies: the request passes and nothing is added to the response.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty()
    }

    /// How many partitions (stored values) this request is charged to.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.used
    }

    /// The index into [`Policy::groups`] of partition `i`'s group.
    #[must_use]
    pub fn group(&self, i: usize) -> usize {
        self.live().get(i).map_or(0, |p| usize::from(p.group))
    }

    /// The canonical key of partition `i`. It holds what the client sent: hash it, never store or log it.
    #[must_use]
    pub fn key(&self, i: usize) -> &[u8] {
        self.live().get(i).and_then(|p| self.keys.get(p.key.clone())).unwrap_or_default()
    }

    /// Takes the stored value of partition `i`; `None` or zeros were never seen. A value that an
    /// earlier policy wrote is brought into the current layout, record by record.
    pub fn load(&mut self, policy: &Policy, i: usize, stored: Option<&[u8]>) {
        let Some(partition) = self.live_mut(i) else { return };
        let Some(group) = policy.groups.get(usize::from(partition.group)) else { return };
        value::load(policy, group, stored.unwrap_or_default(), &mut partition.value);
        partition.status = Status::Loaded;
    }

    /// Notes that partition `i` could not be loaded or committed: its rules' `on_failure` decides.
    pub fn fail(&mut self, i: usize, failure: Failure) {
        if let Some(partition) = self.live_mut(i) {
            partition.status = Status::Failed(failure);
        }
    }

    /// Decides all loaded partitions together at `now`: every cost is charged, or none is.
    pub fn decide(&mut self, policy: &Policy, now: Timestamp) {
        let mut admitted = true;
        for i in 0..self.used {
            admitted &= self.peek(policy, i, now);
        }
        admitted &= !self.refused_without_quota(policy);
        for i in 0..self.used {
            self.record(policy, i, now, admitted);
        }
    }

    /// Decides partition `i` alone at `now`, after it lost its race and was loaded again, while the
    /// others stay charged. False when it denies now: then the others' charges are to be refunded.
    pub fn redecide(&mut self, policy: &Policy, i: usize, now: Timestamp) -> bool {
        let admitted = self.peek(policy, i, now);
        self.record(policy, i, now, admitted);
        admitted
    }

    /// Takes this request's charge back from partition `i`, which was committed and then loaded again.
    pub fn refund(&mut self, policy: &Policy, i: usize, now: Timestamp) {
        let Self { applied, partitions, decisions, used, .. } = self;
        let Some(partition) = partitions.get_mut(..*used).and_then(|p| p.get_mut(i)) else {
            return;
        };
        let at = partition.at;
        for_each_meter(
            policy,
            applied,
            decisions,
            i,
            &mut partition.value,
            |meter, state, cost, decision| {
                if let Some(charge) = decision.charge(at, cost) {
                    meter.limiter.refund(state, charge, now);
                }
                *decision = meter.limiter.peek(state, now, 0);
            },
        );
        partition.status = Status::Uncharged;
    }

    /// True when the value of partition `i` was charged and must be committed.
    #[must_use]
    pub fn changed(&self, i: usize) -> bool {
        self.live().get(i).is_some_and(|p| p.status == Status::Charged)
    }

    /// The value of partition `i`, to be committed.
    #[must_use]
    pub fn value(&self, i: usize) -> &[u8] {
        self.live().get(i).map_or(&[], |p| &p.value)
    }

    /// The time from which partition `i` may be forgotten without loss.
    #[must_use]
    pub fn idle_at(&self, policy: &Policy, i: usize) -> Timestamp {
        let group = policy.groups.get(self.group(i));
        group.map_or(Timestamp::ZERO, |group| group.idle_at(policy, self.value(i)))
    }

    /// What was decided.
    #[must_use]
    pub const fn outcome<'a>(&'a self, policy: &'a Policy) -> Outcome<'a> {
        Outcome::new(self, policy)
    }

    pub(crate) fn live(&self) -> &[Partition] {
        self.partitions.get(..self.used).unwrap_or_default()
    }

    pub(crate) fn live_mut(&mut self, i: usize) -> Option<&mut Partition> {
        self.partitions.get_mut(..self.used)?.get_mut(i)
    }

    pub(crate) fn clear(&mut self) {
        self.applied.clear();
        self.used = 0;
        self.decisions.clear();
        self.keys.clear();
        self.candidates.clear();
    }

    pub(crate) fn add_partition(&mut self, group: u16, key: Range<usize>) -> usize {
        let i = self.used;
        if self.partitions.len() == i {
            self.partitions.push(Partition::default());
        }
        if let Some(partition) = self.partitions.get_mut(i) {
            partition.group = group;
            partition.key = key;
            partition.status = Status::Pending;
        }
        self.used = i.saturating_add(1);
        i
    }

    /// Makes room for one decision per quota of every applied rule.
    pub(crate) fn reserve_decisions(&mut self, policy: &Policy) {
        let count = self.applied.iter().map(|applied| policy.meters(applied).len()).sum();
        self.decisions.clear();
        self.decisions.resize(count, NONE);
    }

    /// Fills the decisions of partition `i` as they would be; true when all admit (or it failed).
    fn peek(&mut self, policy: &Policy, i: usize, now: Timestamp) -> bool {
        let Self { applied, partitions, decisions, used, .. } = self;
        let Some(partition) = partitions.get_mut(..*used).and_then(|p| p.get_mut(i)) else {
            return true;
        };
        if matches!(partition.status, Status::Pending | Status::Failed(_)) {
            return true;
        }
        partition.at = now;
        let mut admitted = true;
        for_each_meter(
            policy,
            applied,
            decisions,
            i,
            &mut partition.value,
            |meter, state, cost, decision| {
                *decision = meter.limiter.peek(state, now, cost);
                admitted &= decision.is_admitted();
            },
        );
        admitted
    }

    /// Charges partition `i`, or, when the request is not admitted, says what its quotas have left
    /// without it. The denials stay as they are.
    fn record(&mut self, policy: &Policy, i: usize, now: Timestamp, admitted: bool) {
        let Self { applied, partitions, decisions, used, .. } = self;
        let Some(partition) = partitions.get_mut(..*used).and_then(|p| p.get_mut(i)) else {
            return;
        };
        if matches!(partition.status, Status::Pending | Status::Failed(_)) {
            return;
        }
        for_each_meter(
            policy,
            applied,
            decisions,
            i,
            &mut partition.value,
            |meter, state, cost, decision| {
                if admitted {
                    *decision = meter.limiter.check(state, now, cost);
                } else if decision.is_admitted() {
                    *decision = meter.limiter.peek(state, now, 0);
                }
            },
        );
        partition.status = if admitted { Status::Charged } else { Status::Uncharged };
    }

    /// True when the request is refused whatever its quotas say: a key part is missing, or a
    /// partition failed whose rules deny then.
    fn refused_without_quota(&self, policy: &Policy) -> bool {
        self.applied.iter().any(|applied| match applied.partition {
            None => true,
            Some(i) => {
                let failed =
                    matches!(self.live().get(i).map(|p| p.status), Some(Status::Failed(_)));
                let rule = policy.rules.get(usize::from(applied.rule));
                failed && rule.is_some_and(|rule| rule.on_failure == OnFailure::Deny)
            }
        })
    }
}

/// A decision not yet made.
const NONE: Decision = Decision {
    verdict: tollgate_core::Verdict::Allow,
    limit: 0,
    remaining: 0,
    retry_after: None,
    reset_after: tollgate_core::Span::ZERO,
};

/// Calls `each` with every quota that counts in `partition`: its parameters, its state in `value`,
/// the cost, and its decision.
fn for_each_meter(
    policy: &Policy,
    applied: &[Applied],
    decisions: &mut [Decision],
    partition: usize,
    value: &mut [u8],
    mut each: impl FnMut(&Meter, &mut [u8], u64, &mut Decision),
) {
    for applied in applied.iter().filter(|applied| applied.partition == Some(partition)) {
        let Some(set) = policy.sets.get(usize::from(applied.set)) else { continue };
        let Some(states) = value::states_mut(set, value) else { continue };
        let decisions = decisions.get_mut(applied.first_decision..).unwrap_or_default();
        for (meter, decision) in set.meters.iter().zip(decisions) {
            if let Some(state) = meter.state_mut(states) {
                each(meter, state, applied.cost, decision);
            }
        }
    }
}

impl Meter {
    /// This quota's state among the states of its record.
    pub(crate) fn state<'v>(&self, states: &'v [u8]) -> Option<&'v [u8]> {
        states.get(self.offset..self.offset.checked_add(self.limiter.state_len())?)
    }

    fn state_mut<'v>(&self, states: &'v mut [u8]) -> Option<&'v mut [u8]> {
        states.get_mut(self.offset..self.offset.checked_add(self.limiter.state_len())?)
    }
}
