//! Rules whose cost is reported: the settings that cannot be combined with it.
//!
//! Invariant: a report counts units that were used already, at once; so no request waits for these
//! units, no node leases them, and no response charges them.

use crate::document::rule::{QuotaDoc, RuleDoc};
use crate::json::place::At;
use tollgate_policy::spec::{Action, Charging, Conditions, Cost, Need, Scope};

/// Notes the settings that a rule with a reported cost cannot have.
pub(super) fn errors(rule: &RuleDoc, at: &At<'_>) {
    if rule.cost != Some(Cost::Reported) {
        return;
    }
    if !rule.when.as_ref().is_some_and(is_for_descriptors) {
        at.field("cost").problem(
            "\"reported\" is what a descriptor reports; give \"when\" a \"domain\", \"entries\" or \"descriptor\", or \
             use another cost"
                .into(),
        );
    }
    let wrong = [
        (
            "charge",
            matches!(rule.charge, Some(Charging::Response(_))),
            "is made by a response, and a reported cost is charged by its report; leave it out",
        ),
        (
            "action",
            matches!(rule.action, Some(Action::Delay(_))),
            "makes a request wait, and what is reported was used already; use another action",
        ),
        (
            "cost",
            rule.quotas().any(QuotaDoc::is_queue),
            "\"reported\" is units that were used already, and a leaky-queue gives places; use another algorithm",
        ),
        (
            "scope",
            rule.scope() == Scope::Fleet,
            "\"fleet\" leases units before they are used, and a report tells of them afterwards; leave it out",
        ),
        (
            "shards",
            rule.shards.is_some(),
            "lease units before they are used, and a report tells of them afterwards; leave them out",
        ),
    ];
    for (field, _, message) in wrong.into_iter().filter(|(_, is_wrong, _)| *is_wrong) {
        at.field(field).problem(message.into());
    }
}

/// True when these conditions hold for descriptors only.
fn is_for_descriptors(when: &Conditions) -> bool {
    when.0.iter().any(|condition| condition.reads().need() == Some(Need::Descriptors))
}
