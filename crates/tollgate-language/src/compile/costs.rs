//! Warnings about costs that are known after the request: where the response shows them, and what
//! happens when it does not.
//!
//! Invariant: each names the surface's way to report such a cost. Deliberately not here: settings
//! that cannot be combined with such a cost (`combinations.rs`).

use crate::document::rule::RuleDoc;
use crate::json::place::At;
use crate::surface::Traits;
use tollgate_policy::spec::Cost;

/// Notes a cost, at `at`, that the surface does not see, or that only a report charges.
pub(super) fn warnings(rule: &RuleDoc, traits: &Traits, at: &At<'_>) {
    let Some(doc) = &rule.cost else { return };
    if doc.cost == Cost::Reported {
        at.problem(
            "is charged by reports alone: a gateway that looks and never reports is charged nothing, so this rule never \
             limits it; let it report the hits of each request"
                .into(),
        );
    }
    let Some(settled) = &doc.settled else { return };
    let statuses = Some(traits.ignores_statuses).filter(|_| !settled.cost.on_status.is_empty());
    let is_in_body = settled.cost.actual.json().is_some();
    for (field, message) in [
        ("actual", traits.no_response),
        ("actual", traits.reads_body.filter(|_| is_in_body)),
        ("on_status", statuses.flatten()),
    ] {
        if let Some(message) = message {
            at.field(field).problem(message.into());
        }
    }
}
