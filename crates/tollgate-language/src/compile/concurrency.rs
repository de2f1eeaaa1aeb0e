//! Limits on requests in flight: the rules that cannot have one, and the quotas that they become.
//!
//! Invariant: a limit that is accepted is exact on every surface that accepts it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Limiter, Span};
use tollgate_policy::spec::{
    Action, Charging, Cost, QuotaSpec, RuleSpec, RuleTerms, Scope, parts_of, quoted_text,
};

use crate::document::concurrency::{ConcurrencyDoc, MaxAge};
use crate::document::deny::RuleItem;
use crate::document::rule::{QuotaDoc, RuleDoc};
use crate::json::place::At;

/// The time after which an unconfirmed request is no longer counted, unless the document says
/// another.
const DEFAULT_MAX_AGE: Span = Span::from_secs(60);

/// Notes the settings of a rule that a limit on requests in flight cannot be combined with.
pub(super) fn errors(rule: &RuleDoc, at: &At<'_>) {
    let own_at = at.field("concurrency");
    let tiers_at = at.field("tiers");
    for (i, tier) in rule.tiers().iter().enumerate() {
        let tier_at = tiers_at.item(i);
        if tier.concurrency.is_some() && rule.concurrency.is_none() {
            tier_at.field("concurrency").problem(NO_OWN.into());
        }
        let has_quotas = rule.has_quotas();
        if tier.quotas.is_some() && !has_quotas {
            tier_at.field("quotas").problem(NO_QUOTAS.into());
        }
        if tier.quotas.is_none() && tier.concurrency.is_none() && !has_quotas {
            tier_at.field("concurrency").problem("is missing; give the limit of the tier".into());
        }
    }
    if rule.concurrency.is_none() {
        return;
    }
    let is_reported = rule.cost.as_ref().is_some_and(|doc| doc.cost == Cost::Reported);
    let wrong = [
        (orders(rule), PRIORITIES),
        (rule.quotas().any(QuotaDoc::is_queue), QUEUES),
        (rule.scope() == Scope::Fleet, LEASES),
        (rule.shards.is_some(), SHARDS),
        (is_reported, REPORTS),
    ];
    for (_, message) in wrong.into_iter().filter(|(is_wrong, _)| *is_wrong) {
        own_at.problem(message.into());
    }
    if !rule.has_quotas() {
        let needless = [("cost", rule.cost.is_some()), ("charge", rule.charge.is_some())];
        for (field, _) in needless.into_iter().filter(|(_, is_given)| *is_given) {
            at.field(field).problem(ONE_EACH.into());
        }
    }
}

/// True when requests that the rule delays have priorities.
fn orders(rule: &RuleDoc) -> bool {
    matches!(&rule.action, Some(Action::Delay(delay)) if !delay.priority.is_empty())
}

const NO_OWN: &str = "is for a rule with a limit on requests in flight; give the rule \"concurrency\", which its tiers can change";
const NO_QUOTAS: &str = "is for a rule with quotas; give the rule \"quotas\", which its tiers can change, or leave it out";
const PRIORITIES: &str = "makes requests wait until another one ends, and \"priority\" orders them by the times at which they go, which are not known; leave \"priority\" out";
const QUEUES: &str = "counts requests that run, and a leaky-queue makes them wait; give it to another rule with the same key";
const LEASES: &str = "is not leased to nodes, because a place that ends is given back where it was taken; leave \"scope\" out, and let the nodes share a store";
const SHARDS: &str =
    "needs one object that counts, and \"shards\" lease units to several; leave one of them out";
const REPORTS: &str =
    "counts requests that run, and a report is about one that has ended; leave it out";
const ONE_EACH: &str =
    "is for quotas, and a rule with \"concurrency\" alone counts each request as one; leave it out";

/// The limit as a quota by the name of `rule`, reduced to the part of each of `nodes`.
pub(super) fn quotas(doc: &ConcurrencyDoc, rule: &str, nodes: u32, at: &At<'_>) -> Vec<QuotaSpec> {
    let max_age = doc.max_age.map_or(DEFAULT_MAX_AGE, |MaxAge(max_age)| max_age);
    let limiter = match Limiter::new_concurrency(doc.limit.0.into(), max_age) {
        Ok(limiter) => limiter,
        Err(error) => {
            at.problem(format!("{error}")); // its fields have these bounds
            return Vec::new();
        }
    };
    let name = doc.name.as_ref().map_or(rule, |name| &name.0);
    let whole = [QuotaSpec { name: name.into(), limiter, limit_from: None }];
    parts_of(&whole, nodes, |(_, field, words)| at.field(field).problem(words))
}

/// The rule of this name that limits requests in flight under the terms of `rule`.
pub(super) fn in_flight(rule: RuleSpec, name: String) -> RuleSpec {
    let terms = RuleTerms {
        name,
        cost: Cost::Fixed(1),
        names_cost: false,
        charging: Charging::InFlight,
        fallback: None,
        ..rule.terms
    };
    RuleSpec { terms, ..rule }
}

/// The name of the rule that a limit next to quotas becomes.
pub(super) fn rule_name(rule: &RuleDoc) -> String {
    let name = &rule.name.0;
    if rule.has_quotas() { format!("{name}{SUFFIX}") } else { name.clone() }
}

/// The end of the name of such a rule.
pub(super) const SUFFIX: &str = ".concurrency";

/// Notes the rules whose limit on requests in flight would have the name of another rule.
pub(super) fn names_errors<'d>(
    rules: impl Iterator<Item = (usize, &'d RuleItem)> + Clone,
    at: &At<'_>,
) {
    for (i, rule) in rules.clone() {
        let RuleItem::Count(own) = rule else { continue };
        if !is_next_to_quotas(rule) {
            continue;
        }
        let name = rule_name(own);
        if rules.clone().any(|(_, other)| other.name().0 == name) {
            let name = quoted_text(&name);
            let message = format!("is named {name} in reports, as another rule is; rename one");
            at.item(i).field("concurrency").problem(message);
        }
    }
}

/// True for a rule that has quotas and a limit on requests in flight: it becomes two.
pub(super) fn is_next_to_quotas(rule: &RuleItem) -> bool {
    match rule {
        RuleItem::Count(rule) => rule.concurrency.is_some() && rule.has_quotas(),
        RuleItem::Deny(_) => false,
    }
}
