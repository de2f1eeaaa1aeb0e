//! The observer, which receives every request that a rule counts.
//!
//! Invariant: a request is reported once for each rule that counts it, in the order of the replay,
//! and never before it is decided. A key is labelled only for an observer that wants to show it.

use tollgate_core::Timestamp;
use tollgate_policy::{Rule, RuleResult};

use crate::replay::label::Label;
use crate::simulator::{NodeDecision, OriginResponse};

/// One request as one rule counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedRequest {
    /// The index of the rule in `Policy::rules`.
    pub rule: usize,
    /// The index of the quotas in `Policy::quota_sets`: the rule's own or a tier's.
    pub quota_set: usize,
    /// The keyed hash of the key that it counts by.
    pub key: u64,
    /// The time of the request.
    pub at: Timestamp,
    /// Its cost, in quota units, that its response finally used; 0 when it is not charged.
    pub cost: u64,
    /// True when a quota of the rule had no room for it, whether the rule is enforced or not.
    pub is_over: bool,
}

/// An observer of a replay.
pub trait Observer {
    /// A rule counts a request.
    fn counted(&mut self, request: CountedRequest);

    /// True when it needs a label for this key.
    fn wants_label(&self, quota_set: usize, key: u64) -> bool {
        let _ = (quota_set, key);
        false
    }

    /// The label of a key, as reports show it.
    fn labelled(&mut self, quota_set: usize, key: u64, label: String) {
        let _ = (quota_set, key, label);
    }
}

/// No observer.
impl Observer for () {
    fn counted(&mut self, _: CountedRequest) {}
}

/// Reports every rule that counts the request to `observer`.
pub(crate) fn report_counts(
    observer: &mut impl Observer,
    decided: &NodeDecision<'_>,
    response: OriginResponse,
) {
    let (at, rules) = (decided.arrival().at, decided.policy().rules());
    for rule in decided.rules() {
        let Some(key) = rule.key_hash else { continue };
        let is_over = !matches!(rule.result, RuleResult::Allowed | RuleResult::Failed);
        let used = |r: &Rule| r.used(rule.cost, response.ending(), &response);
        let cost = rules.get(rule.rule).map_or(rule.cost, used);
        let quota_set = rule.quota_set;
        observer.counted(CountedRequest { rule: rule.rule, quota_set, key, at, cost, is_over });
    }
}

/// Labels the keys that `observer` wants to show.
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
