//! The policy document, version 1, as people write it.
//!
//! Invariant: a value of these types is valid on its own. `compile` checks everything that depends
//! on several values: duplicate names, a burst too large for its rate, a rule that exempts all
//! requests it applies to. A field that is not listed here is an error and is never ignored. The
//! schema and the reader come from one declaration (`record!`, `choice!`).

use alloc::vec::Vec;

use tollgate_http_syntax::readings::EscapedSlashes;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_policy::spec::{
    BodyFormat, Bounded, Conditions, HeaderGeneration, KeyPart, MAX_EXEMPT, OnFailure,
};

use crate::document::client_ip::{ClientIpDoc, GeoDoc};
use crate::document::deny::{DenyRuleDoc, RuleItem};
use crate::document::jwt::JwtDoc;
use crate::document::lists::AtMost;
use crate::document::rule::RuleDoc;
use crate::document::scalar::{Version, Wait};
use crate::json::reader::{Lenient, names, record};

record! {
    /// A Tollgate policy.
    Document {
        /// The version of this format: 1.
        version: Version,
        /// The source of the client's address.
        client_ip: Option<ClientIpDoc>,
        /// Envoy: the headers with the client's country and AS number.
        geo: Option<GeoDoc>,
        /// The source of verified claims.
        jwt: Option<JwtDoc>,
        /// The key part that names the tenant of a request. An entry in a store may have other
        /// quotas for a tenant.
        tenant: Option<KeyPart>,
        /// The meaning of several values where Tollgate reads one, unless a field there sets it;
        /// "refuse" by default.
        repeated: Option<Repeated>,
        /// The fields and bodies of responses to clients.
        response: Option<ResponseDoc>,
        /// Limits on the requests that wait in one Envoy worker or one isolate of the Worker.
        waiting: Option<WaitingDoc>,
        /// The decision when a rule's state cannot be read or written; allow by default.
        on_failure: Option<OnFailure>,
        /// The meaning of `%2F` and `%5C` in a path; separator by default.
        escaped_slashes: Option<EscapedSlashes>,
        /// The case of ASCII letters in a path makes no difference; false by default.
        case_insensitive_paths: Option<bool>,
        /// Requests that no rule applies to.
        exempt: Option<AtMost<MAX_EXEMPT, Conditions>>,
        /// The rules; every rule that matches applies. A rule with `deny` denies before the others
        /// count.
        rules: Vec<Lenient<RuleItem>>,
    }
}

impl Document {
    pub(crate) fn exempt(&self) -> &[Conditions] {
        self.exempt.as_ref().map_or(&[], |list| &list.0)
    }

    /// The rules that could be read, with their indices.
    pub(crate) fn all_rules(&self) -> impl Iterator<Item = (usize, &RuleItem)> {
        self.rules.iter().enumerate().filter_map(|(i, rule)| Some((i, rule.0.as_ref()?)))
    }

    /// Those that count.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (usize, &RuleDoc)> {
        self.all_rules().filter_map(|(i, rule)| match rule {
            RuleItem::Count(rule) => Some((i, &**rule)),
            RuleItem::Deny(_) => None,
        })
    }

    /// Those that deny.
    pub(crate) fn deny_rules(&self) -> impl Iterator<Item = (usize, &DenyRuleDoc)> {
        self.all_rules().filter_map(|(i, rule)| match rule {
            RuleItem::Count(_) => None,
            RuleItem::Deny(rule) => Some((i, rule)),
        })
    }
}

/// The JSON Schema (2020-12) of a policy, as indented text with a final line break. It does not
/// contain rules that depend on several values; `compile` checks those.
#[cfg(feature = "schema")]
#[must_use]
pub fn schema() -> alloc::string::String {
    use crate::json::reader::FromNode;
    use serde_json::{Value, json};

    let mut schema = Document::schema();
    if let Value::Object(schema) = &mut schema {
        schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        schema.insert("title".into(), "Tollgate policy, version 1".into());
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.insert(
                "$schema".into(),
                json!({"type": "string", "description": "For editors; not read."}),
            );
        }
    }
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

record! {
    /// The part of responses that the policy configures.
    ResponseDoc {
        /// The generation of header fields; draft-11 by default.
        headers: Option<HeaderGeneration>,
        /// Also send RateLimit-Policy, which only the drafts have; true by default.
        policy: Option<bool>,
        /// Also send the fields on responses to allowed requests; true by default.
        on_allow: Option<bool>,
        /// The body of a denial; problem+json by default.
        body: Option<BodyFormat>,
        /// The most time that is added to Retry-After and to t, so that clients do not return all
        /// at once.
        jitter: Option<Wait>,
        /// Send the partition key, hashed; false by default.
        partition_key: Option<bool>,
    }
}

record! {
    /// Limits on the requests that wait (action delay, leaky-queue) in one Envoy worker or one
    /// isolate of the Worker.
    WaitingDoc {
        /// The most waiting requests for one key of a rule; 1000 by default. The next one is denied
        /// with 429.
        per_key: Option<Bounded<1, 1_000_000>>,
        /// The most waiting requests in all; 10000 by default. The next one is denied with 503.
        total: Option<Bounded<1, 1_000_000>>,
        /// The most bytes that all waiting requests hold; 67108864 by default. A request that does
        /// not fit is denied with 503.
        bytes: Option<Bounded<65_536, 1_073_741_824>>,
    }
}

names! {
    BodyFormat ("body format") {
        /// Problem details (RFC 9457).
        "problem+json" => ProblemJson,
        /// One line of plain text.
        "text" => Text,
        /// No body.
        "none" => Empty,
    }
}

names! {
    HeaderGeneration ("header generation") {
        /// draft-ietf-httpapi-ratelimit-headers-11.
        "draft-11" => Draft11,
        /// draft-ietf-httpapi-ratelimit-headers-07.
        "draft-7" => Draft7,
        /// draft-ietf-httpapi-ratelimit-headers-06.
        "draft-6" => Draft6,
        /// The X-RateLimit-* fields, reset in seconds.
        "x-ratelimit" => XRateLimit,
        /// Only Retry-After.
        "off" => Off,
    }
}

names! {
    EscapedSlashes ("reading") {
        /// Possibly a slash: a rule holds if any reading matches, an exemption only if all do.
        "separator" => Separator,
        /// A character of its segment.
        "literal" => Literal,
    }
}
