//! Limits of requests that a quota or a rule cannot have, and those that are legal but hardly
//! intended.
//!
//! Invariant: which rules can have one is decided in `tollgate_policy::spec`, also for bytes.

use alloc::vec::Vec;

use tollgate_core::{Algorithm, Span};
use tollgate_policy::spec::{LimitFrom, LimitSource, Origin, no_limit_from};

use crate::document::limit_from::LimitFromDoc;
use crate::document::rule::{QuotaDoc, RuleDoc};
use crate::document::scalar::Window;
use crate::json::place::At;
use crate::json::reader::Lenient;

/// The limits that a quota takes from requests; `None` where it takes none, or cannot.
pub(super) fn limit_from(doc: &QuotaDoc, at: &At<'_>) -> Option<LimitFrom> {
    let LimitFromDoc { source, max } = doc.limit_from.as_ref()?.0.as_ref()?;
    let default = doc.limit.0?.0;
    let before = at.problem_count();
    if default > *max {
        at.field("limit").problem(alloc::format!(
            "{default} is above the highest limit of a request, {max}; use at most \"limit_from\".\"max\""
        ));
    }
    if doc.strict == Some(true) {
        at.field("strict").problem(STRICT.into());
    }
    if doc.penalty.is_some() {
        at.field("penalty").problem(PENALTY.into());
    }
    let units = [1, 60, 3_600, 86_400].map(Span::from_secs);
    let is_unit = |window: &Option<Lenient<Window>>| match window {
        Some(Lenient(Some(Window::Length(length)))) => units.contains(length),
        Some(Lenient(Some(Window::Week | Window::Month))) => false,
        _ => true, // its problem is noted
    };
    if *source == LimitSource::Descriptor && (doc.is_by_calendar() || !is_unit(&doc.window)) {
        at.field("limit_from").field("descriptor").problem(NO_UNIT.into());
    }
    let from = LimitFrom { source: source.clone(), default };
    (at.problem_count() == before).then_some(from)
}

const STRICT: &str =
    "rounds by one limit, and \"limit_from\" compares with many; leave one of them out";
const PENALTY: &str = "is for a key that exceeds its limit, and with \"limit_from\" one request of a key may exceed it where another does not; leave one of them out";
const NO_UNIT: &str = "is a limit per second, minute, hour or day; use the window \"1s\", \"1m\", \"1h\" or \"1d\", without \"align\"";

/// Notes the quotas of a rule and its tiers that cannot take their limits from requests; `missing`
/// is the problem with a source that the surface does not know.
pub(super) fn errors(
    rule: &RuleDoc,
    missing: impl Fn(&LimitSource) -> Option<&'static str>,
    at: &At<'_>,
) {
    let (charging, cost) = (rule.charging(), rule.cost.as_ref().map(|doc| &doc.cost));
    let place = (rule.scope(), rule.shards.is_some());
    each(rule, at, |quota, from, at| {
        let algorithm = quota.algorithm.unwrap_or(Algorithm::Gcra);
        let why = no_limit_from(algorithm, rule.action.as_ref(), &charging, cost, place);
        if let Some(why) = why.or_else(|| missing(&from.source)) {
            at.problem(why.into());
        }
    });
}

/// A limit that the client can write.
pub(super) fn warnings(rule: &RuleDoc, at: &At<'_>) {
    each(rule, at, |_, from, at| {
        if from.source.origin() == Origin::Client {
            at.problem(alloc::format!(
                "is a value that a client can send, and one that does has the limit {}; let only a trusted proxy or caller write it",
                from.max
            ));
        }
    });
}

/// Calls `each` for every quota of the rule and its tiers that has limits of requests, with their
/// place.
fn each(rule: &RuleDoc, at: &At<'_>, mut each: impl FnMut(&QuotaDoc, &LimitFromDoc, &At<'_>)) {
    let mut of = |quotas: &Option<Vec<Lenient<QuotaDoc>>>, at: &At<'_>| {
        for (i, quota) in quotas.iter().flatten().enumerate() {
            if let Some(quota) = &quota.0
                && let Some(Lenient(Some(from))) = &quota.limit_from
            {
                each(quota, from, &at.item(i).field("limit_from"));
            }
        }
    };
    of(&rule.quotas, &at.field("quotas"));
    let tiers_at = at.field("tiers");
    for (i, tier) in rule.tiers().iter().enumerate() {
        of(&tier.quotas, &tiers_at.item(i).field("quotas"));
    }
}
