//! The result of a limiter: a verdict and the numbers that a client may see.
//!
//! Invariant: a denial is a decision, not an error, and it never changes the state. Seconds,
//! headers and problem documents belong to the policy layer.

use crate::time::{Span, Timestamp};

/// Whether the request may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Now.
    Allow,
    /// After waiting this long, which is more than zero. Only `leaky-queue` returns it; the place
    /// in the queue is taken.
    Delay(Span),
    /// Not now; nothing was charged.
    Deny,
    /// As [`Verdict::Deny`], because the key's [penalty](crate::Penalty) runs.
    Penalty,
}

/// A verdict and its one number, for a caller that needs nothing more:
/// [`Limiter::admit`](crate::Limiter::admit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// [`Verdict::Allow`].
    Admit,
    /// [`Verdict::Delay`]: allowed, and to continue after this long.
    AdmitAfter(Span),
    /// [`Verdict::Deny`] or [`Verdict::Penalty`]: the same cost is allowed after this long, if no
    /// other request uses the key.
    RetryAfter(Span),
    /// [`Verdict::Deny`]: no wait can help, the cost exceeds the quota's capacity.
    Never,
}

impl Admission {
    /// True when the cost was charged.
    #[must_use]
    #[inline]
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Admit | Self::AdmitAfter(_))
    }

    /// The verdict, without the wait and the cause of a denial.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Admit => Verdict::Allow,
            Self::AdmitAfter(wait) => Verdict::Delay(wait),
            Self::RetryAfter(_) | Self::Never => Verdict::Deny,
        }
    }

    /// The wait of a denial, as [`Decision::retry_after`].
    #[must_use]
    pub const fn retry_after(self) -> Option<Span> {
        match self {
            Self::RetryAfter(wait) => Some(wait),
            Self::Admit | Self::AdmitAfter(_) | Self::Never => None,
        }
    }
}

impl From<&Decision> for Admission {
    fn from(decision: &Decision) -> Self {
        match (decision.verdict, decision.retry_after) {
            (Verdict::Allow, _) => Self::Admit,
            (Verdict::Delay(wait), _) => Self::AdmitAfter(wait),
            (Verdict::Deny | Verdict::Penalty, Some(wait)) => Self::RetryAfter(wait),
            (Verdict::Deny | Verdict::Penalty, None) => Self::Never,
        }
    }
}

/// One quota's decision on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may continue.
    pub verdict: Verdict,
    /// The quota's limit, in quota units per window.
    pub limit: u64,
    /// How many quota units would be allowed at this instant, after this request if it was allowed.
    /// Limit 10 per second, 6 used: remaining is 4.
    pub remaining: u64,
    /// On a denial: the shortest wait after which the same cost is allowed if no other request uses
    /// the key. One nanosecond less and it is denied again. `None` when allowed, and when no wait
    /// can help because the cost exceeds the quota's capacity.
    pub retry_after: Option<Span>,
    /// The effective window: within this time no more than `remaining` units should be used. With
    /// `remaining` 0 it is the time until one unit is allowed.
    pub reset_after: Span,
}

impl Decision {
    /// The decision on `cost` where `count` of `limit` units are counted in a window that ends
    /// after `reset_after`. A cost of 0 is allowed.
    #[inline]
    pub(crate) const fn of_count(limit: u64, count: u64, cost: u64, reset_after: Span) -> Self {
        let after = count.saturating_add(cost);
        let (verdict, counted, retry_after) = if cost > limit {
            (Verdict::Deny, count, None)
        } else if after > limit && cost > 0 {
            (Verdict::Deny, count, Some(reset_after))
        } else {
            (Verdict::Allow, after, None)
        };
        let remaining = limit.saturating_sub(counted);
        Self { verdict, limit, remaining, retry_after, reset_after }
    }

    /// The decision where the bytes are not a state: denied, and no wait helps.
    #[cold]
    pub(crate) const fn of_no_state(limit: u64) -> Self {
        Self {
            verdict: Verdict::Deny,
            limit,
            remaining: 0,
            retry_after: None,
            reset_after: Span::ZERO,
        }
    }

    /// True for [`Verdict::Allow`] and [`Verdict::Delay`]: the cost was (or would be) charged.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        !matches!(self.verdict, Verdict::Deny | Verdict::Penalty)
    }

    /// The receipt for an allowed `cost` at `now`, for [`Limiter::refund`](crate::Limiter::refund);
    /// `None` for a denial.
    #[must_use]
    pub const fn charge(&self, now: Timestamp, cost: u64) -> Option<Charge> {
        match self.verdict {
            Verdict::Allow => Some(Charge { at: now, cost, delay: Span::ZERO }),
            Verdict::Delay(delay) => Some(Charge { at: now, cost, delay }),
            Verdict::Deny | Verdict::Penalty => None,
        }
    }
}

/// The receipt of one allowed request, which is needed to take the charge back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The time it was decided at.
    pub at: Timestamp,
    /// The quota units charged.
    pub cost: u64,
    /// The wait that the request was given; zero unless the verdict was [`Verdict::Delay`]. For the
    /// end of a charge it includes the time that the units before it take.
    pub delay: Span,
}
