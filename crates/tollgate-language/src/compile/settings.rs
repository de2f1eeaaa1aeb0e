//! The settings of the whole policy, with their defaults: the sources of facts about requests, the
//! responses, and the limits on waiting requests.
//!
//! Invariant: a fact that the surface itself knows is never read from a header, which any client
//! can send.

use crate::document::client_ip::ClientIpDoc;
use crate::document::deny::RuleItem;
use crate::document::jwt::JwtDoc;
use crate::document::root::{Document, ResponseDoc, WaitingDoc};
use crate::surface::{Supply, Traits};
use tollgate_core::Span;
use tollgate_http_syntax::address::Prefixes;
use tollgate_http_syntax::path::Pattern;
use tollgate_http_syntax::readings::EscapedSlashes;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_policy::spec::{BodyFormat, Condition, HeaderGeneration, Limits, ResponseSpec};
use tollgate_policy::spec::{ClientAddress, HeaderName, Need, SettingsSpec, Source, Trust};

/// The facts that the policy reads of requests.
pub(super) fn settings(document: &Document, surface: &Traits) -> SettingsSpec {
    let client = document.client_ip.as_ref();
    let geo = document.geo.as_ref();
    // Where the surface itself knows the fact, any client could send the header.
    let named = |need| geo.filter(|_| matches!(surface.supply(need), Supply::Named(_)));
    let repeated = document.repeated.unwrap_or(Repeated::Refuse);
    SettingsSpec {
        client: client_address(client, surface.source.clone()),
        prefixes: Prefixes {
            ipv4: client.and_then(|c| c.ipv4_prefix).map_or(32, |p| p.0),
            ipv6: client.and_then(|c| c.ipv6_prefix).map_or(64, |p| p.0),
        },
        country_header: named(Need::Country).and_then(|geo| geo.country_header.clone()),
        asn_header: named(Need::Asn).and_then(|geo| geo.asn_header.clone()),
        repeated,
        token: document
            .jwt
            .as_ref()
            .filter(|_| surface.verifies_tokens)
            .map(|jwt| token(jwt, repeated)),
        escaped_slashes: document.escaped_slashes.unwrap_or(EscapedSlashes::Separator),
        case_insensitive_paths: document.case_insensitive_paths.unwrap_or(false),
    }
}

/// Writes the patterns of all conditions in lower case.
pub(super) fn lower_patterns(document: &mut Document) {
    let rules = document.rules.iter_mut().filter_map(|rule| rule.0.as_mut());
    let of_rules = rules.flat_map(RuleItem::conditions_mut);
    let exempt = document.exempt.iter_mut().flat_map(|list| &mut list.0);
    for conditions in of_rules.chain(exempt) {
        for condition in &mut conditions.0 {
            if let Condition::Paths(patterns) = condition {
                patterns.iter_mut().for_each(Pattern::lower);
            }
        }
    }
}

/// The part of responses that the policy configures, with its defaults.
pub(super) fn response(doc: Option<&ResponseDoc>) -> ResponseSpec {
    ResponseSpec {
        headers: doc.and_then(|r| r.headers).unwrap_or(HeaderGeneration::Draft11),
        policy: doc.and_then(|r| r.policy).unwrap_or(true),
        on_allow: doc.and_then(|r| r.on_allow).unwrap_or(true),
        body: doc.and_then(|r| r.body).unwrap_or(BodyFormat::ProblemJson),
        jitter: doc.and_then(|r| r.jitter).map_or(Span::ZERO, |w| w.0),
        partition_key: doc.and_then(|r| r.partition_key).unwrap_or(false),
    }
}

/// The limits on waiting requests.
pub(super) fn waiting(doc: Option<&WaitingDoc>) -> Limits {
    let most = Limits::default();
    let Some(doc) = doc else { return most };
    let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    Limits {
        per_key: doc.per_key.map_or(most.per_key, |n| number(n.0)),
        total: doc.total.map_or(most.total, |n| number(n.0)),
        bytes: doc.bytes.map_or(most.bytes, |n| number(n.0)),
    }
}

/// The header with the token, and the meaning of several tokens.
fn token(jwt: &JwtDoc, default: Repeated) -> (HeaderName, Repeated) {
    let header = jwt.header.clone().unwrap_or_else(|| HeaderName("authorization".into()));
    (header, Repeated::of_one(jwt.repeated, default))
}

/// How the client's address is found; `default` where the document names no source.
fn client_address(doc: Option<&ClientIpDoc>, default: Source) -> ClientAddress {
    let source = doc.and_then(|doc| doc.source.clone()).unwrap_or(default);
    let trust = match doc.map(|doc| (&doc.trusted_proxies, doc.trusted_hops)) {
        Some((Some(proxies), _)) => Trust::Proxies(proxies.0.clone().into()),
        Some((None, Some(hops))) => Trust::Hops(usize::try_from(hops.0).unwrap_or(1)),
        Some((None, None)) | None => Trust::NoProxy,
    };
    ClientAddress { source, trust }
}
