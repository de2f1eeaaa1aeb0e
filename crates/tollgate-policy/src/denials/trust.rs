//! How long a received count is trusted: whether any of its units can come back.
//!
//! Invariant: in doubt, units can come back. These come back: a place that is given back by the
//! response (`reserve`) or by a client that leaves a queue; the charge of a request that another
//! key denied in the end; the part of a charge that exceeds the final cost; and whatever an
//! operator resets, until the reset is known. A cost that requests choose brings
//! nothing back; only the numbers differ.

use tollgate_core::{Algorithm, Span, Timestamp};

use crate::denials::table::Entry;
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;
use crate::spec::charging::Charging;
use crate::spec::key::KeySource;
use crate::spec::key_item::KeyPart;

/// How long a count is trusted whose units may come back: one second.
pub const FRESH: Span = Span::from_secs(1);

/// True when a denial by `set` stays one until its `retry_after`, with the same numbers. This is
/// true of all rules of a policy or of none: if two rules deny a request together, neither is
/// forgotten before the other and leaves it to respond alone.
pub(crate) fn is_final(policy: &Policy, set: &QuotaSet) -> bool {
    let Some(rule) = policy.rules.get(usize::from(set.rule)) else { return false };
    let is_queue = |quota: &CompiledQuota| quota.limiter.algorithm() == Algorithm::LeakyQueue;
    let keeps =
        |rule: &Rule| rule.has_fixed_cost() && matches!(rule.terms.charging, Charging::Request);
    // A request with a higher limit of its own is charged where one with a lower limit is denied.
    let changes = |set: &QuotaSet| set.varies() || set.quotas.iter().any(is_queue);
    !policy.sets.iter().chain([set]).any(changes)
        && policy.rules.iter().all(|other| keeps(other) && cannot_undo(policy, other, rule))
        // Units that a shard does not spend come back when its lease ends.
        && policy.groups.iter().all(|group| group.shards().is_none())
}

/// True while `entry` is trusted: for `beyond` after [`FRESH`]. If a clock was set back, the age of
/// the entry is unknown.
pub(crate) fn is_believed(
    entry: &Entry,
    relieved: Option<u64>,
    now: Timestamp,
    beyond: Span,
) -> bool {
    let is_final = entry.final_under.is_some() && entry.final_under == relieved;
    let age = now.checked_since(entry.received_at);
    age.is_some_and(|age| is_final || age <= FRESH.saturating_add(beyond))
}

/// True when its charges may be settled at a lower cost.
pub(crate) fn can_be_settled(policy: &Policy, set: &QuotaSet) -> bool {
    policy.rules.get(usize::from(set.rule)).is_none_or(|rule| rule.terms.names_cost)
}

/// True when `other` never denies a request after `rule` has charged it: both find the same key in
/// every request, and decide there at once.
fn cannot_undo(policy: &Policy, other: &Rule, rule: &Rule) -> bool {
    let key = policy.groups.get(usize::from(rule.terms.group)).map(|group| &group.spec.key);
    let is_capture = |part: &KeyPart| matches!(part.source, KeySource::PathParam(_));
    let reads_captures = key.is_none_or(|key| key.iter().any(is_capture));
    core::ptr::eq(other, rule)
        || (other.terms.group == rule.terms.group
            && other.terms.on_missing == rule.terms.on_missing
            && !reads_captures)
}

/// The counts of a request that are trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    /// The clock of the process that remembers.
    pub(crate) now: Timestamp,
    /// How long they are trusted after [`FRESH`].
    pub(crate) beyond: Span,
    /// The counts to which this applies.
    pub(crate) of: Counts,
}

/// Some counts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counts {
    All,
    /// The counts whose store received a request and did not respond.
    Silent,
}

/// How long these states deny `cost` from `at` on. Zero where it never fits, because such an entry
/// is not worth keeping for long.
pub(crate) fn refused_for(set: &QuotaSet, states: &[u8], at: Timestamp, cost: u64) -> Span {
    let wait =
        |quota: &CompiledQuota| quota.limiter.peek(quota.state(states)?, at, cost).retry_after;
    set.quotas.iter().filter_map(wait).max().unwrap_or(Span::ZERO)
}
