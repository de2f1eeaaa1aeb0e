//! A rule that applies to a request: where it counts, the effect of its denial, and the basis of
//! its decisions.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use tollgate_core::{Decision, Timestamp};
use tollgate_http_syntax::malformed::Malformed;
use tollgate_storage::Due;

use crate::policy::group::QuotaSet;
use crate::policy::tenant::Tenant;
use crate::spec::action::Action;
use crate::spec::settled_cost::ActualUnits;

/// A rule that applies to the request.
#[derive(Clone, Debug)]
pub(crate) struct AppliedRule {
    pub(crate) rule: u16,
    pub(crate) set: AppliedSet,
    /// The priority of the tenant's entry that selected these quotas, if one did.
    pub(crate) by_entry: Option<u32>,
    pub(crate) cost: u64,
    pub(crate) counted_in: CountedIn,
    /// The index of its first decision, one per quota.
    pub(crate) first_decision: usize,
    pub(crate) effect: Effect,
    pub(crate) due: Due,
    /// Its priority among requests that wait for the same key: 0 goes first.
    pub(crate) rank: u8,
    /// The offset of its states in a long value, once they were
    /// [located](crate::pipeline::located).
    pub(crate) located: Option<NonZeroU32>,
    /// The time at which this request's cost was charged to the partition's value.
    pub(crate) charged: Option<Timestamp>,
    /// The request would have to wait for this rule and may not.
    pub(crate) rejected_waiting: bool,
    pub(crate) basis: Basis,
}

/// Where a rule counts the request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CountedIn {
    /// In the partition with this index.
    Partition(usize),
    /// Nowhere: a key part is missing, and the rule denies such requests.
    NoKey,
    /// Nowhere: its quota denies everything.
    Closed,
    /// Nowhere: the rule cannot read the request. A binding rule denies it.
    Malformed(Malformed),
}

/// The effect of the rule's denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None: the rule is in shadow mode for this key, and its result is only counted.
    Shadow,
    /// The request is marked.
    Mark,
    /// The request is denied: the rule is binding.
    Deny,
}

/// The basis of the rule's decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Basis {
    /// Its count.
    Count,
    /// A lease: the remaining units are those that this node holds.
    Lease,
    /// An operator blocked its key until this time, by the clock of its store.
    Block(Timestamp),
    /// Nothing: its count was not requested, because a remembered denial of another rule denies the
    /// request.
    Unasked,
}

/// The quotas in which a rule counts a request.
#[derive(Clone, Debug)]
pub(crate) enum AppliedSet {
    /// The set of the policy with this index: the rule's own or a tier's.
    OfPolicy(u16),
    /// The set with this index of the request's tenant, which no policy contains.
    OfTenant(Arc<Tenant>, u16),
    /// One of the above, with the limits of this request in its limiters.
    Limited(Arc<OfRequest>),
    /// The set that wrote its record, as a replacement for one of the above.
    Recorded(Arc<OfRecord>),
}

/// The quotas of a policy or a tenant, with the limits of one request.
#[derive(Clone, Debug)]
pub(crate) struct OfRequest {
    pub(crate) own: AppliedSet,
    pub(crate) set: QuotaSet,
}

impl OfRequest {
    /// `set` with the limits of this request, as far as it has quotas of the same names that count.
    pub(crate) fn limit(&self, set: &mut QuotaSet) {
        for quota in &mut set.quotas {
            let mut own = self.set.quotas.iter().filter(|own| own.limit_from.is_some());
            if let Some(own) = own.find(|own| own.name_hash == quota.name_hash) {
                quota.limiter =
                    quota.limiter.within(own.limiter.capacity()).unwrap_or(quota.limiter);
            }
        }
    }
}

/// Quotas that replace those of a rule's policy or tenant: those of a later policy whose record was
/// found, or the same ones in a value that has such records.
#[derive(Clone, Debug)]
pub(crate) struct OfRecord {
    pub(crate) own: AppliedSet,
    pub(crate) set: QuotaSet,
}

/// The cost of an allowed request in one rule, which charged an estimate and learned the cost from
/// the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledCharge {
    /// The index of the rule in [`Policy::rules`](crate::Policy::rules).
    pub rule: usize,
    /// The units that were charged when the request came.
    pub estimate: u64,
    /// The units that it used.
    pub actual: ActualUnits,
}

/// Rules whose estimate only the end of the response settles, once its head has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct AwaitedRules {
    pub(crate) rules: Vec<AppliedRule>,
    /// The decisions of their charges, at the same places as in the plan.
    pub(crate) decisions: Vec<Decision>,
}

impl SettledCharge {
    /// The units that stay charged.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.actual.unwrap_or(self.estimate)
    }
}

impl Effect {
    pub(crate) const fn new(is_enforced: bool, action: &Action) -> Self {
        match action {
            _ if !is_enforced => Self::Shadow,
            Action::Mark(_) => Self::Mark,
            Action::Deny(_) | Action::Delay(_) | Action::Respond(_) => Self::Deny,
        }
    }
}

impl AppliedRule {
    /// True when the request lacks a part of its key, and the rule denies such requests.
    pub(crate) const fn is_without_key(&self) -> bool {
        matches!(self.counted_in, CountedIn::NoKey)
    }

    /// True when its quota denies everything.
    #[inline]
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.counted_in, CountedIn::Closed)
    }

    /// The index of the partition that it counts in.
    #[inline]
    pub(crate) const fn partition(&self) -> Option<usize> {
        match self.counted_in {
            CountedIn::Partition(index) => Some(index),
            CountedIn::NoKey | CountedIn::Closed | CountedIn::Malformed(_) => None,
        }
    }

    /// Why it cannot read the request.
    #[inline]
    pub(crate) const fn malformed(&self) -> Option<Malformed> {
        match self.counted_in {
            CountedIn::Malformed(why) => Some(why),
            CountedIn::Partition(_) | CountedIn::NoKey | CountedIn::Closed => None,
        }
    }

    /// True unless it is in shadow mode for this key.
    #[inline]
    pub(crate) const fn is_enforced(&self) -> bool {
        matches!(self.effect, Effect::Mark | Effect::Deny)
    }

    /// True when its denial denies the request.
    #[inline]
    pub(crate) const fn is_binding(&self) -> bool {
        matches!(self.effect, Effect::Deny)
    }

    /// The time until which an operator blocked its key.
    #[inline]
    pub(crate) const fn blocked_until(&self) -> Option<Timestamp> {
        match self.basis {
            Basis::Block(until) => Some(until),
            Basis::Count | Basis::Lease | Basis::Unasked => None,
        }
    }

    /// True when its decisions are based on a lease.
    #[inline]
    pub(crate) const fn is_leased(&self) -> bool {
        matches!(self.basis, Basis::Lease)
    }

    /// True when its count was not requested.
    #[inline]
    pub(crate) const fn is_unasked(&self) -> bool {
        matches!(self.basis, Basis::Unasked)
    }

    /// True when it is charged as soon as it is allowed.
    pub(crate) const fn is_charged_now(&self) -> bool {
        matches!(self.due, Due::Now | Due::Held | Due::InFlight)
    }

    /// True when units were used that must be recorded whatever the decision is.
    pub(crate) fn reports(&self) -> bool {
        self.due == Due::Reported && self.cost > 0
    }

    /// True when its denial starts the penalties of its quotas: it denies the request, which would
    /// have been charged, now or by its response.
    pub(crate) const fn punishes(&self) -> bool {
        self.is_binding() && matches!(self.due, Due::Now | Due::Held | Due::Later)
    }

    /// The cost that is decided on.
    pub(crate) fn decided_cost(&self) -> u64 {
        if self.due == Due::Reported { 1 } else { self.cost }
    }

    /// True when partition `i` is where it counts.
    pub(crate) fn counts_in(&self, i: usize) -> bool {
        self.partition() == Some(i)
    }
}
