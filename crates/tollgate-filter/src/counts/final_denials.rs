//! Which denials a worker may repeat from memory until their `retry_after`.
//!
//! Invariant: a denial is repeated only where all that is said with it, each number of each rule,
//! is what the shared tables would say. A rule whose requests cost the same, and that takes no
//! place back, says the same until its `retry_after`: whoever could charge it is denied. A rule
//! that admits beside it says the same only if nobody charges it alone, because the one that denies
//! is asked by all requests of the key. Else its numbers would be old, though the refusal is right.
//! What was charged before another key refused is taken back; then the number of
//! [`Table::refunds_name`](tollgate_table::Table::refunds_name) is another one, and what was
//! remembered under the one before is not believed.
//!
//! Deliberately absent: denials with several keys. What is left of a key that many share changes
//! with each of their requests, and refusals tell it.

use tollgate_core::Algorithm;
use tollgate_policy::{Answer, Outcome, Policy, Rule, RuleResult};

/// What holds for the rules of a policy.
#[derive(Default)]
pub struct FinalDenials {
    /// By index; empty where nothing may be remembered.
    rules: Vec<Kind>,
    are_taken_back: bool,
}

struct Kind {
    /// What denies stays so until its time.
    is_final: bool,
    /// All requests of its key ask it, and are refused by it.
    refuses_for_all: bool,
    charges_by_response: bool,
}

impl FinalDenials {
    /// Those of a policy. None where counts are a fleet's, or where a place in a line can be left.
    pub fn of(policy: &Policy) -> Self {
        let mut quotas = policy.quota_sets().iter().flat_map(|set| set.quotas());
        let has_queue = quotas.any(|it| it.limiter().algorithm() == Algorithm::LeakyQueue);
        if policy.has_fleet() || has_queue {
            return Self::default();
        }
        let rules = policy.rules();
        let gives_back = |group| rules.iter().any(|it| it.group() == group && it.gives_back());
        let kind = |rule: &Rule| Kind {
            is_final: rule.has_fixed_cost() && !gives_back(rule.group()),
            refuses_for_all: rule.refuses_for_all(),
            charges_by_response: rule.charges_by_response(),
        };
        let are_taken_back = policy.groups().len() > 1
            || (rules.len() > 1 && rules.iter().any(|rule| rule.is_waited_for()));
        Self { rules: rules.iter().map(kind).collect(), are_taken_back }
    }

    /// True when there may be denials to remember.
    pub fn is_any(&self) -> bool {
        self.rules.iter().any(|kind| kind.is_final)
    }

    /// True when a charge may be taken back, so that who remembers has to look whether one was.
    pub const fn are_taken_back(&self) -> bool {
        self.are_taken_back
    }

    /// True for a refusal, of a request of one key, that stays as it is until its time.
    pub fn has(&self, outcome: Outcome<'_>) -> bool {
        let kind = |index: usize| self.rules.get(index);
        let is_for_all = || {
            outcome.rules().any(|(index, result)| {
                result == RuleResult::Denied && kind(index).is_some_and(|it| it.refuses_for_all)
            })
        };
        let mut results = outcome.rules();
        matches!(outcome.answer(), Answer::Refuse { .. })
            && results.all(|(index, result)| {
                kind(index).is_some_and(|kind| match result {
                    RuleResult::Denied | RuleResult::Shadowed | RuleResult::Marked => kind.is_final,
                    RuleResult::Allowed => !kind.charges_by_response && is_for_all(),
                    RuleResult::Delayed
                    | RuleResult::Failed
                    | RuleResult::Malformed
                    | RuleResult::Blocked => false,
                })
            })
    }
}
