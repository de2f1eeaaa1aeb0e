//! The deny rules that matched a request, and their results: for metrics, logs and explanations.
//!
//! Invariant: it only reads the plan. A denied request was not evaluated further, so no rule that
//! counts has a result then.

use crate::answer::cause::Cause;
use crate::answer::outcome::Outcome;
use crate::answer::rule_result::RuleResult;
use crate::pipeline::matched_deny::MatchedDeny;
use crate::policy::compiled::Policy;
use crate::spec::deny::DenyRule;

/// A deny rule that matched, or that may match a request that cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct DenyMatch<'a> {
    /// The index of the rule in [`Policy::deny_rules`](crate::Policy::deny_rules).
    pub index: usize,
    /// The rule.
    pub rule: &'a DenyRule,
    /// Its result: denied, shadowed or malformed.
    pub result: RuleResult,
}

impl DenyMatch<'_> {
    /// The place of the rule among [all names](Policy::rule_names).
    #[must_use]
    pub fn number(&self, policy: &Policy) -> usize {
        policy.rules.len().saturating_add(self.index)
    }
}

impl<'a> Outcome<'a> {
    /// The deny rules that matched, in the order of the document; when one denies the request, it
    /// is the last one.
    pub fn deny_matches(&self) -> impl Iterator<Item = DenyMatch<'a>> + use<'a> {
        let rules = &self.policy.deny.rules;
        self.plan.denied.iter().filter_map(move |matched| {
            let index = usize::from(matched.rule);
            Some(DenyMatch { index, rule: rules.get(index)?, result: result_of(matched) })
        })
    }

    /// The cause of the denial by a deny rule, if one denies.
    #[inline]
    pub(crate) fn find_denial(&self) -> Option<Cause<'a>> {
        let denial = self.plan.denial()?;
        if let Some(malformed) = denial.malformed {
            return Some(Cause::Malformed(malformed));
        }
        let rule = self.policy.deny.rules.get(usize::from(denial.rule));
        debug_assert!(rule.is_some(), "an outcome is asked of the policy that made its plan");
        Some(rule.map_or(Cause::Failure, |rule| Cause::Rule(&rule.reply)))
    }

    /// The deny rule that denies the request.
    #[must_use]
    pub fn denied_by(&self) -> Option<DenyMatch<'a>> {
        self.deny_matches().last().filter(|matched| matched.rule.is_enforced)
    }
}

const fn result_of(matched: &MatchedDeny) -> RuleResult {
    match matched {
        MatchedDeny { malformed: Some(_), .. } => RuleResult::Malformed,
        MatchedDeny { is_enforced: true, .. } => RuleResult::Denied,
        MatchedDeny { is_enforced: false, .. } => RuleResult::Shadowed,
    }
}
