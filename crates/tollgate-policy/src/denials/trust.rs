//! For how long a count is believed that was heard of: whether anything can come back of it.
//!
//! Invariant: when in doubt something can. What comes back is: a place that is given back by the
//! response (`reserve`) or by who leaves a queue, the charge of a request that another key refused
//! in the end, what a cost turns out to be less than was charged, and whatever an operator resets,
//! until that is heard of. A cost that requests choose brings nothing back but other numbers.

use tollgate_core::{Algorithm, Span, Timestamp};

use crate::document::charging::Charging;
use crate::document::key::KeyPart;
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;

/// How long a count is believed of which units may come back: one second.
pub const FRESH: Span = Span::from_secs(1);

/// True when a refusal by `set` stays one until its `retry_after`, with the same numbers. It is
/// so of all rules of a policy or of none: of two that refuse a request together one is not
/// forgotten before the other, and left to answer alone.
pub(crate) fn is_final(policy: &Policy, set: &QuotaSet) -> bool {
    let Some(rule) = policy.rules.get(usize::from(set.rule)) else { return false };
    let is_queue = |quota: &CompiledQuota| quota.limiter.algorithm() == Algorithm::LeakyQueue;
    let keeps = |rule: &Rule| rule.has_fixed_cost() && matches!(rule.charging, Charging::Request);
    !policy.sets.iter().chain([set]).any(|set| set.quotas.iter().any(is_queue))
        && policy.rules.iter().all(|other| keeps(other) && cannot_undo(policy, other, rule))
}

/// True when what it charged may be settled at a lower cost.
pub(crate) fn can_be_settled(policy: &Policy, set: &QuotaSet) -> bool {
    policy.rules.get(usize::from(set.rule)).is_none_or(|rule| rule.names_cost)
}

/// True when no request that `rule` charges is refused by `other` afterwards: both find the same
/// key in every request, and decide there at once.
fn cannot_undo(policy: &Policy, other: &Rule, rule: &Rule) -> bool {
    let key = policy.groups.get(usize::from(rule.group)).map(|group| &group.key);
    let reads_captures =
        key.is_none_or(|key| key.iter().any(|part| matches!(part, KeyPart::PathParam(_))));
    core::ptr::eq(other, rule)
        || (other.group == rule.group && other.on_missing == rule.on_missing && !reads_captures)
}

/// What is believed of a request's counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    /// The clock of the process that remembers.
    pub(crate) now: Timestamp,
    /// For how long after [`FRESH`].
    pub(crate) beyond: Span,
    /// Of which of them.
    pub(crate) of: Counts,
}

/// Some counts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counts {
    All,
    /// Those whose store was asked and did not answer.
    Silent,
}
