//! The policy document, version 1, as people write it.
//!
//! Invariant: a value of these types is valid on its own; what depends on several values (duplicate
//! names, a burst too large for its rate, a rule that can never apply) is checked by `compile`.
//! A field that is not listed here is an error, never ignored.

pub(crate) mod behaviour;
pub(crate) mod conditions;
pub(crate) mod identity;
pub(crate) mod mode;
pub(crate) mod scalar;

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Algorithm;

use crate::document::behaviour::{Action, Charging, Cost, Mode};
use crate::document::conditions::{AtMost, Conditions, NonEmpty};
use crate::document::identity::{ClientIpDoc, GeoDoc, JwtDoc, Key, Repeated};
use crate::document::scalar::{Bounded, Buckets, Burst, Limit, Name, Version, Wait, Window};
use crate::json::node::Node;
use crate::json::reader::{At, FromNode, Lenient, choice, one_of, record, schema, unknown};

/// The most items of `exempt`: a request is compared with one after the other.
const MAX_EXEMPT: usize = 1000;
/// The most tiers of a rule, for the same reason.
const MAX_TIERS: usize = 1000;

record! {
    /// A Tollgate policy.
    Document {
        /// The version of this format: 1.
        version: Version,
        /// Who the client is.
        client_ip: Option<ClientIpDoc>,
        /// Envoy: where country and system number come from.
        geo: Option<GeoDoc>,
        /// Where verified claims come from.
        jwt: Option<JwtDoc>,
        /// What several values mean of something that is read as one, where nothing else is said; "refuse" by default.
        repeated: Option<Repeated>,
        /// What is said to clients.
        response: Option<ResponseDoc>,
        /// How many requests may wait in one Envoy worker or one isolate of the Worker.
        waiting: Option<WaitingDoc>,
        /// What happens when a rule's state cannot be read or written; allow by default.
        on_failure: Option<OnFailure>,
        /// What `%2F` and `%5C` are in a path; separator by default.
        escaped_slashes: Option<EscapedSlashes>,
        /// Requests that no rule applies to.
        exempt: Option<AtMost<MAX_EXEMPT, Conditions>>,
        /// The rules; every one that matches applies.
        rules: Vec<Lenient<RuleDoc>>,
    }
}

impl Document {
    pub(crate) fn exempt(&self) -> &[Conditions] {
        self.exempt.as_ref().map_or(&[], |list| &list.0)
    }

    /// The rules that could be read, with their places.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (usize, &RuleDoc)> {
        self.rules.iter().enumerate().filter_map(|(i, rule)| Some((i, rule.0.as_ref()?)))
    }
}

record! {
    /// What is said to clients.
    ResponseDoc {
        /// The generation of header fields; draft-11 by default.
        headers: Option<HeaderGeneration>,
        /// Send the fields on allowed responses too; true by default.
        on_allow: Option<bool>,
        /// The body of a refusal; problem+json by default.
        body: Option<BodyFormat>,
        /// At most this much is added to Retry-After and to t, so that clients do not return all at once.
        jitter: Option<Wait>,
        /// Send the partition key, hashed; false by default.
        partition_key: Option<bool>,
    }
}

record! {
    /// How many requests may wait (action delay, leaky-queue) in one Envoy worker or one isolate of the Worker.
    WaitingDoc {
        /// For one key of a rule; 1000 by default. One more is refused with 429.
        per_key: Option<Bounded<1, 1_000_000>>,
        /// In all; 10000 by default. One more is refused with 503.
        total: Option<Bounded<1, 1_000_000>>,
        /// Bytes that they hold in all; 67108864 by default. What does not fit is refused with 503.
        bytes: Option<Bounded<65_536, 1_073_741_824>>,
    }
}

record! {
    /// One rule: whom it concerns, what it counts by, and its quotas.
    RuleDoc {
        /// Unique in the policy.
        name: Name,
        /// All conditions must hold; without any, every request is meant.
        when: Option<Conditions>,
        /// Requests that the rule does not apply to although `when` holds.
        unless: Option<Conditions>,
        /// What the counts are kept by; an empty list is one count for everybody.
        key: Key,
        /// What happens when a key part is not in the request; skip by default.
        on_missing: Option<OnMissing>,
        /// Layered quotas, admitted all or none.
        quotas: Vec<Lenient<QuotaDoc>>,
        /// What one request costs; 1 by default.
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
        on_failure: Option<OnFailure>,
        /// Envoy: how many keys are held; 65536 by default.
        capacity: Option<Bounded<4, 16_777_216>>,
        /// Worker: when counts are durable; strict by default.
        durability: Option<Durability>,
    }
}

impl RuleDoc {
    pub(crate) fn tiers(&self) -> &[TierDoc] {
        self.tiers.as_ref().map_or(&[], |list| &list.0)
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
        /// What clients are told it is called; the rule's name by default.
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
    }
}

choice! {
    /// What happens when state cannot be read or written.
    OnFailure ("failure mode") {
        /// The request passes.
        "allow" => Allow,
        /// The request is refused with 503.
        "deny" => Deny,
    }
}

choice! {
    /// What an escaped slash or backslash is in a path.
    EscapedSlashes ("reading") {
        /// Perhaps a slash: a rule holds if its path matches either way, an exemption only if both do.
        "separator" => Separator,
        /// A letter of its segment.
        "literal" => Literal,
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

choice! {
    /// The body of a refusal.
    BodyFormat ("body format") {
        /// Problem details (RFC 9457).
        "problem+json" => ProblemJson,
        /// One line of plain text.
        "text" => Text,
        /// Nothing.
        "none" => Empty,
    }
}

choice! {
    /// A generation of rate limit header fields.
    HeaderGeneration ("header generation") {
        /// draft-ietf-httpapi-ratelimit-headers-11.
        "draft-11" => Draft11,
        /// draft-ietf-httpapi-ratelimit-headers-07.
        "draft-7" => Draft7,
        /// draft-ietf-httpapi-ratelimit-headers-06.
        "draft-6" => Draft6,
        /// The X-RateLimit-* fields, reset in seconds.
        "x-ratelimit" => XRateLimit,
        /// None but Retry-After.
        "off" => Off,
    }
}

/// An algorithm by its name.
impl FromNode for Algorithm {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let names = Self::ALL.map(Self::name);
        let Node::Text(name) = node else { return at.wrong(node, &one_of(&names)) };
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
