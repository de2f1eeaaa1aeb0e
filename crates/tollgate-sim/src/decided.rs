//! What a node says about one request.
//!
//! Invariant: everything here is read from the plan that decided it; nothing is worked out twice.

use tollgate_core::{Decision, Span, Timestamp};
use tollgate_policy::{CompiledQuota, Outcome, Partition, Plan, Policy, QuotaSet, RuleResult};

use crate::store::Place;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on now; after [`Decided::waited`] if it stood in a line.
    Admitted,
    /// It goes on after this time: a `leaky-queue` has given it its place.
    Delayed(Span),
    /// It stands in a line, and its turn decides: [`Node::resume`](crate::Node::resume) tells.
    Waiting,
    /// It is refused.
    Denied {
        /// 429 when a quota refuses, 503 when a failure does or too many wait, 400 when the request
        /// cannot be read, or what the rule says.
        status: u16,
        /// When the same request is admitted if nobody else uses its keys; `None` when no wait
        /// helps, or none is known.
        retry_after: Option<Span>,
    },
}

impl Fate {
    /// True when the request goes on, now or after a wait that is known.
    #[must_use]
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Admitted | Self::Delayed(_))
    }
}

/// One request: when it came, and which one it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// How many requests this node was asked about before it.
    pub number: u64,
    /// When it came, by the node's clock.
    pub at: Timestamp,
    /// The status of its response if it goes on.
    pub(crate) status: u16,
}

/// What was decided about one request.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'n> {
    pub(crate) policy: &'n Policy,
    pub(crate) plan: &'n Plan,
    pub(crate) places: &'n [Place],
    pub(crate) fate: Fate,
    pub(crate) arrival: Arrival,
    pub(crate) at: Timestamp,
}

/// What one rule said about it.
#[derive(Clone, Copy, Debug)]
pub struct RuleDecided<'n> {
    /// Its index in [`Policy::rules`].
    pub rule: usize,
    /// The index of the quotas in [`Policy::quota_sets`]: its own or a tier's; beyond all of them
    /// for a tenant's own.
    pub quota_set: usize,
    /// These quotas.
    pub set: &'n QuotaSet,
    /// What came of it.
    pub result: RuleResult,
    /// What the request costs there, in quota units.
    pub cost: u64,
    /// True when a denial of it stops the request: it is enforced for this key, and does more than
    /// mark.
    pub is_binding: bool,
    /// The 64-bit keyed hash of the key that it counts by; `None` when the request has no such key.
    pub key_hash: Option<u64>,
    /// Where it counts, with the key itself.
    pub partition: Option<Partition<'n>>,
    decisions: &'n [Decision],
}

impl<'n> RuleDecided<'n> {
    /// Every quota and what it said; nothing when it was not decided.
    pub fn quotas(&self) -> impl Iterator<Item = (&'n CompiledQuota, &'n Decision)> + use<'n> {
        self.set.quotas().iter().zip(self.decisions)
    }

    /// The index in the set of the first quota that denies.
    #[must_use]
    pub fn denied_by(&self) -> Option<usize> {
        self.decisions.iter().position(|decision| !decision.is_admitted())
    }
}

impl<'n> Decided<'n> {
    /// The policy that decided it.
    #[must_use]
    pub const fn policy(&self) -> &'n Policy {
        self.policy
    }

    /// What becomes of it.
    #[must_use]
    pub const fn fate(&self) -> Fate {
        self.fate
    }

    /// The request that it is about.
    #[must_use]
    pub const fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// When it was decided, by the node's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// How long it stood in a line before.
    #[must_use]
    pub const fn waited(&self) -> Span {
        self.at.since(self.arrival.at)
    }

    /// What each rule that applied said, in the order of the document.
    pub fn rules(&self) -> impl Iterator<Item = RuleDecided<'n>> + use<'n> {
        let (plan, places, outcome) = (self.plan, self.places, self.outcome());
        outcome.decisions_after(self.waited()).map(move |said| {
            let place = said.partition.and_then(|i| places.get(i));
            RuleDecided {
                rule: said.rule,
                quota_set: said.quota_set,
                result: said.result,
                cost: said.cost,
                is_binding: said.is_binding,
                key_hash: place.map(|place| place.key_hash()),
                partition: said.partition.and_then(|i| plan.partition(i)),
                set: said.set,
                decisions: said.quotas,
            }
        })
    }

    /// Status, fields and body, as they are on a surface.
    #[must_use]
    pub fn outcome(&self) -> Outcome<'n> {
        self.plan.outcome(self.policy)
    }
}
