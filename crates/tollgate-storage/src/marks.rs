//! Actions of an operator on one key of a rule: a block until a time, or a reset at a time.
//!
//! Invariant: a block denies as a used-up quota does, with its remaining time; a blocked key is
//! charged nothing. A charge before a reset is not refunded after it, or a reset key would have
//! more units than a new one. Neither action depends on the quotas, so both outlive every change of
//! the policy.

use tollgate_core::{Decision, Span, Timestamp, Verdict};

/// The most rules of one key with actions of an operator; beyond this number the oldest is dropped.
pub(crate) const MAX_MARKS: usize = 64;

/// How long a reset is remembered, so that earlier charges can be recognised: no request takes this
/// long.
const REMEMBERED_RESET: Span = Span::from_secs(3_600);

/// The actions on the key under one rule. A time of 0 means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The rule's stable identity.
    pub(crate) rule: u64,
    pub(crate) blocked_until: Timestamp,
    pub(crate) reset_at: Timestamp,
}

impl Mark {
    /// The time from which it has no effect.
    pub(crate) fn idle_at(&self) -> Timestamp {
        let was_reset = self.reset_at > Timestamp::ZERO;
        let reset = if was_reset { REMEMBERED_RESET } else { Span::ZERO };
        self.blocked_until.max(self.reset_at.saturating_add(reset))
    }
}

/// When `rule` was reset, or time 0.
pub(crate) fn reset_at(marks: &[Mark], rule: u64) -> Timestamp {
    marks.iter().find(|mark| mark.rule == rule).map_or(Timestamp::ZERO, |mark| mark.reset_at)
}

/// Denies by every quota for the duration of a block, or longer if the quota does.
pub fn block(decisions: &mut [Decision], left: Span) {
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
