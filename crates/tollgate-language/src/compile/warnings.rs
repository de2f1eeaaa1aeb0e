//! Warnings: settings that are legal and take effect, but are hardly intended.
//!
//! Invariant: a warning is never a guess about taste; each names the effect on requests.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;

use tollgate_core::{Algorithm, Limiter};
use tollgate_http_syntax::address::{percent_of_ipv4, percent_of_ipv6};
use tollgate_http_syntax::path::lower;
use tollgate_http_syntax::sort::sort_by;
use tollgate_http_syntax::values::trimmed;
use tollgate_policy::SlabMap;
use tollgate_policy::spec::{
    Action, Charging, ClientAddress, Condition, Conditions, Cost, Ending, KeyForm, KeyPart,
    KeySource, Matcher, Mode, Origin, PolicySpec, QuotaSpec, RuleSpec, Scope, SetSpec, Source,
    Trust, quoted_text,
};

use crate::compile::subsumption::{implies, implies_values};
use crate::compile::{costs, limit_from, penalty, regexes};
use crate::document::deny::{DenyRuleDoc, RuleItem};
use crate::document::key::KeyDoc;
use crate::document::root::Document;
use crate::document::rule::{QuotaDoc, RuleDoc, TierDoc};
use crate::json::place::At;
use crate::surface::Traits;

/// Above this a log takes more than 2 KiB per key.
const LARGE_LOG: u64 = 256;

/// Notes the settings of a document that are legal but hardly intended.
pub(super) fn of_document(document: &Document, traits: &Traits, left: &Cell<usize>, root: &At<'_>) {
    tenant_warning(document, &root.field("tenant"));
    regexes::warnings(document, root);
    if document.rules.is_empty() {
        root.field("rules").problem("is empty: nothing is limited".into());
    }
    for (i, exempt) in document.exempt().iter().enumerate() {
        white_space_of_conditions(exempt, &root.field("exempt").item(i));
    }
    let rules_at = root.field("rules");
    for (i, rule) in document.rules() {
        let at = rules_at.item(i);
        if traits.has_objects {
            few_objects_warning(rule, &at.field("key"));
        }
        if traits.is_one_node && matches!(rule.scope(), Scope::Share(2..)) {
            at.field("scope").problem(
                "divides a limit that is one count for all clients here; use \"fleet\", which does not divide it".into(),
            );
        }
        guess_warning(rule, &at.field("charge"));
        estimate_warning(rule, &at.field("cost").field("estimate"));
        penalty::warnings(rule, &at);
        limit_from::warnings(rule, &at);
        costs::warnings(rule, traits, &at.field("cost"));
        if let Some(message) = traits.ends_reported.filter(|_| rule.concurrency.is_some()) {
            at.field("concurrency").problem(message.into());
        }
        tier_warnings(rule, left, &at.field("tiers"));
        values_of_rule(rule, document.case_insensitive_paths == Some(true), &at);
    }
    for (i, rule) in document.all_rules() {
        let at = rules_at.item(i);
        exempt_warning(document, rule.when(), left, &at);
        deny_warning(document, (i, rule), left, &at);
        for (name, conditions) in [("when", rule.when()), ("unless", rule.unless())] {
            if let Some(conditions) = conditions {
                white_space_of_conditions(conditions, &at.field(name));
            }
        }
    }
}

/// Notes the combinations of settings that are legal but hardly intended.
pub(super) fn of_spec(spec: &PolicySpec, left: &Cell<usize>, root: &At<'_>) {
    client_ip_warnings(&spec.settings.client, root);
    trust_warnings(&spec.settings.client, root);
    let rules_at = root.field("rules");
    for (i, rule) in spec.rules.iter().enumerate() {
        let at = rules_at.item(spec.place_of(i));
        let tiers_at = at.field("tiers");
        set_warnings(rule, &rule.set, &at, &at.field("quotas"));
        for (j, tier) in rule.tiers.iter().enumerate() {
            set_warnings(rule, &tier.set, &at, &tiers_at.item(j).field("quotas"));
        }
    }
    name_warnings(spec, left, &rules_at);
}

fn client_ip_warnings(client: &ClientAddress, root: &At<'_>) {
    if ignores_its_header(client) {
        root.field("client_ip").problem(
            "trusts no proxy, so the header is ignored and the peer of the connection counts as the client; \
             give trusted_proxies or trusted_hops"
                .into(),
        );
    }
    // A header with one address has no list in which hops could be counted.
    if let (Source::Header(_), Trust::Hops(_)) = (&client.source, &client.trust) {
        root.field("client_ip")
            .problem("trusts the header from any sender; give trusted_proxies".into());
    }
}

/// True when the policy names a header as the source but trusts no proxy to write it.
fn ignores_its_header(client: &ClientAddress) -> bool {
    client.trust == Trust::NoProxy
        && !matches!(client.source, Source::Connection | Source::CfConnectingIp)
}

/// A client that sends its own tenant can choose the highest limits.
fn tenant_warning(document: &Document, at: &At<'_>) {
    let sent = |part: &KeyPart| part.source.about().origin == Origin::Client;
    if document.tenant.as_ref().is_some_and(sent) {
        at.problem(
            "is sent by the client, which can choose the limits of any tenant, and each invented name costs a look-up in the \
             store; use a verified claim, or a value that only your proxy sets"
                .into(),
        );
    }
}

/// From this share on, networks are assumed to contain clients, too: no proxies have one in eight
/// of all addresses.
const MANY: u8 = 12;

/// A policy that trusts (nearly) all addresses trusts the values that clients write.
fn trust_warnings(client: &ClientAddress, root: &At<'_>) {
    let Trust::Proxies(trusted) = &client.trust else { return };
    for (family, share) in [("IPv4", percent_of_ipv4(trusted)), ("IPv6", percent_of_ipv6(trusted))]
    {
        if share >= MANY {
            root.field("client_ip").field("trusted_proxies").problem(format!(
                "trusts {share} % of all {family} addresses, so clients can forge their address; give only the networks \
                 of your proxies"
            ));
        }
    }
}

/// A key is an object, and an object serves requests one at a time.
fn few_objects_warning(rule: &RuleDoc, at: &At<'_>) {
    let is_spread = rule.shards.is_some() || rule.quotas().all(QuotaDoc::is_closed);
    if !is_spread && rule.key.0.iter().all(|part| part.source.about().has_few_values) {
        let which =
            if rule.key.0.is_empty() { "one Durable Object" } else { "a few Durable Objects" };
        at.problem(format!(
            "sends every request of this rule to {which}, each of which serves about 1000 requests per second; add a \
             part such as \"client_ip\", give the rule \"shards\", or let it apply to fewer requests"
        ));
    }
}

fn exempt_warning(document: &Document, when: Option<&Conditions>, left: &Cell<usize>, at: &At<'_>) {
    let mut exempts = document.exempt().iter().take_while(|_| left.get() > 0);
    if let Some(i) = exempts.position(|exempt| implies(when, Some(exempt), left)) {
        at.problem(format!(
            "applies only to requests that can be read in several ways; exempt[{i}] exempts all others"
        ));
    }
}

/// A rule that denies every request, and a rule that gets no request because another one denies
/// them all.
fn deny_warning(
    document: &Document,
    (i, rule): (usize, &RuleItem),
    left: &Cell<usize>,
    at: &At<'_>,
) {
    let hides = |(j, deny): &(usize, &DenyRuleDoc)| {
        let is_before = *j < i || matches!(rule, RuleItem::Count(_));
        let denies_all = deny.is_enforced() && deny.unless.is_none();
        is_before && denies_all && implies(rule.when(), deny.when.as_ref(), left)
    };
    let mut deny = document.deny_rules().take_while(|_| left.get() > 0);
    if let Some((j, _)) = deny.find(hides) {
        at.problem(format!("never applies: rules[{j}] denies every such request before"));
    }
    if let RuleItem::Deny(deny) = rule
        && deny.unless.is_none()
        && deny.when.as_ref().is_none_or(|when| when.0.is_empty())
    {
        at.problem(match deny.is_enforced() {
            true => "has no condition, so it denies every request that is not exempt".into(),
            false => "has no condition, so it would deny every request that is not exempt".into(),
        });
    }
}

/// A tier is tried only when those of a higher priority, and the earlier ones of the same priority,
/// do not apply to the request.
fn tier_warnings(rule: &RuleDoc, left: &Cell<usize>, at: &At<'_>) {
    let mut tried: Vec<(usize, &TierDoc)> = rule.tiers().iter().enumerate().collect();
    let priority = |tier: &TierDoc| tier.priority.as_ref().map_or(0, |p| p.0);
    sort_by(&mut tried, |(_, one), (_, other)| priority(other).cmp(&priority(one)));
    for (before, (i, tier)) in tried.iter().enumerate() {
        let mut others = tried.iter().take(before).take_while(|_| left.get() > 0);
        let hides = |(_, other): &&(usize, &TierDoc)| {
            // Of several values one tier may use the first and the other the last.
            other.repeated == tier.repeated
                && implies(tier.when.as_ref(), other.when.as_ref(), left)
                && implies_values(&tier.key_values, &other.key_values, left)
        };
        if let Some((_, other)) = others.find(hides) {
            at.item(*i).problem(format!(
                "never applies: the tier {} applies first to every such request",
                quoted_text(&other.name.0)
            ));
        }
    }
}

/// Warnings about the quotas of a rule or of its tier.
fn set_warnings(rule: &RuleSpec, set: &SetSpec, at: &At<'_>, quotas_at: &At<'_>) {
    cost_warnings(rule, set, &at.field("cost"));
    quota_warnings(set, quotas_at);
}

fn quota_warnings(set: &SetSpec, at: &At<'_>) {
    for QuotaSpec { name, limiter, .. } in &set.own.quotas {
        let name = quoted_text(name);
        if limiter.algorithm() == Algorithm::SlidingLog && limiter.limit() > LARGE_LOG {
            at.problem(format!(
                "{name} is a sliding-log of {}, which takes {} bytes per key; sliding-buckets takes far less",
                limiter.limit(),
                limiter.state_len()
            ));
        }
        if limiter.limit() > 1 && regrows_one(limiter) {
            at.problem(format!(
                "{name} is strict with a burst of its whole limit, so only 1 unit is restored per window; give a burst below {}",
                limiter.limit()
            ));
        }
    }
}

fn cost_warnings(rule: &RuleSpec, set: &SetSpec, at: &At<'_>) {
    let Cost::Fixed(cost) = rule.terms.cost else { return };
    if set.own.is_closed() {
        return; // whatever the cost is
    }
    for quota in set.own.quotas.iter().filter(|quota| cost > quota.limiter.capacity()) {
        at.problem(format!(
            "{cost} is more than the capacity of {}, which is {}, so no request is ever allowed",
            quoted_text(&quota.name),
            quota.limiter.capacity()
        ));
    }
}

/// A client that guesses passwords sends many guesses before the first response.
fn guess_warning(rule: &RuleDoc, at: &At<'_>) {
    let Some(Charging::Response(charge)) = &rule.charge else { return };
    let is_guess = [401, 403].into_iter().any(|status| charge.charges(Ending::Response(status)));
    if is_guess && !charge.reserves() {
        at.problem(
            "is made when the response arrives, so any number of requests that are sent together are allowed; give \
             \"reserve\": true"
                .into(),
        );
    }
}

/// A client that may name its estimate names a small one.
fn estimate_warning(rule: &RuleDoc, at: &At<'_>) {
    let Some(doc) = rule.cost.as_ref().filter(|doc| doc.settled.is_some()) else { return };
    if matches!(doc.cost, Cost::Header { .. }) {
        at.problem(
            "is in a header of the request, and a client that may write it sends 1, so that any number of its requests \
             are in flight; let only a proxy set it"
                .into(),
        );
    }
}

/// Strict, T is window / (limit - burst + 1).
fn regrows_one(limiter: &Limiter) -> bool {
    limiter.algorithm().has_burst()
        && limiter.quota().is_strict()
        && limiter.quota().burst() == limiter.limit()
}

/// Two quotas with one name in one response cannot be distinguished: rules that are reported to the
/// same clients, of which one applies whenever the other does.
fn name_warnings(spec: &PolicySpec, left: &Cell<usize>, rules_at: &At<'_>) {
    let mut first: SlabMap<&str, (usize, &RuleSpec)> = SlabMap::new();
    let rules = spec.rules.iter().enumerate();
    for (i, rule) in rules.filter(|(_, rule)| is_reported(rule)) {
        let sets = rule.tiers.iter().map(|tier| &tier.set);
        for quota in [&rule.set].into_iter().chain(sets).flat_map(|set| &set.own.quotas) {
            let (earlier, other) = first.get_or_insert(quota.name.as_str(), (i, rule));
            if earlier != i && overlap(other, rule, left) {
                rules_at.item(spec.place_of(i)).field("quotas").problem(format!(
                    "{} is also a quota of rules[{}], and clients of both cannot distinguish the two",
                    quoted_text(&quota.name),
                    spec.place_of(earlier)
                ));
            }
        }
    }
}

/// True when the rule's quotas are reported to clients.
fn is_reported(rule: &RuleSpec) -> bool {
    !matches!(rule.terms.mode, Mode::Shadow) && !matches!(rule.terms.action, Action::Respond(_))
}

/// True when one of two rules applies to every request that the other applies to; false when
/// unsure.
fn overlap(one: &RuleSpec, other: &RuleSpec, left: &Cell<usize>) -> bool {
    let hides = |a: &RuleSpec, b: &RuleSpec| {
        a.terms.unless.is_none() && implies(b.terms.when.as_ref(), a.terms.when.as_ref(), left)
    };
    hides(one, other) || hides(other, one)
}

const NEVER: &str =
    "has white space around it, which header values never have, so it never matches";
const NEVER_UPPER: &str = "has capitals, and the key is in lower case, so it never matches";

/// Notes the values of a rule that never match.
fn values_of_rule(rule: &RuleDoc, ignores_path_case: bool, at: &At<'_>) {
    for (i, conditions) in rule.priorities().iter().enumerate() {
        white_space_of_conditions(
            conditions,
            &at.field("action").field("delay").field("priority").item(i),
        );
    }
    let KeyDoc(key) = &rule.key;
    let is_path = |part: &KeyPart| matches!(part.source, KeySource::Path | KeySource::PathParam(_));
    let is_lower =
        |part: &KeyPart| part.form == KeyForm::Lower || ignores_path_case && is_path(part);
    let is_lower = !key.is_empty() && key.iter().all(is_lower);
    // An escape keeps its capitals where the path as a whole is in lower case.
    let keeps_escapes = key.iter().any(|part| part.form != KeyForm::Lower && is_path(part));
    let has_capitals = |value: &str| {
        let mut lowered = value.as_bytes().to_vec();
        if keeps_escapes {
            lower(&mut lowered);
        } else {
            lowered.make_ascii_lowercase();
        }
        lowered != value.as_bytes()
    };
    for (i, tier) in rule.tiers().iter().enumerate() {
        let at = at.field("tiers");
        if let Some(when) = &tier.when {
            white_space_of_conditions(when, &at.item(i).field("when"));
        }
        for value in tier.key_values.iter().flat_map(|values| &values.0) {
            // The value of a descriptor or of metadata is compared as it is.
            let is_wide = trimmed(value.as_bytes()) != value.as_bytes();
            let never = match () {
                () if is_wide && !counts_as_is(rule) => NEVER,
                () if is_lower && has_capitals(value) => NEVER_UPPER,
                () => continue,
            };
            at.item(i).field("key_values").problem(format!("{} {never}", quoted_text(value)));
        }
    }
}

fn counts_as_is(rule: &RuleDoc) -> bool {
    let is_as_is = |source| matches!(source, &KeySource::Descriptor(_) | &KeySource::Metadata(_));
    rule.key.0.iter().any(|part| is_as_is(&part.source))
}

/// Notes the values that headers are compared with and that never match.
fn white_space_of_conditions(conditions: &Conditions, at: &At<'_>) {
    let at = at.field("headers");
    for condition in &conditions.0 {
        let Condition::Header(name, wanted) = condition else { continue };
        for matcher in wanted.iter() {
            let text = match matcher {
                Matcher::Exact(text) if trimmed(text) != text => text,
                Matcher::Prefix(text) if matches!(text.first(), Some(b' ' | b'\t')) => text,
                Matcher::Exact(_) | Matcher::Prefix(_) => continue,
                Matcher::Present | Matcher::Match(_) => continue,
            };
            let text = quoted_text(&String::from_utf8_lossy(text));
            at.user_field(&name.0).problem(format!("{text} {NEVER}"));
        }
    }
}
