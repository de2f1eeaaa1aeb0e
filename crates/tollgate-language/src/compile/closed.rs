//! Quotas with the limit 0, which deny every request and count nothing.
//!
//! Invariant: a setting that such a quota, or a rule with no other quota, cannot use is a problem
//! at its place.

use tollgate_core::{Limiter, Span};
use tollgate_policy::spec::{Action, Scope};

use crate::document::rule::{QuotaDoc, RuleDoc};
use crate::document::scalar::Window;
use crate::document::scope::WithoutState;
use crate::json::place::At;

/// For one of several quotas.
pub(super) const ALONE: &str =
    "0 denies every request, so the other quotas never decide; use it alone";
const WITHOUT_COUNT: &str =
    "has no meaning with \"limit\": 0, which denies every request; leave it out";
const OF_RULE: &str = "has no meaning in a rule whose quotas all have \"limit\": 0, which count nothing; leave it out";
const BY_CALENDAR: &str = "is a window of a calendar, and \"limit\": 0 counts in none; use a length such as \"30d\", or leave it out";

/// The limiter of a quota with the limit 0. A window is only reported to clients.
pub(super) fn limiter(doc: &QuotaDoc, at: &At<'_>) -> Option<Limiter> {
    let fields = [
        ("burst", doc.burst.is_some()),
        ("algorithm", doc.algorithm.is_some()),
        ("strict", doc.strict.is_some()),
        ("buckets", doc.buckets.is_some()),
        ("weighted", doc.weighted.is_some()),
        ("align", doc.align.is_some()),
        ("utc_offset", doc.utc_offset.is_some()),
        ("week_start", doc.week_start.is_some()),
        ("anchor_day", doc.anchor_day.is_some()),
        ("penalty", doc.penalty.is_some()),
    ];
    refuse(&fields, WITHOUT_COUNT, at);
    let window = match &doc.window {
        None => Span::ZERO,
        Some(window) => match window.0? {
            Window::Length(length) => length,
            Window::Week | Window::Month => {
                at.field("window").problem(BY_CALENDAR.into());
                return None;
            }
        },
    };
    let built = Limiter::closed(window);
    built.map_err(|error| at.field("window").problem(alloc::format!("{error}"))).ok()
}

/// Notes the settings of a rule that counts nothing, for no tenant either.
pub(super) fn errors(rule: &RuleDoc, has_tenants: bool, at: &At<'_>) {
    let is_closed = rule.quotas().next().is_some() && rule.quotas().all(QuotaDoc::is_closed);
    if !is_closed || has_tenants || rule.concurrency.is_some() {
        return;
    }
    let fields = [
        ("cost", rule.cost.is_some()),
        ("charge", rule.charge.is_some()),
        ("action", matches!(rule.action, Some(Action::Delay(_)))),
        ("on_failure", matches!(rule.on_failure, Some(WithoutState::Local(_)))),
        ("scope", rule.scope() != Scope::Local),
        ("lease", rule.lease.is_some()),
        ("capacity", rule.capacity.is_some()),
        ("durability", rule.durability.is_some()),
        ("shards", rule.shards.is_some()),
    ];
    refuse(&fields, OF_RULE, at);
}

fn refuse(fields: &[(&'static str, bool)], message: &str, at: &At<'_>) {
    for (field, _) in fields.iter().filter(|(_, is_given)| *is_given) {
        at.field(field).problem(message.into());
    }
}
