//! Reports a decided request to the observer of a replay.
//!
//! Invariant: every rule that counts the request is reported once; a key is named only to an
//! observer that wants to show it.

use tollgate_policy::RuleResult;
use tollgate_sim::NodeDecision;

use crate::label::Label;
use crate::observer::{CountedRequest, Observer};

/// Reports every rule that counts the request to `observer`.
pub(crate) fn tell(observer: &mut impl Observer, decided: &NodeDecision<'_>, status: u16) {
    let (at, rules) = (decided.arrival().at, decided.policy().rules());
    for rule in decided.rules() {
        let Some(key) = rule.key_hash else { continue };
        let is_over = !matches!(rule.result, RuleResult::Allowed | RuleResult::Failed);
        let is_charged = rules.get(rule.rule).is_none_or(|r| r.is_charged_by(Some(status)));
        let cost = if is_charged { rule.cost } else { 0 };
        let quota_set = rule.quota_set;
        observer.counted(CountedRequest { rule: rule.rule, quota_set, key, at, cost, is_over });
    }
}

/// Names the keys that `observer` wants to show.
pub(crate) fn label_keys(
    observer: &mut impl Observer,
    decided: &NodeDecision<'_>,
    label: Label,
    name: Option<&[u8]>,
) {
    for rule in decided.rules() {
        let Some(key) = rule.key_hash else { continue };
        if observer.wants_label(rule.quota_set, key) {
            let text = label.key(decided.policy(), rule.partition, key, name);
            observer.labelled(rule.quota_set, key, text);
        }
    }
}
