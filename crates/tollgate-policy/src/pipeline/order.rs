//! In which order the counts of a request are charged where they lie apart.
//!
//! Invariant: what many share is charged last, when nothing else refuses any more, so that no flood
//! which a key of its own refuses holds a place in it; what is charged first is the count of one
//! client, and only that is ever given back often. The order depends on the policy and the key
//! alone. Deliberately absent: asking, and giving back; that is the surface's.

use core::cmp::Reverse;

use tollgate_core::Algorithm;

use crate::document::key::KeyPart;
use crate::pipeline::partition::Partition;
use crate::pipeline::plan::{AppliedRule, Plan};
use crate::policy::compiled::Policy;
use crate::policy::rule::Rule;
use crate::request::key::parts;

/// The ends of the order: partitions of a [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargingOrder {
    /// Charged at once: what it decides is asked in the same call.
    pub first: usize,
    /// Charged when no other refuses, without having been asked before.
    pub last: usize,
}

impl Policy {
    /// True when no request may wait or gets a place in a queue, so that all counts apart have a
    /// [`ChargingOrder`].
    #[must_use]
    pub fn never_waits(&self) -> bool {
        let mut quotas = self.sets.iter().flat_map(|set| &set.quotas);
        self.rules.iter().all(|rule| rule.longest_wait().is_none())
            && quotas.all(|quota| quota.limiter.algorithm() != Algorithm::LeakyQueue)
    }
}

impl Plan {
    /// Which of several counts is charged first and which last; those between are asked beside the
    /// first and charged beside the last. `None` where there is one count, and where a place that
    /// is taken may not come back as it was (a queue) or the request may wait: then ask all before
    /// any is charged.
    #[must_use]
    pub fn charging_order(&self, policy: &Policy) -> Option<ChargingOrder> {
        if self.partitions().nth(1).is_none() || self.may_wait(policy) {
            return None;
        }
        let of = |partition: Partition<'_>| (breadth(policy, &partition), partition.index());
        let first = self.partitions().map(of).min()?.1;
        let last = self.partitions().map(of).max()?.1;
        Some(ChargingOrder { first, last })
    }

    /// The partition that denied last, where [`Denials`](crate::Denials) no longer believes it and
    /// this request asks again. It probably still denies, so ask it before any is charged, and
    /// where it does only look at the others.
    #[must_use]
    pub const fn suspect(&self) -> Option<usize> {
        self.suspect
    }

    /// Leaves the count of partition `i` out of what [the outcome](Plan::outcome) says, as long as
    /// it is not asked.
    pub fn set_aside(&mut self, i: usize) {
        self.rules_in(i).for_each(|applied| applied.is_unasked = true);
    }

    /// The count of partition `i` has a say again.
    pub fn take_up(&mut self, i: usize) {
        self.rules_in(i).for_each(|applied| applied.is_unasked = false);
    }

    /// True when a rule may let the request wait, or gives it a place in a queue.
    pub(crate) fn may_wait(&self, policy: &Policy) -> bool {
        self.applied.iter().any(|applied| {
            let rule = policy.rules.get(usize::from(applied.rule));
            let mut quotas = policy.quotas(applied).iter();
            rule.and_then(Rule::longest_wait).is_some()
                || quotas.any(|quota| quota.limiter.algorithm() == Algorithm::LeakyQueue)
        })
    }

    fn rules_in(&mut self, i: usize) -> impl Iterator<Item = &mut AppliedRule> {
        self.applied.iter_mut().filter(move |applied| applied.counts_in(i))
    }
}

/// How many clients share a count, as far as its key says: the least first.
fn breadth(policy: &Policy, partition: &Partition<'_>) -> (u8, Reverse<usize>) {
    let key = policy.groups.get(partition.group()).map(|group| &*group.key).unwrap_or_default();
    let given = key.iter().zip(parts(partition.key())).filter(|(_, value)| value.is_some());
    let narrowest = given.map(|(part, _)| breadth_of(part)).min();
    (narrowest.unwrap_or(u8::MAX), Reverse(key.len()))
}

/// What says who the client is, what may be one of a few, and what many have in common.
const fn breadth_of(part: &KeyPart) -> u8 {
    match part {
        KeyPart::ClientIp
        | KeyPart::JwtClaim(_)
        | KeyPart::Header(..)
        | KeyPart::Cookie(..)
        | KeyPart::Query(..)
        | KeyPart::Descriptor(_) => 0,
        KeyPart::PathParam(_) | KeyPart::Path => 1,
        KeyPart::Host | KeyPart::Country | KeyPart::Asn | KeyPart::Route | KeyPart::Method => 2,
    }
}
