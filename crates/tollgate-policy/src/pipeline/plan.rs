//! One request in progress: the rules that apply, their costs, and the loaded values.
//!
//! Invariant: a plan contains no reference to the request, so a surface may keep it across I/O. It
//! is reused from request to request, and allocates nothing once its buffers have grown. It is
//! filled in `apply` and decided in `decide`.

use alloc::vec::Vec;

use tollgate_core::{Decision, Span, Verdict};

use crate::pipeline::applied::{AppliedRule, AppliedSet, AwaitedRules, CountedIn, SettledCharge};
use crate::pipeline::matched_deny::MatchedDeny;
use crate::pipeline::partitions::Partitions;
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::request::lazy::Buffers;
use tollgate_http_syntax::malformed::Malformed;
use tollgate_storage::Due;

/// Why a request may not wait, and the time after which a retry may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It has waited for a place among the requests in flight for as long as it may. The end of
    /// another one is not known, so its denial has no retry time by this.
    NoPlace,
    /// The requests ahead of it cannot be finished before its deadline.
    Late(Span),
    /// Too many requests wait for this key.
    Key(Span),
    /// Too many requests wait in this worker, or they use too much memory.
    Worker(Span),
}

/// The placeholder until there is a decision.
pub(crate) const NOT_YET: Decision = Decision {
    verdict: Verdict::Allow,
    limit: 0,
    remaining: 0,
    retry_after: None,
    reset_after: Span::ZERO,
};

/// The decision of a quota that denies everything.
pub(crate) const CLOSED: &[Decision] = &[Decision {
    verdict: Verdict::Deny,
    limit: 0,
    remaining: 0,
    retry_after: None,
    reset_after: Span::ZERO,
}];

/// The plan of one request; see the crate's documentation for the order of calls. It is `Send` and
/// `Sync`, and so is its [`Outcome`](crate::Outcome).
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) applied: Vec<AppliedRule>,
    pub(crate) partitions: Partitions,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) candidates: Vec<u16>,
    pub(crate) buffers: Buffers,
    /// The tenant of the request; empty for none.
    pub(crate) tenant: Vec<u8>,
    /// Why it may not wait, if it would have to.
    pub(crate) rejected_waiting: Option<Full>,
    /// The operators' relief that was known before any request was sent; see
    /// [`Denials`](crate::Denials).
    pub(crate) asked_under: Option<u64>,
    /// The partition whose denial was repeated for earlier requests: it is no longer relied on, and
    /// this request checks it again.
    pub(crate) suspect: Option<usize>,
    pub(crate) settled_costs: Vec<SettledCharge>,
    /// The number of them that were settled before the last call of [`Plan::settle`].
    pub(crate) settled_before: usize,
    pub(crate) awaited: AwaitedRules,
    /// The deny rules that match, in order; only the last one may be enforced.
    pub(crate) denied: Vec<MatchedDeny>,
}

/// A service shares its policy between threads, and keeps a plan and its outcome across an `await`.
const _: fn() = || {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Policy>();
    is_shared::<Plan>();
};

impl Policy {
    /// The set in which a rule planned by this policy counts, the policy's or a tenant's. `None`
    /// only for a plan of another policy.
    pub(crate) fn applied_set<'a>(&'a self, applied: &'a AppliedRule) -> Option<&'a QuotaSet> {
        self.set_of(&applied.set)
    }

    pub(crate) fn set_of<'a>(&'a self, set: &'a AppliedSet) -> Option<&'a QuotaSet> {
        let set = match set {
            AppliedSet::OfPolicy(index) => self.sets.get(usize::from(*index)),
            AppliedSet::OfTenant(tenant, index) => tenant.sets.get(usize::from(*index)),
            AppliedSet::Limited(of) => Some(&of.set),
            AppliedSet::Recorded(of) => Some(&of.set),
        };
        debug_assert!(set.is_some(), "a plan goes with the policy that made it");
        set
    }

    /// The identity of the quotas in which a rule counts by this policy, whatever policy wrote the
    /// record. It identifies a queue of waiting requests.
    pub(crate) fn line_of(&self, applied: &AppliedRule) -> Option<u32> {
        let own = match &applied.set {
            AppliedSet::Recorded(of) => self.set_of(&of.own),
            own => self.set_of(own),
        };
        own.map(|set| set.record_id)
    }

    /// The index of these quotas in [`Policy::quota_sets`]; for a tenant's own, an index after all
    /// of them.
    pub(crate) fn index_of(&self, set: &AppliedSet) -> usize {
        match set {
            AppliedSet::OfPolicy(index) => usize::from(*index),
            AppliedSet::OfTenant(..) => self.sets.len(),
            AppliedSet::Limited(of) => self.index_of(&of.own),
            AppliedSet::Recorded(of) => self.index_of(&of.own),
        }
    }

    /// True when a quota of a rule planned by this policy tracks its held units separately.
    pub(crate) fn keeps_holds(&self, applied: &AppliedRule) -> bool {
        self.quotas(applied).iter().any(|quota| quota.limiter.keeps_holds())
    }

    /// The quotas of a rule planned by this policy.
    pub(crate) fn quotas<'a>(&'a self, applied: &'a AppliedRule) -> &'a [CompiledQuota] {
        self.applied_set(applied).map_or(&[], |set| &set.quotas)
    }
}

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True when no rule applies: the request is allowed and nothing is added to the response.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.denied.is_empty()
    }

    /// True when a rule that applies gets reports (`"cost": "reported"`) of units that were already
    /// used. They are recorded whatever the decision is.
    pub(crate) fn reports(&self) -> bool {
        self.applied.iter().any(AppliedRule::reports)
    }

    pub(crate) fn clear(&mut self) {
        self.applied.clear();
        self.tenant.clear();
        self.rejected_waiting = None;
        self.suspect = None;
        self.settled_costs.clear();
        self.awaited.rules.clear();
        self.denied.clear();
        self.decisions.clear();
        self.partitions.clear();
    }

    /// When a rule that cannot read the request, lacks its key or denies everything denies it,
    /// drops every rule except those: the request is denied before anything is loaded, without a
    /// request to a store.
    pub(crate) fn keep_unreadable(&mut self) {
        if self.applied.iter().any(|applied| applied.partition().is_none()) {
            self.keep_uncounted();
        }
    }

    /// The same for a request that a rule counts nowhere.
    #[inline(never)] // few requests
    fn keep_uncounted(&mut self) {
        for is_kept in [
            |applied: &AppliedRule| applied.malformed().is_some(),
            |applied: &AppliedRule| applied.partition().is_none(),
        ] {
            if self.applied.iter().any(|applied| applied.is_binding() && is_kept(applied)) {
                if self.reports() {
                    break; // a denial by another rule still records the reported units
                }
                self.applied.retain(is_kept);
                self.partitions.clear();
                break;
            }
        }
        // An entry changes how a key is counted, and which conditions are read, not the key itself.
        if self.applied.iter().any(|applied| applied.is_binding() && applied.is_without_key()) {
            self.tenant.clear();
        }
    }

    /// The tenant of the request is unknown, so no rule can select the quotas it counts in.
    pub(crate) fn make_malformed(&mut self, why: Malformed) {
        for applied in &mut self.applied {
            if applied.malformed().is_none() {
                applied.counted_in = CountedIn::Malformed(why);
            }
            applied.due = Due::Now;
        }
        self.partitions.clear();
    }

    /// Makes room for one decision per quota of every applied rule.
    pub(crate) fn reserve_decisions(&mut self, policy: &Policy) {
        let mut count = 0_usize;
        for applied in &mut self.applied {
            applied.first_decision = count;
            count = count.saturating_add(policy.quotas(applied).len());
        }
        self.decisions.clear();
        self.decisions.resize(count, NOT_YET);
    }
}

/// True when a quota of the rule denies.
pub(crate) fn denies(applied: &AppliedRule, policy: &Policy, decisions: &[Decision]) -> bool {
    decisions_of(applied, policy, decisions).any(|decision| !decision.is_admitted())
}

/// The decision of each quota of the rule.
pub(crate) fn decisions_of<'d>(
    applied: &AppliedRule,
    policy: &Policy,
    decisions: &'d [Decision],
) -> impl Iterator<Item = &'d Decision> + use<'d> {
    let decisions = decisions.get(applied.first_decision..).unwrap_or_default();
    decisions.iter().take(policy.quotas(applied).len())
}
