//! Penalties that a rule cannot have, and those that are legal but hardly intended.
//!
//! Invariant: which rules can have one is decided in `tollgate_policy::spec`, also for bytes.

use alloc::vec::Vec;

use tollgate_core::Algorithm;
use tollgate_policy::spec::{OnMissing, Origin, Scope, no_penalty};

use crate::document::rule::{QuotaDoc, RuleDoc};
use crate::json::place::At;
use crate::json::reader::Lenient;

/// Notes the quotas of a rule and its tiers that cannot have their penalty.
pub(super) fn errors(rule: &RuleDoc, at: &At<'_>) {
    let (charging, cost) = (rule.charging(), rule.cost.as_ref().map(|doc| &doc.cost));
    let is_leased = rule.scope() == Scope::Fleet || rule.shards.is_some();
    each_penalty(rule, at, |quota, at| {
        let algorithm = quota.algorithm.unwrap_or(Algorithm::Gcra);
        let why = no_penalty(algorithm, rule.action.as_ref(), &charging, cost, is_leased);
        if let Some(why) = why {
            at.problem(why.into());
        }
    });
}

/// A penalty of a key that many clients share, and of one that others can send.
pub(super) fn warnings(rule: &RuleDoc, at: &At<'_>) {
    let abouts = || rule.key.0.iter().map(|part| part.source.about());
    let is_shared = abouts().all(|it| it.has_few_values || it.origin == Origin::Target)
        || rule.on_missing == Some(OnMissing::Shared);
    let is_sent = abouts().all(|it| matches!(it.origin, Origin::Client | Origin::Target));
    let message = match () {
        () if is_shared => SHARED,
        () if is_sent => SENT,
        () => return,
    };
    each_penalty(rule, at, |_, at| at.problem(message.into()));
}

const SHARED: &str = "is on a count that many clients share, and one of them that exceeds it has all denied for that long; add a part such as \"client_ip\" to the key";
const SENT: &str = "is on a key that the client sends, and one that sends another's value has that one denied for that long; add a part such as \"client_ip\" to the key";

/// Calls `each` for every quota of the rule and its tiers that has a penalty, with the place of it.
fn each_penalty(rule: &RuleDoc, at: &At<'_>, mut each: impl FnMut(&QuotaDoc, &At<'_>)) {
    let mut of = |quotas: &Option<Vec<Lenient<QuotaDoc>>>, at: &At<'_>| {
        let quotas =
            quotas.iter().flatten().enumerate().filter_map(|(i, doc)| Some((i, doc.0.as_ref()?)));
        for (i, quota) in quotas.filter(|(_, quota)| quota.penalty.is_some()) {
            each(quota, &at.item(i).field("penalty"));
        }
    };
    of(&rule.quotas, &at.field("quotas"));
    let tiers_at = at.field("tiers");
    for (i, tier) in rule.tiers().iter().enumerate() {
        of(&tier.quotas, &tiers_at.item(i).field("quotas"));
    }
}
