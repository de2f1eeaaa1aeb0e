//! The denials that a worker may repeat from memory until their `retry_after`.
//!
//! Invariant: a denial is repeated only where everything reported with it, each number of each
//! rule, is what the shared tables would give. A rule whose requests cost the same, and that takes
//! no place back, reports the same until its `retry_after`: every request that could charge it is
//! denied. A rule that allows in the same decision reports the same only if no request charges it
//! alone, which holds because the denying rule applies to all requests of the key. Otherwise its
//! numbers would be old, though the denial is right. A charge made before another key denied is
//! taken back; then the number of
//! [`Table::refunds_name`](tollgate_storage::table::Table::refunds_name) changes, and a denial
//! remembered under the earlier number is not used.
//!
//! Deliberately absent: denials of counts by a calendar, whose clock may go back, and denials with
//! several keys. The remaining units of a key that many clients
//! share change with each of their requests, and denials report them.

use tollgate_core::Algorithm;
use tollgate_policy::{Disposition, Group, Outcome, Policy, QuotaSet, Rule, RuleResult};

/// The properties of a policy's rules.
#[derive(Default)]
pub struct FinalDenials {
    /// By index; empty where nothing may be remembered.
    rules: Vec<RuleKind>,
    is_any: bool,
    are_taken_back: bool,
}

struct RuleKind {
    /// A denial of this rule holds until its time.
    is_final: bool,
    /// The rule applies to all requests of its key, and denies them.
    denies_for_all: bool,
    charges_by_response: bool,
}

impl FinalDenials {
    /// Those of a policy. None where counts are a fleet's, or where a place in a line can be left.
    pub fn of(policy: &Policy) -> Self {
        let mut quotas = policy.quota_sets().iter().flat_map(|set| set.quotas());
        let has_queue = quotas.any(|it| it.limiter().algorithm() == Algorithm::LeakyQueue);
        if !policy.fleet().is_empty() || has_queue {
            return Self::default();
        }
        let rules = policy.rules();
        let gives_back = |group| rules.iter().any(|it| it.group() == group && it.gives_back());
        // The wall clock may be set back, and a denial would then outlast its window.
        let is_by_calendar =
            |rule: &Rule| policy.groups().get(rule.group()).is_some_and(Group::is_by_calendar);
        // A request with a higher limit of its own is charged where one with a lower is denied.
        let has_limits = policy.quota_sets().iter().any(QuotaSet::varies);
        let kind = |rule: &Rule| RuleKind {
            is_final: rule.has_fixed_cost()
                && !gives_back(rule.group())
                && !is_by_calendar(rule)
                && !has_limits,
            denies_for_all: rule.refuses_for_all(),
            charges_by_response: rule.charges_by_response(),
        };
        let are_taken_back = policy.groups().len() > 1
            || (rules.len() > 1 && rules.iter().any(|rule| rule.is_waited_for()));
        let rules: Vec<_> = rules.iter().map(kind).collect();
        let is_any = rules.iter().any(|kind| kind.is_final);
        Self { rules, is_any, are_taken_back }
    }

    /// True when there may be denials to remember.
    pub const fn is_any(&self) -> bool {
        self.is_any
    }

    /// True when a charge may be taken back, so a worker that remembers a denial has to check for
    /// that.
    pub const fn are_taken_back(&self) -> bool {
        self.are_taken_back
    }

    /// True for a denial, of a request of one key, that holds until its time.
    pub fn has(&self, outcome: Outcome<'_>) -> bool {
        let kind = |index: usize| self.rules.get(index);
        let is_for_all = || {
            outcome.rules().any(|(index, result)| {
                matches!(result, RuleResult::Denied | RuleResult::Penalised)
                    && kind(index).is_some_and(|it| it.denies_for_all)
            })
        };
        let mut results = outcome.rules();
        matches!(outcome.disposition(), Disposition::Deny { .. })
            && results.all(|(index, result)| {
                kind(index).is_some_and(|kind| match result {
                    RuleResult::Denied
                    | RuleResult::Penalised
                    | RuleResult::Shadowed
                    | RuleResult::Marked => kind.is_final,
                    RuleResult::Allowed => !kind.charges_by_response && is_for_all(),
                    RuleResult::Delayed
                    | RuleResult::Failed
                    | RuleResult::Malformed
                    | RuleResult::Blocked => false,
                })
            })
    }
}
