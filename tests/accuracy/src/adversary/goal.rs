//! The units that an attacker maximizes in one window, and the documented bound on them.

use tollgate_core::{Algorithm, Decision, Limiter, Quota, Span, Timestamp, Verdict};

/// The units that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Units at the time they are allowed, whether they have to wait then or not.
    Admissions,
    /// Units at the time they are sent on. Differs only for `leaky-queue`.
    Departures,
}

impl Goal {
    /// The most units in one window, computed here from the description in the documents of the
    /// core.
    #[must_use]
    pub fn bound(self, limiter: &Limiter) -> u64 {
        let quota = limiter.quota();
        let limit = quota.limit();
        match limiter.algorithm() {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                quota.burst() + regrown(quota) - 1
            }
            Algorithm::LeakyQueue => match self {
                Self::Admissions => quota.burst() + regrown(quota) - 1,
                // No two are closer than T.
                Self::Departures => regrown(quota),
            },
            // 31 days may contain a February and a part of both its neighbours.
            Algorithm::FixedWindow if limiter.calendar().is_some() => 3 * limit,
            Algorithm::FixedWindow => 2 * limit,
            Algorithm::SlidingWindow => 2 * limit - u64::from(quota.is_strict()),
            Algorithm::SlidingBuckets { weighted: true, .. } => {
                2 * limit - u64::from(quota.is_strict())
            }
            Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => limit,
        }
    }

    /// The same as a formula.
    #[must_use]
    pub fn bound_in_words(self, limiter: &Limiter) -> &'static str {
        let is_strict = limiter.quota().is_strict();
        match limiter.algorithm() {
            Algorithm::Gcra
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::LeakyQueue => match self {
                Self::Admissions if is_strict => "limit",
                Self::Admissions => "burst + ceil(window / T) - 1",
                Self::Departures => "ceil(window / T)",
            },
            Algorithm::SlidingBuckets { weighted: false, .. } | Algorithm::SlidingLog => "limit",
            Algorithm::FixedWindow if limiter.calendar().is_some() => "3 x limit",
            Algorithm::FixedWindow => "2 x limit",
            Algorithm::SlidingWindow | Algorithm::SlidingBuckets { .. } if is_strict => {
                "2 x limit - 1"
            }
            Algorithm::SlidingWindow | Algorithm::SlidingBuckets { .. } => "2 x limit",
        }
    }

    /// When a unit decided at `now` counts; `None` for one that is denied.
    pub(super) const fn counts_at(self, decision: &Decision, now: Timestamp) -> Option<Timestamp> {
        match (self, decision.verdict) {
            (_, Verdict::Deny | Verdict::Penalty) => None,
            (Self::Departures, Verdict::Delay(wait)) => Some(now.saturating_add(wait)),
            (_, Verdict::Allow | Verdict::Delay(_)) => Some(now),
        }
    }

    /// How long after `now` a unit decided at `now` can count.
    pub(super) const fn reach(self, limiter: &Limiter) -> Span {
        match (self, limiter.algorithm()) {
            // T is at most the window, and the queue holds a burst of them.
            (Self::Departures, Algorithm::LeakyQueue) => {
                limiter.window().saturating_mul(limiter.capacity())
            }
            _ => Span::ZERO,
        }
    }
}

/// ceil(window / T), where T = ceil(window / limit), or ceil(window / (limit - burst + 1)) when
/// strict.
fn regrown(quota: &Quota) -> u64 {
    let window = quota.window().as_nanos();
    let units = if quota.is_strict() { quota.limit() - quota.burst() + 1 } else { quota.limit() };
    let emission_interval = window.div_ceil(units);
    window.div_ceil(emission_interval)
}
