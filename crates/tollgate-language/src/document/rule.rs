//! One rule of the document, with its tiers and quotas.
//!
//! Invariant: a value of these types is valid on its own; `compile` checks everything that depends
//! on several. Only the core lists the algorithms and their names.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Weekday};
use tollgate_http_syntax::repeated::Repeated;
use tollgate_policy::spec::{
    Action, Bounded, Charging, Conditions, MAX_SHARDS, MAX_TIERS, Mode, Name, OnMissing, Scope,
    Share,
};

use crate::document::calendar::{Align, AnchorDay, UtcOffset};
use crate::document::concurrency::ConcurrencyDoc;
use crate::document::cost::CostDoc;
use crate::document::key::KeyDoc;
use crate::document::limit_from::LimitFromDoc;
use crate::document::lists::{AtMost, NonEmpty};
use crate::document::penalty::PenaltyDoc;
use crate::document::scalar::{Buckets, Burst, Limit, Salt, Window};
use crate::document::scope::{Lease, WithoutState};
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, Lenient, choice, names, record, schema};
use crate::json::suggest::{one_of, unknown};

record! {
    /// One rule: the requests it applies to, the key it counts by, and its quotas.
    RuleDoc {
        /// The rule's name, unique in the policy.
        name: Name,
        /// Conditions that must all hold; without conditions the rule applies to every request.
        when: Option<Conditions>,
        /// Conditions that exclude a request when all of them hold, even if `when` holds.
        unless: Option<Conditions>,
        /// The key's parts, in order; an empty list is one count for all requests.
        key: KeyDoc,
        /// The behaviour when the request lacks a key part; skip by default.
        on_missing: Option<OnMissing>,
        /// Layered quotas. A request must fit all of them and is charged to all or none.
        quotas: Option<Vec<Lenient<QuotaDoc>>>,
        /// The number of requests of a key that may be in flight at the same time; with or without
        /// quotas.
        concurrency: Option<Lenient<ConcurrencyDoc>>,
        /// The cost of one request in quota units, or "reported" for the hits that a descriptor
        /// reports, or an estimate that the response settles; 1 by default.
        cost: Option<CostDoc>,
        /// The event that charges a request; "request" by default.
        charge: Option<Charging>,
        /// Other quotas for some requests; the matching tier with the highest priority applies.
        tiers: Option<AtMost<MAX_TIERS, TierDoc>>,
        /// The keys for which the rule is enforced; "enforce" by default.
        mode: Option<Mode>,
        /// The action for a request over the limit; "deny" by default.
        action: Option<Action>,
        /// The decision when this rule's state cannot be read or written; the document's by
        /// default.
        on_failure: Option<WithoutState>,
        /// The place where the count is kept: each node, or one place for the whole fleet; "local"
        /// by default.
        scope: Option<Lenient<Scope>>,
        /// Scope "fleet": the longest time for which a node holds leased units; 2s by default. With
        /// 0 the node sends a request to the authority for each decision.
        lease: Option<Lease>,
        /// Envoy: the number of keys that the rule's table holds; 65536 by default.
        capacity: Option<Bounded<4, 16_777_216>>,
        /// Worker: the time when counts become durable; strict by default.
        durability: Option<Durability>,
        /// Worker: the number of objects that the requests of one key are distributed over; none by
        /// default.
        shards: Option<Bounded<2, MAX_SHARDS>>,
    }
}

impl RuleDoc {
    pub(crate) fn tiers(&self) -> &[TierDoc] {
        self.tiers.as_ref().map_or(&[], |list| &list.0)
    }

    /// False for a rule that limits requests in flight alone.
    pub(crate) const fn has_quotas(&self) -> bool {
        self.quotas.is_some() || self.concurrency.is_none()
    }

    /// The priorities of waiting requests.
    pub(crate) fn priorities(&self) -> &[Conditions] {
        match &self.action {
            Some(Action::Delay(delay)) => &delay.priority,
            Some(Action::Deny(_) | Action::Mark(_) | Action::Respond(_)) | None => &[],
        }
    }

    /// When a request is charged.
    pub(crate) fn charging(&self) -> Charging {
        let by_cost = || self.cost.as_ref().and_then(CostDoc::charging);
        self.charge.clone().or_else(by_cost).unwrap_or(Charging::Request)
    }

    /// The scope of the rule's count; `Local` when the scope could not be read.
    pub(crate) fn scope(&self) -> Scope {
        self.scope.as_ref().and_then(|scope| scope.0).unwrap_or(Scope::Local)
    }

    /// The quotas that could be read, of the rule and its tiers.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = &QuotaDoc> {
        let of_tiers = self.tiers().iter().flat_map(|tier| &tier.quotas);
        self.quotas.iter().chain(of_tiers).flatten().filter_map(|quota| quota.0.as_ref())
    }
}

record! {
    /// Quotas for some requests, instead of the rule's own.
    TierDoc {
        /// The tier's name, unique in the rule.
        name: Name,
        /// The priority among matching tiers: the highest applies; 0 by default.
        priority: Option<Bounded<0, 1_000_000>>,
        /// Conditions on the request that must hold for the tier.
        when: Option<Conditions>,
        /// The meaning of several values of a header or query parameter in `when`.
        repeated: Option<Repeated>,
        /// The key values that the tier applies to: one part of the key must have one of them.
        key_values: Option<NonEmpty<String>>,
        /// The tier's quotas.
        quotas: Option<Vec<Lenient<QuotaDoc>>>,
        /// The number of requests in flight at the same time; the rule's own by default.
        concurrency: Option<Lenient<ConcurrencyDoc>>,
    }
}

record! {
    /// One quota.
    QuotaDoc {
        /// The quota's name in responses; the rule's name by default.
        name: Option<Lenient<Name>>,
        /// The limit, in quota units per window; 0 denies every request, and is the only quota.
        limit: Lenient<Limit>,
        /// The length of the window; optional with the limit 0.
        window: Option<Lenient<Window>>,
        /// Quota units allowed at once when idle; the limit by default.
        burst: Option<Burst>,
        /// The algorithm that counts; gcra by default.
        algorithm: Option<Algorithm>,
        /// Enforce the stricter bound of the algorithm; false by default.
        strict: Option<bool>,
        /// The number of parts of a sliding-buckets window; 60 by default.
        buckets: Option<Buckets>,
        /// For sliding-buckets: count the oldest part in proportion to its overlap with the window;
        /// false by default.
        weighted: Option<bool>,
        /// For fixed-window: the windows of a calendar, by the wall clock. The window is then 1h,
        /// 1d, 1w or 1mo.
        align: Option<Align>,
        /// With a calendar: the distance of its clock from UTC, such as +02:00; UTC by default.
        utc_offset: Option<UtcOffset>,
        /// With a calendar and a week: the day on which it starts; monday by default.
        week_start: Option<Weekday>,
        /// With a calendar and a month: the day on which it starts, in a month without it the last;
        /// 1 by default.
        anchor_day: Option<AnchorDay>,
        /// The time for which a key is denied once this quota has denied it, or one time for each
        /// step; none by default.
        penalty: Option<PenaltyDoc>,
        /// Where a request has a limit of its own, and the highest one; a request without one has
        /// `limit`.
        limit_from: Option<Lenient<LimitFromDoc>>,
    }
}

impl QuotaDoc {
    /// True when it denies every request. Where requests have limits of their own, 0 is for those
    /// that have none.
    pub(crate) fn is_closed(&self) -> bool {
        self.limit.0.is_some_and(|limit| limit.0 == 0) && self.limit_from.is_none()
    }

    /// True when its units are places in a queue.
    pub(crate) fn is_queue(&self) -> bool {
        self.algorithm == Some(Algorithm::LeakyQueue)
    }

    /// True when its windows are those of a calendar.
    pub(crate) const fn is_by_calendar(&self) -> bool {
        self.align.is_some()
    }
}

names! {
    OnMissing ("missing mode") {
        /// The rule does not apply.
        "skip" => Skip,
        /// The request is denied.
        "deny" => Deny,
        /// All requests without the part share one count.
        "shared" => Shared,
    }
}

choice! {
    /// The time when a count becomes durable.
    Durability ("durability") {
        /// Before the response is sent.
        "strict" => Strict,
        /// 50 ms after the first unwritten count, together with the counts since then.
        "relaxed" => Relaxed,
    }
}

impl FromNode for Algorithm {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let names = Self::ALL.map(Self::name);
        let Node::Text(name) = node else { return at.not_text(node, &one_of(&names)) };
        let algorithm = Self::parse(name);
        if algorithm.is_none() {
            at.problem(unknown("algorithm", name, &names));
        }
        algorithm
    }

    schema!({"oneOf": Self::ALL.map(|algorithm| {
        serde_json::json!({"const": algorithm.name(), "description": alloc::format!("{}.", algorithm.title())})
    })});
}

record! {
    /// Enforcement for a percentage of the keys.
    PercentDoc {
        /// The percentage of keys for which the rule is enforced; the same keys every time.
        enforce_percent: Bounded<0, 100>,
        /// A secret that selects the keys, the same keys on every surface. Keep it secret. By
        /// default a secret of the surface selects the keys.
        salt: Option<Salt>,
    }
}

impl FromNode for Mode {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "enforce" => Some(Self::Enforce),
            Node::Text(text) if text == "shadow" => Some(Self::Shadow),
            Node::Object(_) => {
                let doc = PercentDoc::read(node, at)?;
                let hash_key = doc.salt.map(|salt| salt.hash_key());
                Some(Self::EnforcePercent(Share { percent: doc.enforce_percent.0, hash_key }))
            }
            _ => at
                .not_text(node, "a mode; use \"enforce\", \"shadow\" or {\"enforce_percent\": 10}"),
        }
    }

    schema!({"anyOf": [{"enum": ["enforce", "shadow"]}, PercentDoc::schema()]});
}
