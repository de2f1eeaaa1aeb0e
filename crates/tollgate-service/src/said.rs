//! Which quota a rule's result is about.
//!
//! Invariant: metrics and the log name the same one.

use tollgate_core::{Span, Verdict};
use tollgate_policy::{RuleDecision, RuleResult};

/// The quota that a result is about: of those that deny the one that does so for longest, or of
/// those that delay.
#[must_use]
pub(crate) fn said_by(decision: &RuleDecision<'_>, result: RuleResult) -> Option<usize> {
    let quotas = decision.quotas.iter().enumerate();
    match result {
        RuleResult::Denied | RuleResult::Blocked | RuleResult::Marked | RuleResult::Shadowed => {
            let denies = quotas.filter(|(_, quota)| !quota.is_admitted());
            // Without a time it is for ever. Of several alike the first.
            let wait = |after: Option<Span>| after.unwrap_or(Span::MAX);
            denies.rev().max_by_key(|(_, quota)| wait(quota.retry_after)).map(|(quota, _)| quota)
        }
        RuleResult::Delayed => {
            let delay = |verdict: Verdict| match verdict {
                Verdict::Delay(wait) => Some(wait),
                Verdict::Allow | Verdict::Deny => None,
            };
            let delays = quotas.filter_map(|(i, quota)| Some((i, delay(quota.verdict)?)));
            delays.rev().max_by_key(|(_, wait)| *wait).map(|(quota, _)| quota)
        }
        RuleResult::Allowed | RuleResult::Failed | RuleResult::Malformed => None,
    }
}
