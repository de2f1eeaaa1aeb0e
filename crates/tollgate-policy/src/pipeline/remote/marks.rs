//! What an operator did to one key of a rule: it is blocked until a time, or was reset at one.
//!
//! Invariant: a block refuses as an exhausted quota does, with the time that is left of it; who is
//! blocked is charged nothing. What was charged before a reset is not given back after it, or a
//! reset key would have more than a fresh one. Neither depends on the quotas, so both outlive every
//! change of the policy.

use tollgate_core::{Decision, Span, Timestamp, Verdict};

/// The most rules of one key that an operator did something to; beyond them the oldest is
/// forgotten.
pub(crate) const MAX_MARKS: usize = 64;

/// For how long charges are known to be older than a reset: no request takes so long.
const REMEMBERED_RESET: Span = Span::from_secs(3_600);

/// What was done to the key under one rule. Times that are 0 never were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The rule's stable identity.
    pub(crate) rule: u64,
    pub(crate) blocked_until: Timestamp,
    pub(crate) reset_at: Timestamp,
}

impl Mark {
    /// From when on it says nothing any more.
    pub(crate) fn idle_at(&self) -> Timestamp {
        let was_reset = self.reset_at > Timestamp::ZERO;
        let reset = if was_reset { REMEMBERED_RESET } else { Span::ZERO };
        self.blocked_until.max(self.reset_at.saturating_add(reset))
    }
}

/// When `rule` was reset, or the beginning of time.
pub(crate) fn reset_at(marks: &[Mark], rule: u64) -> Timestamp {
    marks.iter().find(|mark| mark.rule == rule).map_or(Timestamp::ZERO, |mark| mark.reset_at)
}

/// Refuses by every quota for as long as a block lasts, or longer where the quota does.
pub(crate) fn block(decisions: &mut [Decision], left: Span) {
    for decision in decisions {
        let is_never = !decision.is_admitted() && decision.retry_after.is_none();
        let wait = decision.retry_after.unwrap_or(Span::ZERO).max(left);
        *decision = Decision {
            verdict: Verdict::Deny,
            remaining: 0,
            retry_after: if is_never { None } else { Some(wait) },
            reset_after: decision.reset_after.max(left),
            ..*decision
        };
    }
}
