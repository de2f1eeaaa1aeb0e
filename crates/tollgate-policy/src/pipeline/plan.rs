//! One request on its way: which rules apply, what they cost, and what was loaded.
//!
//! Invariant: a plan holds no reference to the request, so a surface may keep it across I/O; it is
//! reused from request to request and allocates nothing once its buffers have grown. How it is
//! filled is in `apply`, how it is decided in `decide`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::document::on_failure::OnFailure;
use crate::http::malformed::Malformed;
use crate::pipeline::partitions::Partitions;
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::policy::tenant::Tenant;
use crate::request::lazy::Buffers;

/// Bytes of a buffer that a plan may keep: usual requests fit, and many plans with it are small.
const MAX_KEPT: usize = 4096;

/// Why a request may not wait, and after which time it may be worth coming back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// What is ahead of it cannot be over before its deadline.
    Late(Span),
    /// Too many wait for this key.
    Key(Span),
    /// Too many wait in this worker, or they hold too much.
    Worker(Span),
}

/// What stands in the place of a decision before there is one.
pub(crate) const NOT_YET: Decision = Decision {
    verdict: Verdict::Allow,
    limit: 0,
    remaining: 0,
    retry_after: None,
    reset_after: Span::ZERO,
};

/// The plan of one request; see the crate's documentation for the order of calls. It is `Send` and
/// `Sync`, and so is its [`Outcome`](crate::Outcome).
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) applied: Vec<AppliedRule>,
    pub(crate) partitions: Partitions,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) candidates: Vec<u16>,
    pub(crate) buffers: Buffers,
    /// The tenant that the request is of; empty for none.
    pub(crate) tenant: Vec<u8>,
    /// Why it may not wait, when it would have to.
    pub(crate) rejected_waiting: Option<Full>,
    /// What was known of operators' relief before anything was asked; see
    /// [`Denials`](crate::Denials).
    pub(crate) asked_under: Option<u64>,
    /// The partition whose denial refused others before it: it is no longer believed, and this
    /// request asks whether it still stands.
    pub(crate) suspect: Option<usize>,
}

/// A service shares its policy between threads, and keeps a plan and its outcome across an await.
const _: fn() = || {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Policy>();
    is_shared::<Plan>();
};

/// A rule that applies to the request.
#[derive(Clone, Debug)]
pub(crate) struct AppliedRule {
    pub(crate) rule: u16,
    pub(crate) set: AppliedSet,
    /// The priority of the tenant's entry that chose these quotas, if one did.
    pub(crate) by_entry: Option<u32>,
    pub(crate) cost: u64,
    /// `None` when a key part is missing and the rule refuses such requests, or when it is
    /// malformed.
    pub(crate) partition: Option<usize>,
    /// Why the rule cannot read the request: nothing is charged, and a binding rule refuses it.
    pub(crate) malformed: Option<Malformed>,
    /// Where its decisions begin, one per quota.
    pub(crate) first_decision: usize,
    /// The rule is enforced for this key; in shadow mode the result is counted but not enforced.
    pub(crate) enforced: bool,
    /// A denial of this rule stops the request: it is enforced, and does more than mark.
    pub(crate) binding: bool,
    pub(crate) due: Due,
    /// Its priority among those that wait for the same: 0 goes first.
    pub(crate) rank: u8,
    /// Where its states lie in a long value, once they were [located](crate::pipeline::located).
    pub(crate) located: Option<NonZeroU32>,
    /// This request's cost is in the partition's value, since then.
    pub(crate) charged: Option<Timestamp>,
    /// It would have to wait for this rule and may not.
    pub(crate) rejected_waiting: bool,
    /// An operator blocked its key until then, by the clock of its store.
    pub(crate) blocked_until: Option<Timestamp>,
    /// What it says is of a lease: what is left is what this node holds.
    pub(crate) is_leased: bool,
    /// Its count was not asked: another rule's, which was remembered, refuses the request.
    pub(crate) is_unasked: bool,
}

/// Whose quotas a rule counts a request in.
#[derive(Clone, Debug)]
pub(crate) enum AppliedSet {
    /// Those of the policy with this index: the rule's own or a tier's.
    OfPolicy(u16),
    /// Those of the request's tenant with this index, which stand in no policy.
    OfTenant(Arc<Tenant>, u16),
    /// Those that its record is of, in the place of one of the above.
    Recorded(Arc<OfRecord>),
}

/// Quotas in the place of those that a rule counts in by its policy or tenant: a later policy's,
/// whose record was found, or the same ones in a value that has such records.
#[derive(Clone, Debug)]
pub(crate) struct OfRecord {
    pub(crate) own: AppliedSet,
    pub(crate) set: QuotaSet,
}

/// When a rule charges a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// When it is decided.
    Now,
    /// When it is decided; the response may bring it back.
    Held,
    /// When the response is known; until then it is only looked at.
    Later,
    /// Never: what was charged is taken back when it is decided the next time.
    GivenBack,
    /// Never: what was held is used, and its quotas are to know.
    Used,
    /// It was used already: the cost is recorded when it is decided, whatever this rule or another
    /// one says, and never taken back. What is decided is whether one unit would have fitted
    /// before; with a cost of 0 that is all.
    Reported,
}

impl Due {
    /// True when nothing is decided: the response said what becomes of what was charged.
    pub(crate) const fn is_settled(self) -> bool {
        match self {
            Self::GivenBack | Self::Used => true,
            Self::Now | Self::Held | Self::Later | Self::Reported => false,
        }
    }
}

impl AppliedRule {
    /// True when the request lacks a part of its key, which it refuses such requests for.
    const fn is_without_key(&self) -> bool {
        self.partition.is_none() && self.malformed.is_none()
    }

    /// True when it is charged when it is admitted.
    pub(crate) const fn is_charged_now(&self) -> bool {
        matches!(self.due, Due::Now | Due::Held)
    }

    /// True when units were used that are to be recorded whatever is decided.
    pub(crate) fn reports(&self) -> bool {
        self.due == Due::Reported && self.cost > 0
    }

    /// The cost that is decided on.
    pub(crate) fn decided_cost(&self) -> u64 {
        if self.due == Due::Reported { 1 } else { self.cost }
    }

    /// True when partition `i` is where it counts.
    pub(crate) fn counts_in(&self, i: usize) -> bool {
        self.partition == Some(i)
    }
}

impl Policy {
    /// What a rule that this policy planned counts in, whoever's it is. `None` only for a plan of
    /// another policy.
    pub(crate) fn applied_set<'a>(&'a self, applied: &'a AppliedRule) -> Option<&'a QuotaSet> {
        self.set_of(&applied.set)
    }

    pub(crate) fn set_of<'a>(&'a self, set: &'a AppliedSet) -> Option<&'a QuotaSet> {
        let set = match set {
            AppliedSet::OfPolicy(index) => self.sets.get(usize::from(*index)),
            AppliedSet::OfTenant(tenant, index) => tenant.sets.get(usize::from(*index)),
            AppliedSet::Recorded(of) => Some(&of.set),
        };
        debug_assert!(set.is_some(), "a plan goes with the policy that made it");
        set
    }

    /// The identity of the quotas that a rule counts in by this policy, whoever wrote the record:
    /// what a line of waiting requests is known by.
    pub(crate) fn line_of(&self, applied: &AppliedRule) -> Option<u32> {
        let own = match &applied.set {
            AppliedSet::Recorded(of) => self.set_of(&of.own),
            own => self.set_of(own),
        };
        own.map(|set| set.record_id)
    }

    /// The index of these quotas in [`Policy::quota_sets`]; that of a tenant's is beyond them all.
    pub(crate) fn index_of(&self, set: &AppliedSet) -> usize {
        match set {
            AppliedSet::OfPolicy(index) => usize::from(*index),
            AppliedSet::OfTenant(..) => self.sets.len(),
            AppliedSet::Recorded(of) => self.index_of(&of.own),
        }
    }

    /// True when a quota of a rule that this policy planned keeps what it holds apart.
    pub(crate) fn keeps_holds(&self, applied: &AppliedRule) -> bool {
        self.quotas(applied).iter().any(|quota| quota.limiter.keeps_holds())
    }

    /// The quotas of a rule that this policy planned.
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

    /// True when no rule applies: the request passes and nothing is added to the response.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty()
    }

    /// True when a rule that applies charges by the response, or gives back what it holds: keep the
    /// plan and [`Plan::settle`] it then.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.applied.iter().any(|applied| match applied.due {
            Due::Later => true,
            Due::Held => applied.charged.is_some(),
            Due::Now | Due::GivenBack | Due::Used | Due::Reported => false,
        })
    }

    /// True when a rule that applies is reported units that were used already
    /// (`"cost": "reported"`): they are recorded whatever is decided, so decide the plan once, and
    /// let nothing wait.
    #[must_use]
    pub fn reports(&self) -> bool {
        self.applied.iter().any(AppliedRule::reports)
    }

    /// The tenant that the request is of, as its canonical bytes, when a rule applies to it: ask
    /// the store for its entry, and where there is one plan again with
    /// [`Policy::plan_for`]. They hold what the client sent: hash them, never log them.
    #[must_use]
    pub fn tenant(&self) -> Option<&[u8]> {
        (!self.tenant.is_empty()).then_some(&*self.tenant)
    }

    /// True when a rule that applies refuses where its state cannot be read: so it does where
    /// nobody knows the tenant's quotas.
    #[must_use]
    pub fn fails_closed(&self, policy: &Policy) -> bool {
        self.applied.iter().filter(|applied| applied.binding).any(|applied| {
            let rule = policy.rules.get(usize::from(applied.rule));
            rule.is_some_and(|rule| rule.on_failure == OnFailure::Deny)
        })
    }

    /// Forgets the request, with the buffers that its length made grow: for a plan that is kept for
    /// another one.
    pub fn forget_long(&mut self) {
        self.clear();
        for buffer in self.buffers.all().chain([&mut self.partitions.keys, &mut self.tenant]) {
            if buffer.capacity() > MAX_KEPT {
                *buffer = Vec::new();
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.applied.clear();
        self.tenant.clear();
        self.rejected_waiting = None;
        self.suspect = None;
        self.decisions.clear();
        self.partitions.clear();
    }

    /// Forgets every rule but those that cannot read the request, or whose key it lacks, when one
    /// of them refuses it: it is refused before anything is loaded, and no store is asked for what
    /// is known.
    pub(crate) fn keep_unreadable(&mut self) {
        for is_kept in [
            |applied: &AppliedRule| applied.malformed.is_some(),
            |applied: &AppliedRule| applied.partition.is_none(),
        ] {
            if self.applied.iter().any(|applied| applied.binding && is_kept(applied)) {
                if self.reports() {
                    break; // a refusal by another rule records what was used all the same
                }
                self.applied.retain(is_kept);
                self.partitions.clear();
                break;
            }
        }
        // An entry changes how a key is counted, and which conditions are read, not what a key is.
        if self.applied.iter().any(|applied| applied.binding && applied.is_without_key()) {
            self.tenant.clear();
        }
    }

    /// Nobody can say whose request it is: so no rule can say which quotas it counts in.
    pub(crate) fn make_malformed(&mut self, why: Malformed) {
        for applied in &mut self.applied {
            applied.malformed.get_or_insert(why);
            applied.partition = None;
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
    let decisions = decisions.get(applied.first_decision..).unwrap_or_default();
    decisions.iter().take(policy.quotas(applied).len()).any(|decision| !decision.is_admitted())
}
