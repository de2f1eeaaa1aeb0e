//! Warnings: settings that are legal and take effect, but are hardly intended.
//!
//! Invariant: a warning is never a guess about taste; each names the effect on requests.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use tollgate_core::{Algorithm, Limiter};

use crate::compile::subsumption::{MAX_COMPARED, implies, implies_values};
use crate::compile::white_space;
use crate::document::action::Action;
use crate::document::charging::Charging;
use crate::document::client_ip::Source;
use crate::document::cost::Cost;
use crate::document::key::KeyPart;
use crate::document::mode::Mode;
use crate::document::root::Document;
use crate::document::rule::{RuleDoc, TierDoc};
use crate::document::scope::Scope;
use crate::json::place::{At, Noted};
use crate::json::quote::quoted_text;
use crate::policy::client_address::{ClientAddress, Trust};
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::rule::Rule;
use crate::policy::surface::Traits;
use tollgate_http_syntax::address::{percent_of_ipv4, percent_of_ipv6};
use tollgate_http_syntax::sort::sort_by;

/// Above this a log takes more than 2 KiB per key.
const LARGE_LOG: u64 = 256;

/// The settings that are legal but hardly intended.
pub(super) fn warnings(document: &Document, policy: &Policy, surface: &Traits) -> Noted {
    let warnings = RefCell::new(Noted::default());
    let root = At::root(&warnings);
    client_ip_warnings(&policy.settings.client, &root);
    trust_warnings(&policy.settings.client, &root);
    tenant_warning(document, &root.field("tenant"));
    if document.rules.is_empty() {
        root.field("rules").problem("is empty: nothing is limited".into());
    }
    for (i, exempt) in document.exempt().iter().enumerate() {
        white_space::of_conditions(exempt, &root.field("exempt").item(i));
    }
    let rules_at = root.field("rules");
    let left = Cell::new(MAX_COMPARED);
    for (i, rule) in document.rules() {
        let at = rules_at.item(i);
        exempt_warning(document, rule, &left, &at);
        if surface.has_objects {
            few_objects_warning(rule, &at.field("key"));
        }
        if surface.is_one_node && matches!(rule.scope(), Scope::Share(2..)) {
            at.field("scope").problem(
                "divides what is one count for all clients here; use \"fleet\", which counts as it says".into(),
            );
        }
        guess_warning(rule, &at.field("charge"));
        tier_warnings(rule, &left, &at.field("tiers"));
        white_space::of_rule(rule, &at);
    }
    let fallbacks: Vec<u16> = policy.sets.iter().filter_map(|set| set.fallback).collect();
    for (i, set) in (0..).zip(&policy.sets) {
        // A warning about the whole count is not repeated for its parts.
        if fallbacks.contains(&i) {
            continue;
        }
        let at = rules_at.item(set.rule());
        cost_warnings(policy, set, &at.field("cost"));
        match document.tier_of(set) {
            Some(i) => quota_warnings(set, &at.field("tiers").item(i).field("quotas")),
            None => quota_warnings(set, &at.field("quotas")),
        }
    }
    name_warnings(policy, &left, &rules_at);
    warnings.into_inner()
}

fn client_ip_warnings(client: &ClientAddress, root: &At<'_>) {
    if client.ignores_its_header() {
        root.field("client_ip").problem(
            "trusts no proxy, so the header is not used and every client is the connection's other end; \
             give trusted_proxies or trusted_hops"
                .into(),
        );
    }
    // A header with one address has no list in which hops could be counted.
    if let (Source::Header(_), Trust::Hops(_)) = (&client.source, &client.trust) {
        root.field("client_ip")
            .problem("uses a header from any sender; give trusted_proxies".into());
    }
}

/// A client that sends its own tenant can choose the highest limits.
fn tenant_warning(document: &Document, at: &At<'_>) {
    let sent = |part: &KeyPart| {
        matches!(part, KeyPart::Header(..) | KeyPart::Cookie(..) | KeyPart::Query(..))
    };
    if document.tenant.as_ref().is_some_and(sent) {
        at.problem(
            "is what a client sends, so it chooses whose limits it has, and each name it makes up is asked of the \
             store; use a verified claim, or let nobody but your proxy set it"
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
                "trusts {share} % of all {family} addresses, so clients can say who they are; give the networks of \
                 your proxies only"
            ));
        }
    }
}

/// A key is an object, and an object serves requests one at a time.
fn few_objects_warning(rule: &RuleDoc, at: &At<'_>) {
    let is_spread = rule.shards.is_some();
    if !is_spread && rule.key.iter().all(|part| part.about().has_few_values) {
        let which =
            if rule.key.is_empty() { "one Durable Object" } else { "a few Durable Objects" };
        at.problem(format!(
            "sends every request of this rule to {which}, each of which serves about 1000 a second; add a part \
             such as \"client_ip\", give it \"shards\", or meet fewer requests"
        ));
    }
}

fn exempt_warning(document: &Document, rule: &RuleDoc, left: &Cell<usize>, at: &At<'_>) {
    let mut exempts = document.exempt().iter().take_while(|_| left.get() > 0);
    if let Some(i) = exempts.position(|exempt| implies(rule.when.as_ref(), Some(exempt), left)) {
        at.problem(format!(
            "what it is for is exempt by exempt[{i}], but for requests that are read in several ways"
        ));
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
                "never applies: every request it is for gets the tier {} first",
                quoted_text(&other.name.0)
            ));
        }
    }
}

fn quota_warnings(set: &QuotaSet, at: &At<'_>) {
    for quota in set.quotas() {
        let (name, limiter) = (quoted_text(quota.name()), quota.limiter());
        if limiter.algorithm() == Algorithm::SlidingLog && limiter.limit() > LARGE_LOG {
            at.problem(format!(
                "{name} is a sliding-log of {}, which takes {} bytes a key; sliding-buckets takes far less",
                limiter.limit(),
                limiter.state_len()
            ));
        }
        if limiter.limit() > 1 && regrows_one(limiter) {
            at.problem(format!(
                "{name} is strict with a burst of its whole limit, so 1 grows back in a window; give a burst below {}",
                limiter.limit()
            ));
        }
    }
}

fn cost_warnings(policy: &Policy, set: &QuotaSet, at: &At<'_>) {
    let Some(Cost::Fixed(cost)) = policy.rules.get(set.rule()).map(|rule| &rule.cost) else {
        return;
    };
    for quota in set.quotas().iter().filter(|quota| *cost > quota.limiter().capacity()) {
        at.problem(format!(
            "{cost} is more than {} ever holds, which is {}, so it admits no request",
            quoted_text(quota.name()),
            quota.limiter().capacity()
        ));
    }
}

/// A client that guesses passwords sends many guesses before the first response.
fn guess_warning(rule: &RuleDoc, at: &At<'_>) {
    let Some(Charging::Response(charge)) = &rule.charge else { return };
    let is_guess = [401, 403].into_iter().any(|status| charge.charges(Some(status)));
    if is_guess && !charge.reserves() {
        at.problem(
            "is made when the response comes, so requests that are under way together all pass, however many; give \
             \"reserve\": true"
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
fn name_warnings(policy: &Policy, left: &Cell<usize>, rules_at: &At<'_>) {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for set in policy.sets.iter().filter(|set| policy.reports(set)) {
        for quota in set.quotas() {
            let earlier = *first.entry(quota.name()).or_insert(set.rule());
            if earlier != set.rule() && policy.overlaps(earlier, set.rule(), left) {
                rules_at.item(set.rule()).field("quotas").problem(format!(
                    "{} is also a quota of rules[{earlier}], and clients of both cannot tell the two apart",
                    quoted_text(quota.name())
                ));
            }
        }
    }
}

impl Document {
    /// The index of the tier of these quotas, in the order of the document.
    fn tier_of(&self, set: &QuotaSet) -> Option<usize> {
        let (_, rule) = self.rules().nth(set.rule())?;
        let mut names = rule.tiers().iter().map(|tier| tier.name.0.as_str());
        names.position(|name| Some(name) == set.tier())
    }
}

impl Policy {
    /// True when these quotas are reported to clients.
    fn reports(&self, set: &QuotaSet) -> bool {
        self.rules.get(set.rule()).is_some_and(|rule| {
            !matches!(rule.mode, Mode::Shadow) && !matches!(rule.action, Action::Respond(_))
        })
    }

    /// True when one of two rules applies to every request that the other applies to; false when
    /// unsure.
    fn overlaps(&self, one: usize, other: usize, left: &Cell<usize>) -> bool {
        let (Some(one), Some(other)) = (self.rules.get(one), self.rules.get(other)) else {
            return false;
        };
        let hides = |a: &Rule, b: &Rule| {
            a.unless.is_none() && implies(b.when.as_ref(), a.when.as_ref(), left)
        };
        hides(one, other) || hides(other, one)
    }
}
