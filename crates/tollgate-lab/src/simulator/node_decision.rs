//! A node's decision on one request.
//!
//! Invariant: everything here is read from the plan that decided it; nothing is computed twice.

use std::borrow::Cow;

use tollgate_core::{Decision, Span, Timestamp};
use tollgate_policy::spec::JsonCost;
use tollgate_policy::{
    ActualUnits, CompiledQuota, DenyMatch, Ending, Outcome, Partition, Plan, Policy, QuotaSet,
    ResponseFacts, RuleResult,
};

use crate::simulator::store::Place;

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is sent on now; after [`NodeDecision::waited`] if it was in a queue.
    Admitted,
    /// It is sent on after this time: a `leaky-queue` has given it its place.
    Delayed(Span),
    /// It waits in a queue and is decided at its turn: see
    /// [`Node::resume`](crate::simulator::Node::resume).
    Waiting,
    /// It is denied.
    Denied {
        /// 429 when a quota denies; 403 when a deny rule does; 503 when a failure does or too many
        /// wait; 400 when the request cannot be read; or the status in the rule.
        status: u16,
        /// When the same request would be allowed if no other request used its keys; `None` when no
        /// wait helps, or none is known.
        retry_after: Option<Span>,
    },
}

impl Fate {
    /// True when the request is sent on, now or after a known wait.
    #[must_use]
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Admitted | Self::Delayed(_))
    }
}

/// The origin's response to a request that is sent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginResponse {
    /// Its status.
    pub status: u16,
    /// The number that it shows, for rules that settle their cost by the response: units, bytes of
    /// its body, or milliseconds.
    pub cost: Option<u64>,
    /// The time until its end, for rules that limit requests in flight; that of the node's origin
    /// where it is unknown.
    pub duration: Option<Span>,
}

/// A response that shows no cost.
impl From<u16> for OriginResponse {
    fn from(status: u16) -> Self {
        Self { status, cost: None, duration: None }
    }
}

impl OriginResponse {
    /// How the request ended.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        Ending::Response(self.status)
    }
}

/// Wherever a rule reads the number, it is the same.
impl ResponseFacts for OriginResponse {
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        self.cost.map(|cost| Cow::Owned(cost.to_string().into_bytes()))
    }

    fn metadata(&self, _: &[String]) -> Option<Cow<'_, [u8]>> {
        self.header("")
    }

    fn body_bytes(&self) -> Option<u64> {
        self.cost
    }

    fn duration_ms(&self) -> Option<u64> {
        self.cost
    }

    /// The sum, whatever the weights are.
    fn json(&self, _: &JsonCost) -> Option<ActualUnits> {
        self.cost.map(Ok)
    }

    fn has_ended(&self) -> bool {
        true
    }
}

/// One request: its arrival time and its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// How many requests this node received before it.
    pub number: u64,
    /// When it came, by the node's clock.
    pub at: Timestamp,
    /// Its response if it is sent on.
    pub(crate) response: OriginResponse,
}

/// The decision on one request.
#[derive(Clone, Copy, Debug)]
pub struct NodeDecision<'n> {
    pub(crate) policy: &'n Policy,
    pub(crate) plan: &'n Plan,
    pub(crate) places: &'n [Place],
    pub(crate) fate: Fate,
    pub(crate) arrival: Arrival,
    pub(crate) at: Timestamp,
}

/// One rule's decision on the request.
#[derive(Clone, Copy, Debug)]
pub struct RuleDecision<'n> {
    /// Its index in [`Policy::rules`].
    pub rule: usize,
    /// The index of the quotas in [`Policy::quota_sets`]: the rule's own or a tier's. A tenant's
    /// own quotas have an index beyond all of them.
    pub quota_set: usize,
    /// These quotas.
    pub set: &'n QuotaSet,
    /// The rule's result.
    pub result: RuleResult,
    /// The cost of the request in this rule, in quota units.
    pub cost: u64,
    /// True when a denial by this rule stops the request: the rule is enforced for this key, and
    /// does more than mark.
    pub is_binding: bool,
    /// The 64-bit keyed hash of the rule's key; `None` when the request has no such key.
    pub key_hash: Option<u64>,
    /// The partition that counts it, with the key itself.
    pub partition: Option<Partition<'n>>,
    decisions: &'n [Decision],
}

impl<'n> RuleDecision<'n> {
    /// Every quota and its decision; empty when the request was not decided.
    pub fn quotas(&self) -> impl Iterator<Item = (&'n CompiledQuota, &'n Decision)> + use<'n> {
        self.set.quotas().iter().zip(self.decisions)
    }

    /// True when it limits requests in flight.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.set.quotas().iter().any(|quota| quota.limiter().max_age().is_some())
    }

    /// The index in the set of the first quota that denies.
    #[must_use]
    pub fn denied_by(&self) -> Option<usize> {
        self.decisions.iter().position(|decision| !decision.is_admitted())
    }
}

impl<'n> NodeDecision<'n> {
    /// The policy that decided it.
    #[must_use]
    pub const fn policy(&self) -> &'n Policy {
        self.policy
    }

    /// The fate of the request.
    #[must_use]
    pub const fn fate(&self) -> Fate {
        self.fate
    }

    /// The request that was decided.
    #[must_use]
    pub const fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// When it was decided, by the node's clock.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// How long it waited in a queue before.
    #[must_use]
    pub const fn waited(&self) -> Span {
        self.at.since(self.arrival.at)
    }

    /// The decision of each rule that applied, in the order of the document.
    pub fn rules(&self) -> impl Iterator<Item = RuleDecision<'n>> + use<'n> {
        let (plan, places, outcome) = (self.plan, self.places, self.outcome());
        outcome.decisions_after(self.waited()).map(move |rule| {
            let place = rule.partition.and_then(|i| places.get(i));
            RuleDecision {
                rule: rule.rule,
                quota_set: rule.quota_set,
                result: rule.result,
                cost: rule.cost,
                is_binding: rule.is_binding,
                key_hash: place.map(|place| place.key_hash()),
                partition: rule.partition.and_then(|i| plan.partition(i)),
                set: rule.set,
                decisions: rule.quotas,
            }
        })
    }

    /// The deny rules that matched the request.
    pub fn deny_matches(&self) -> impl Iterator<Item = DenyMatch<'n>> + use<'n> {
        // Most policies have none, and an outcome takes time.
        let outcome = (!self.policy.deny_rules().is_empty()).then(|| self.outcome());
        outcome.into_iter().flat_map(|outcome| outcome.deny_matches())
    }

    /// True when a deny rule denies the request, so that no quota decides about it.
    pub(crate) fn is_denied_without_count(&self) -> bool {
        self.plan.is_denied()
    }

    /// Status, fields and body, as they are on a surface.
    #[must_use]
    pub fn outcome(&self) -> Outcome<'n> {
        self.plan.outcome(self.policy)
    }
}
