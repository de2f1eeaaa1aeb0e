//! One rule of the document, with its tiers and quotas.
//!
//! Invariant: a value of these types is valid on its own; `compile` checks everything that depends
//! on several.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Algorithm;

use crate::document::action::Action;
use crate::document::charging::Charging;
use crate::document::conditions::Conditions;
use crate::document::cost::Cost;
use crate::document::key::Key;
use crate::document::lists::{AtMost, NonEmpty};
use crate::document::mode::Mode;
use crate::document::on_failure::WithoutState;
use crate::document::scalar::{Bounded, Buckets, Burst, Limit, Name, Window};
use crate::document::scope::{Lease, Scope};
use crate::json::reader::{Lenient, choice, record};
use tollgate_http_syntax::repeated::Repeated;

/// The most tiers of a rule: a request is compared with each in turn.
pub(crate) const MAX_TIERS: usize = 1000;
/// The most shards of a key. Each shard holds at most two leases at a time, and as many that are
/// ending. All shards together hold half of the leases that a key can have.
pub(crate) const MAX_SHARDS: u32 = 32;

record! {
    /// One rule: the requests it applies to, the key it counts by, and its quotas.
    RuleDoc {
        /// Unique in the policy.
        name: Name,
        /// All conditions must hold; without any, every request is meant.
        when: Option<Conditions>,
        /// Requests that the rule does not apply to although `when` holds.
        unless: Option<Conditions>,
        /// The parts of the key; an empty list is one count for all requests.
        key: Key,
        /// What happens when a key part is not in the request; skip by default.
        on_missing: Option<OnMissing>,
        /// Layered quotas, admitted all or none.
        quotas: Vec<Lenient<QuotaDoc>>,
        /// What one request costs, or "reported": what a descriptor reports; 1 by default.
        cost: Option<Cost>,
        /// When a request is charged; "request" by default.
        charge: Option<Charging>,
        /// Other quotas for some keys: the first by priority that matches.
        tiers: Option<AtMost<MAX_TIERS, TierDoc>>,
        /// How far the rule is enforced; "enforce" by default.
        mode: Option<Mode>,
        /// What happens to a request over the limit; "deny" by default.
        action: Option<Action>,
        /// What happens when this rule's state cannot be read or written.
        on_failure: Option<WithoutState>,
        /// Whose count it is; "local" by default.
        scope: Option<Lenient<Scope>>,
        /// Scope "fleet": the longest life of a lease; 2s by default, 0 asks for every request.
        lease: Option<Lease>,
        /// Envoy: how many keys are held; 65536 by default.
        capacity: Option<Bounded<4, 16_777_216>>,
        /// Worker: when counts are durable; strict by default.
        durability: Option<Durability>,
        /// Worker: over how many objects the requests of one key are spread; not at all by default.
        shards: Option<Bounded<2, MAX_SHARDS>>,
    }
}

impl RuleDoc {
    pub(crate) fn tiers(&self) -> &[TierDoc] {
        self.tiers.as_ref().map_or(&[], |list| &list.0)
    }

    /// The priorities of waiting requests.
    pub(crate) fn priorities(&self) -> &[Conditions] {
        match &self.action {
            Some(Action::Delay(delay)) => &delay.priority,
            _ => &[],
        }
    }

    /// The scope of the rule's count; `Local` when the scope could not be read.
    pub(crate) fn scope(&self) -> Scope {
        self.scope.as_ref().and_then(|scope| scope.0).unwrap_or(Scope::Local)
    }

    /// The quotas that could be read, of the rule and its tiers.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = &QuotaDoc> {
        let of_tiers = self.tiers().iter().flat_map(|tier| &tier.quotas);
        self.quotas.iter().chain(of_tiers).filter_map(|quota| quota.0.as_ref())
    }
}

record! {
    /// Quotas for some keys, in place of the rule's own.
    TierDoc {
        /// Unique in the rule.
        name: Name,
        /// The highest goes first; 0 by default.
        priority: Option<Bounded<0, 1_000_000>>,
        /// The tier is for requests with these conditions.
        when: Option<Conditions>,
        /// What several values mean of a header or query parameter in `when`.
        repeated: Option<Repeated>,
        /// The tier is for keys of which one part has one of these values.
        key_values: Option<NonEmpty<String>>,
        /// The quotas.
        quotas: Vec<Lenient<QuotaDoc>>,
    }
}

record! {
    /// One quota.
    QuotaDoc {
        /// The name in responses; the rule's name by default.
        name: Option<Lenient<Name>>,
        /// Quota units per window.
        limit: Lenient<Limit>,
        /// The window.
        window: Lenient<Window>,
        /// Quota units admitted at once when idle; the limit by default.
        burst: Option<Burst>,
        /// How it is counted; gcra by default.
        algorithm: Option<Algorithm>,
        /// Held more strictly: see the algorithms.
        strict: Option<bool>,
        /// The parts of a sliding-buckets window; 60 by default.
        buckets: Option<Buckets>,
        /// The oldest part counts by what of it the window still covers; false by default.
        weighted: Option<bool>,
    }
}

impl QuotaDoc {
    /// True when its units are places in a queue.
    pub(crate) fn is_queue(&self) -> bool {
        self.algorithm == Some(Algorithm::LeakyQueue)
    }
}

choice! {
    /// What happens when a key part is not in the request.
    OnMissing ("missing mode") {
        /// The rule does not apply.
        "skip" => Skip,
        /// The request is refused.
        "deny" => Deny,
        /// All such requests share one count.
        "shared" => Shared,
    }
}

choice! {
    /// When a count is durable.
    Durability ("durability") {
        /// Before the answer leaves.
        "strict" => Strict,
        /// 50 ms after it, with what came meanwhile.
        "relaxed" => Relaxed,
    }
}
