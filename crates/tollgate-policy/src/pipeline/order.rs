//! The order in which separate counts of a request are checked and charged.
//!
//! Invariant: a count that many clients share is charged last, when no other count denies any more,
//! so that a flood denied by its own key never holds a place in the shared count. The count charged
//! first belongs to one client, and only that one is ever refunded often. The order depends only on
//! the policy and the key. Deliberately absent: the requests to the counts, and the refunds; the
//! surface does both.

use core::cmp::Reverse;

use tollgate_core::Algorithm;

use crate::pipeline::applied::Basis;
use crate::pipeline::partition::{Partition, PartitionMut};
use crate::pipeline::plan::Plan;
use crate::pipeline::punish::may_punish;
use crate::policy::compiled::Policy;
use crate::policy::rule::Rule;
use crate::request::key::parts;
use crate::spec::key::Breadth;
use crate::spec::key_item::items;

/// The ends of the order: indexes of partitions of a [`Plan`]. The counts in between are checked
/// together with the first and charged together with the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargingOrder {
    /// Checked before any count is charged: the partition with the last denial, when
    /// [`Denials`](crate::Denials) no longer relies on it and this request checks it again. It
    /// probably still denies; if it does, only check the others.
    pub suspect: Option<usize>,
    /// Charged at once: its decision and its charge are one request.
    pub first: usize,
    /// Charged when no other count denies, without an earlier check.
    pub last: usize,
}

impl ChargingOrder {
    /// The order for the counts of `plan`. `None` when there is one count, when a taken place
    /// cannot always be returned (a queue), when the request may wait, or when a denial may start a
    /// penalty, which a charge that comes back must not cause: then check all counts before
    /// charging any.
    #[must_use]
    pub fn of(policy: &Policy, plan: &Plan) -> Option<Self> {
        if plan.partitions().nth(1).is_none()
            || plan.may_wait(policy)
            || plan.applied.iter().any(|applied| may_punish(applied, policy))
        {
            return None;
        }
        let of = |partition: Partition<'_>| (breadth(policy, &partition), partition.index());
        let first = plan.partitions().map(of).min()?.1;
        let last = plan.partitions().map(of).max()?.1;
        Some(Self { suspect: plan.suspect, first, last })
    }
}

impl Plan {
    /// True when a rule may delay the request, or gives it a place in a queue.
    pub(crate) fn may_wait(&self, policy: &Policy) -> bool {
        self.applied.iter().any(|applied| {
            let rule = policy.rules.get(usize::from(applied.rule));
            let mut quotas = policy.quotas(applied).iter();
            rule.and_then(Rule::longest_wait).is_some()
                || quotas.any(|quota| quota.limiter.algorithm() == Algorithm::LeakyQueue)
        })
    }
}

impl PartitionMut<'_> {
    /// Leaves its count out of [the outcome](Plan::outcome) while its decision is not requested.
    pub fn set_aside(&mut self) {
        self.rules_mut().for_each(|applied| applied.basis = Basis::Unasked);
    }

    /// Includes its count again.
    pub fn take_up(&mut self) {
        let unasked = self.rules_mut().filter(|applied| applied.is_unasked());
        unasked.for_each(|applied| applied.basis = Basis::Count);
    }
}

/// How many clients share a count, as far as its key shows: the fewest first.
fn breadth(policy: &Policy, partition: &Partition<'_>) -> (Breadth, Reverse<usize>) {
    let key =
        policy.groups.get(partition.group()).map(|group| &*group.spec.key).unwrap_or_default();
    let given = items(key).zip(parts(partition.key())).filter(|(_, value)| value.is_some());
    let narrowest = given.map(|(item, _)| item.breadth()).min();
    (narrowest.unwrap_or(Breadth::All), Reverse(items(key).count()))
}
