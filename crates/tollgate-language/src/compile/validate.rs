//! Errors of a document as a whole.
//!
//! Invariant: an error is a setting that could never have its effect: a rule that cannot apply, a
//! key part that this surface does not know.

use alloc::format;
use alloc::string::{String, ToString};
use core::cell::Cell;

use crate::compile::subsumption::{MAX_COMPARED, implies};
use crate::compile::{closed, combinations, fleet_rules, limit_from};
use crate::document::jwt::JwkDoc;
use crate::document::root::Document;
use crate::document::rule::RuleDoc;
use crate::document::scalar::NO_JOIN;
use crate::json::place::At;
use crate::surface::{Supply, Traits};
use tollgate_http_syntax::repeated::Repeated;
use tollgate_policy::SlabMap;
use tollgate_policy::metrics::metric_label;
use tollgate_policy::spec::{
    Action, ActualCost, Conditions, HeaderName, KeyPart, KeySource, LimitSource, MAX_KEY_PARTS,
    Need, Source, Surface, items, quoted_text,
};

/// Notes settings that can never have an effect.
pub(super) fn errors(document: &Document, surface: Surface, traits: &Traits, root: &At<'_>) {
    client_ip_errors(document, traits, root);
    let token_mode = document.jwt.as_ref().and_then(|jwt| jwt.repeated);
    if token_mode == Some(Repeated::Join) {
        root.field("jwt").field("repeated").problem(NO_JOIN.into());
    }
    let keys = document.jwt.as_ref().and_then(|jwt| jwt.keys.as_ref());
    for (i, key) in keys.iter().flat_map(|keys| &keys.0).enumerate() {
        signing_key_errors(key, &root.field("jwt").field("keys").item(i));
    }
    tenant_errors(document, traits, &root.field("tenant"));
    let exempt_at = root.field("exempt");
    for (i, conditions) in document.exempt().iter().enumerate() {
        need_errors(conditions, document, traits, &exempt_at.item(i));
    }
    let rules_at = root.field("rules");
    if surface.asks_authority() {
        fleet_rules::errors(document, &rules_at);
    }
    if traits.has_labels {
        label_errors(document, &rules_at);
    }
    for (i, rule) in document.rules() {
        let at = rules_at.item(i);
        mark_errors(rule, document, &at.field("action").field("mark").field("header"));
        key_errors(rule, document, traits, &at.field("key"));
        combinations::errors(rule, surface, traits, &at);
        closed::errors(rule, document.tenant.is_some(), &at);
        let unknown = |source: &LimitSource| missing(source.reads().need()?, document, traits);
        limit_from::errors(rule, unknown, &at);
        let has_choice = rule.key.0.iter().any(|part| part.has_alternative);
        for (j, tier) in rule.tiers().iter().enumerate() {
            let at = at.field("tiers");
            let at = at.item(j);
            if let Some(when) = &tier.when {
                need_errors(when, document, traits, &at.field("when"));
            }
            if has_choice && tier.key_values.is_some() {
                at.field("key_values").problem(CHOICE.into());
            }
        }
        let delay_at = at.field("action");
        let delay_at = delay_at.field("delay");
        priority_errors(rule, document, traits, &delay_at.field("priority"));
        settled_cost_error(rule, traits, &at.field("cost").field("actual"));
    }
    for (i, rule) in document.all_rules() {
        let at = rules_at.item(i);
        for (name, conditions) in [("when", rule.when()), ("unless", rule.unless())] {
            if let Some(conditions) = conditions {
                need_errors(conditions, document, traits, &at.field(name));
            }
        }
    }
}

/// A cost that the response shows where this surface does not look.
fn settled_cost_error(rule: &RuleDoc, surface: &Traits, at: &At<'_>) {
    let Some(settled) = rule.cost.as_ref().and_then(|doc| doc.settled.as_ref()) else { return };
    let message = match &settled.cost.actual {
        ActualCost::Metadata(_) => surface.no_response_metadata,
        ActualCost::Header(_)
        | ActualCost::BytesPer(_)
        | ActualCost::Duration
        | ActualCost::Json(_) => None,
    };
    if let Some(message) = message {
        at.problem(message.into());
    }
}

/// Priorities for all requests, or on a surface without priorities.
fn priority_errors(rule: &RuleDoc, document: &Document, surface: &Traits, at: &At<'_>) {
    let priorities = rule.priorities();
    if let (Some(message), false) = (surface.no_priority, priorities.is_empty()) {
        at.problem(message.into());
        return;
    }
    for (i, conditions) in priorities.iter().enumerate() {
        let at = at.item(i);
        if conditions.0.is_empty() {
            at.problem(
                "applies to all requests, so it has no effect; give it a condition, or leave it out"
                    .into(),
            );
        }
        need_errors(conditions, document, surface, &at);
    }
}

/// A tenant that no request has, or whose entry no store keeps.
fn tenant_errors(document: &Document, surface: &Traits, at: &At<'_>) {
    let Some(part) = &document.tenant else { return };
    if let Some(message) = surface.no_tenants {
        at.problem(message.into());
        return;
    }
    if let KeySource::PathParam(name) = &part.source
        && !document.rules().any(|(_, rule)| captures(rule, name))
    {
        let capture = quoted_text(&format!("{{{name}}}"));
        at.problem(format!("{capture} is not captured by every path of any rule"));
    }
    if let Some(message) =
        part.source.about().reads.need().and_then(|need| missing(need, document, surface))
    {
        at.problem(message.into());
    }
}

/// Two rules with the same name in the metrics, which could not be distinguished there.
fn label_errors(document: &Document, rules_at: &At<'_>) {
    let mut first: SlabMap<String, (usize, &str)> = SlabMap::new();
    for (i, rule) in document.all_rules() {
        let name = rule.name().0.as_str();
        let (earlier, other) = first.get_or_insert(metric_label(name), (i, name));
        if other != name {
            rules_at.item(i).field("name").problem(format!(
                "is {} in the metrics, as rules[{earlier}] is; use another name",
                quoted_text(&metric_label(name))
            ));
        }
    }
}

/// A mark replaces the header of the same name, so it must not have the name of a header that the
/// policy reads about a client.
fn mark_errors(rule: &RuleDoc, document: &Document, at: &At<'_>) {
    let Some(Action::Mark(mark)) = &rule.action else { return };
    let name = mark.header.0.as_str();
    let is = |header: Option<&HeaderName>| header.is_some_and(|header| header.0 == name);
    let source = document.client_ip.as_ref().and_then(|client_ip| client_ip.source.as_ref());
    let (geo, jwt) = (document.geo.as_ref(), document.jwt.as_ref());
    let mut parts = document.rules().flat_map(|(_, rule)| &rule.key.0);
    let is_header =
        |part: &KeyPart| matches!(&part.source, KeySource::Header(header, _) if is(Some(header)));
    let what = if matches!(source, Some(Source::Header(header)) if is(Some(header))) {
        "the client's address"
    } else if is(geo.and_then(|geo| geo.country_header.as_ref())) {
        "the country"
    } else if is(geo.and_then(|geo| geo.asn_header.as_ref())) {
        "the autonomous system"
    } else if is(jwt.and_then(|jwt| jwt.header.as_ref())) {
        "the token"
    } else if document.tenant.as_ref().is_some_and(is_header) {
        "the tenant"
    } else if parts.any(is_header) {
        "a part of a key"
    } else {
        return;
    };
    at.problem(format!(
        "{} is the header from which this policy reads {what}; use another name",
        quoted_text(name)
    ));
}

/// Notes the rules whose `unless` exempts every request that they apply to. Only for a document
/// that was read without problems: a value that could not be read counts as absent, and an absent
/// condition holds.
pub(super) fn unreachable(document: &Document, root: &At<'_>) {
    let rules_at = root.field("rules");
    let left = Cell::new(MAX_COMPARED);
    for (i, rule) in document.all_rules() {
        let (when, unless) = (rule.when(), rule.unless());
        if unless.is_some() && implies(when, unless, &left) {
            rules_at
                .item(i)
                .field("unless")
                .problem("holds whenever \"when\" holds, so the rule applies only to requests that can be read in several ways".into());
        }
    }
}

fn client_ip_errors(document: &Document, surface: &Traits, root: &At<'_>) {
    let Some(client_ip) = &document.client_ip else { return };
    let at = root.field("client_ip");
    if client_ip.trusted_proxies.is_some() && client_ip.trusted_hops.is_some() {
        at.field("trusted_hops")
            .problem("cannot be combined with trusted_proxies; use one of the two".into());
    }
    if let (Some(Source::CfConnectingIp), Some(message)) =
        (&client_ip.source, surface.no_cf_connecting_ip)
    {
        at.field("source").problem(message.into());
    }
}

/// The fields that each kind of signature needs: `alg`, `kty` and those of the key (RFC 7518, 3.1
/// and 6).
const SIGNATURES: [(&str, &str, &[&str]); 3] =
    [("HS256", "oct", &["k"]), ("RS256", "RSA", &["n", "e"]), ("ES256", "EC", &["crv", "x", "y"])];

/// Base64url digits of 256 bits, the least that RFC 7518, 3.2 allows an HS256 key.
const HS256_DIGITS: usize = 43;

fn signing_key_errors(key: &JwkDoc, at: &At<'_>) {
    let Some((alg, kty, fields)) = SIGNATURES.iter().find(|(alg, ..)| *alg == key.alg) else {
        let alg = quoted_text(&key.alg);
        at.field("alg").problem(format!("{alg} is not verified; use HS256, RS256 or ES256"));
        return;
    };
    if key.kty != *kty {
        let given = quoted_text(&key.kty);
        at.field("kty").problem(format!("{given} does not sign with {alg}; use \"{kty}\""));
    }
    let given = |name: &str| match name {
        "k" => key.k.is_some(),
        "n" => key.n.is_some(),
        "e" => key.e.is_some(),
        "crv" => key.crv.is_some(),
        "x" => key.x.is_some(),
        _ => key.y.is_some(),
    };
    for name in fields.iter().filter(|name| !given(name)) {
        at.field(name).problem(format!("is missing; {alg} needs it"));
    }
    if *alg == "HS256" && key.k.as_ref().is_some_and(|k| k.len() < HS256_DIGITS) {
        at.field("k").problem("is too short to be a secret; HS256 needs at least 32 bytes".into());
    }
    if let (true, Some(crv)) = (*alg == "ES256", key.crv.as_deref().filter(|crv| *crv != "P-256")) {
        at.field("crv").problem(format!("{} is not verified; use \"P-256\"", quoted_text(crv)));
    }
}

/// Notes the conditions on facts that the surface does not know.
fn need_errors(conditions: &Conditions, document: &Document, surface: &Traits, at: &At<'_>) {
    for condition in &conditions.0 {
        if let Some(message) =
            condition.reads().need().and_then(|need| missing(need, document, surface))
        {
            at.field(condition.field()).problem(message.into());
        }
    }
}

/// The problem with a document that needs this fact; `None` when the surface can obtain it.
fn missing(need: Need, document: &Document, surface: &Traits) -> Option<&'static str> {
    let (geo, jwt) = (document.geo.as_ref(), document.jwt.as_ref());
    let is_named = match need {
        Need::Route | Need::Descriptors | Need::Metadata => false,
        Need::Certificate | Need::CertificateNames | Need::Cloudflare => false,
        Need::Country => geo.is_some_and(|geo| geo.country_header.is_some()),
        Need::Asn => geo.is_some_and(|geo| geo.asn_header.is_some()),
        Need::Claims if surface.verifies_tokens => jwt.is_some_and(|jwt| jwt.keys.is_some()),
        Need::Claims => jwt.is_some_and(|jwt| jwt.metadata.is_some()),
    };
    match surface.supply(need) {
        Supply::Itself => None,
        Supply::Named(_) if is_named => None,
        Supply::Named(message) | Supply::Never(message) => Some(message),
    }
}

fn key_errors(rule: &RuleDoc, document: &Document, surface: &Traits, at: &At<'_>) {
    let mut has_address = false;
    for (i, item) in items(&rule.key.0).enumerate().take(MAX_KEY_PARTS) {
        let at = at.item(i);
        if items(&rule.key.0).take(i).any(|earlier| earlier == item) {
            at.problem(TWICE.into());
            continue;
        }
        let mut always = item.parts.iter().map(KeyPart::is_always_there);
        let unreached = always.position(|it| it).map(|last| last.saturating_add(1));
        for (j, part) in item.parts.iter().enumerate() {
            // A wider network says nothing that the narrower one does not.
            let is_second = part.is_address() && has_address;
            has_address |= part.is_address();
            let covers = |earlier: &KeyPart| {
                earlier.source == part.source
                    && (earlier.regex.is_none() || earlier.regex == part.regex)
            };
            let is_repeated = item.parts.iter().take(j).any(covers);
            let problem = match part {
                _ if is_second || is_repeated => Some(TWICE.to_string()),
                _ if unreached == Some(j) => Some(UNREACHED.to_string()),
                _ => part_problem(part, rule, document, surface),
            };
            let Some(problem) = problem else { continue };
            if item.is_choice() {
                at.field("any_of").item(j).problem(problem);
            } else {
                at.problem(problem);
            }
        }
    }
}

const CHOICE: &str = "cannot be combined with any_of, because a client could send the value in another part; use \"when\"";
const TWICE: &str = "is given twice; give it once";
const UNREACHED: &str = "is never reached, because every request has the part before; leave it out";

/// The problem with a part that no request has, or whose fact the surface does not know.
fn part_problem(
    part: &KeyPart,
    rule: &RuleDoc,
    document: &Document,
    surface: &Traits,
) -> Option<String> {
    if let KeySource::PathParam(name) = &part.source
        && !captures(rule, name)
    {
        let capture = quoted_text(&format!("{{{name}}}"));
        return Some(format!("{capture} is not captured by every path of this rule"));
    }
    let need = part.source.about().reads.need()?;
    missing(need, document, surface).map(ToString::to_string)
}

fn captures(rule: &RuleDoc, name: &str) -> bool {
    let paths = rule.when.as_ref().and_then(Conditions::paths);
    paths.is_some_and(|paths| {
        paths.iter().all(|path| path.captures().any(|captured| captured == name))
    })
}
