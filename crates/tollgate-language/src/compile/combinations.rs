//! Settings of one rule that cannot be combined: its scope, its shards and a reported cost.
//!
//! Invariant: a problem is at the setting that can be left out.

use crate::compile::{concurrency, penalty};
use crate::document::rule::{QuotaDoc, RuleDoc};
use crate::document::scope::WithoutState;
use crate::json::place::At;
use crate::json::reader::Lenient;
use crate::surface::Traits;
use tollgate_core::Span;
use tollgate_policy::spec::{Action, Charging, Conditions, Cost, Need, Scope, Surface};

/// Notes the settings of a rule that cannot be combined.
pub(super) fn errors(rule: &RuleDoc, surface: Surface, traits: &Traits, at: &At<'_>) {
    scope_errors(rule, surface, traits, at);
    shards_errors(rule, &at.field("shards"));
    reported_errors(rule, at);
    settled_errors(rule, at);
    penalty::errors(rule, at);
    concurrency::errors(rule, at);
}

/// A fleet count that no authority keeps, and settings of a fleet count in a rule without one.
fn scope_errors(rule: &RuleDoc, surface: Surface, traits: &Traits, at: &At<'_>) {
    if matches!(rule.scope, Some(Lenient(None))) {
        return; // its problem is noted
    }
    if rule.scope() == Scope::Fleet {
        if let Some(message) = traits.no_fleet {
            at.field("scope").problem(message.into());
        }
        if surface.asks_authority()
            && let Some(field) = settled_by(rule)
        {
            at.field(field).problem(match field {
                "cost" => "is settled when the response ends, and units of \"scope\": \"fleet\" are leased for some seconds: the \
                           lease is over by then, and this node can neither give back what was not used nor record more; \
                           leave the scope out, and let the nodes share a store, or use a cost that the request shows"
                    .into(),
                _ => "by response is not supported here with \"scope\": \"fleet\", which charges when a request arrives; leave it out"
                    .into(),
            });
        }
        if rule.quotas().any(QuotaDoc::is_by_calendar) {
            at.field("scope").problem(
                "\"fleet\" leases units for some seconds, and a quota with \"align\" is not leased; leave it out, and let \
                 the nodes share a store"
                    .into(),
            );
        }
        let is_leased = rule.lease.is_some_and(|lease| lease.0 > Span::ZERO);
        if is_leased && rule.quotas().any(QuotaDoc::is_queue) {
            at.field("lease").problem(
                "is for quotas that count units, and a leaky-queue counts waiting requests; use 0 or leave it out"
                    .into(),
            );
        }
        return;
    }
    let is_local = matches!(rule.on_failure, Some(WithoutState::Local(_)));
    for (field, is_given) in [("lease", rule.lease.is_some()), ("on_failure", is_local)] {
        if is_given {
            at.field(field)
                .problem("needs an authority; give \"scope\": \"fleet\", or leave it out".into());
        }
    }
}

/// Shards of a rule whose count is not in units that can be leased, or is already leased.
fn shards_errors(rule: &RuleDoc, at: &At<'_>) {
    if rule.shards.is_none() {
        return;
    }
    let wrong = [
        (
            rule.scope() != Scope::Local,
            "divide a count that one Worker keeps, and \"scope\" is for counts on other nodes; leave one of them out",
        ),
        (
            rule.quotas().any(QuotaDoc::is_queue),
            "lease units, and a leaky-queue counts waiting requests; use another algorithm, or leave them out",
        ),
        (
            rule.quotas().any(QuotaDoc::is_by_calendar),
            "lease units, and a quota with \"align\" is not leased; leave them out",
        ),
        (
            matches!(rule.action, Some(Action::Delay(_))),
            "answer at once, and the action \"delay\" makes a request wait; leave one of them out",
        ),
        (
            settled_by(rule).is_some(),
            "charge when a request arrives, and this rule charges by its response; leave one of them out",
        ),
    ];
    for (_, message) in wrong.into_iter().filter(|(is_wrong, _)| *is_wrong) {
        at.problem(message.into());
    }
}

/// Notes the settings that a rule with a reported cost cannot have. A report counts units that were
/// already used, so no request waits for them, no node leases them, and no response charges them.
fn reported_errors(rule: &RuleDoc, at: &At<'_>) {
    if rule.cost.as_ref().is_none_or(|doc| doc.cost != Cost::Reported) {
        return;
    }
    if !rule.when.as_ref().is_some_and(is_for_descriptors) {
        at.field("cost").problem(
            "\"reported\" needs a descriptor, which reports it; give \"when\" a \"domain\", \"entries\" or \"descriptor\", or \
             use another cost"
                .into(),
        );
    }
    let wrong = [
        (
            "charge",
            matches!(rule.charge, Some(Charging::Response(_))),
            "is made by a response, and its report charges a reported cost; leave it out",
        ),
        (
            "action",
            matches!(rule.action, Some(Action::Delay(_))),
            "makes a request wait, and reported units are already used; use another action",
        ),
        (
            "cost",
            rule.quotas().any(QuotaDoc::is_queue),
            "\"reported\" is for units that are already used, and a leaky-queue counts waiting requests; use another algorithm",
        ),
        (
            "scope",
            rule.scope() == Scope::Fleet,
            "\"fleet\" leases units before they are used, and a report arrives afterwards; leave it out",
        ),
        (
            "shards",
            rule.shards.is_some(),
            "lease units before they are used, and a report arrives afterwards; leave them out",
        ),
    ];
    for (field, _, message) in wrong.into_iter().filter(|(_, is_wrong, _)| *is_wrong) {
        at.field(field).problem(message.into());
    }
}

/// Notes the settings that a cost which the response settles cannot have.
fn settled_errors(rule: &RuleDoc, at: &At<'_>) {
    let is_settled = rule.cost.as_ref().is_some_and(|doc| doc.settled.is_some());
    if is_settled && rule.charge.is_some() {
        at.field("charge").problem(
            "is for a cost that is known when the request comes, and the response settles this one; leave it out, \
             and give \"on_status\" in \"cost\" for statuses that cost something else"
                .into(),
        );
    }
}

/// The field by which the response changes what a rule charges.
fn settled_by(rule: &RuleDoc) -> Option<&'static str> {
    let is_settled = rule.cost.as_ref().is_some_and(|doc| doc.settled.is_some());
    match &rule.charge {
        Some(Charging::Response(_)) => Some("charge"),
        Some(Charging::Request | Charging::Settled(_) | Charging::InFlight) | None => {
            is_settled.then_some("cost")
        }
    }
}

/// True when these conditions hold for descriptors only.
fn is_for_descriptors(when: &Conditions) -> bool {
    when.0.iter().any(|condition| condition.reads().need() == Some(Need::Descriptors))
}
