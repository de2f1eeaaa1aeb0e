//! The parameters of GCRA and its kin, and the numbers they report.
//!
//! Invariant: `burst_span` is exactly T x burst and at most [`MAX_BURST_SPAN`]. The currency is the
//! debt, the time until the key is whole again; each algorithm keeps it in its own form.

use core::num::NonZeroU64;

use crate::algorithms::skew::{farthest_ahead, is_foreign, most_owed};
use crate::algorithms::weight::mul_add_div;
use crate::decision::{Charge, Decision, Verdict};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, MAX_BURST_SPAN, NEAR, Span, Timestamp};

/// The parameters of GCRA, the token bucket, the leaky bucket and the leaky queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) quota: Quota,
    /// T: the time one unit takes to grow back, rounded up.
    emission_interval: NonZeroU64,
    /// T x burst: the debt that a key may carry.
    pub(crate) burst_span: Span,
    /// The largest debt that a state may contain; a longer one is foreign.
    longest_debt: Span,
}

impl Rate {
    /// T = ceil(window / limit), or ceil(window / (limit - burst + 1)) when strict.
    pub(crate) const fn new(quota: Quota) -> Result<Self, QuotaError> {
        let burst = quota.burst();
        if quota.is_strict() && burst > quota.limit() {
            return Err(QuotaError::StrictBurst { largest_burst: quota.limit() });
        }
        let interval = emission_interval(&quota, burst);
        let burst_span = interval.saturating_mul(burst);
        if burst_span.as_nanos() > MAX_BURST_SPAN.as_nanos() {
            return Err(QuotaError::Burst { largest_burst: largest_burst(&quota) });
        }
        let longest_debt = farthest_ahead(burst_span);
        // A quota allows at most one unit per nanosecond, so that T is at least one.
        let emission_interval = match NonZeroU64::new(interval.as_nanos()) {
            Some(interval) => interval,
            None => NonZeroU64::MIN,
        };
        Ok(Self { quota, emission_interval, burst_span, longest_debt })
    }

    /// T: the time one unit takes to grow back, rounded up.
    #[inline]
    pub(crate) const fn emission_interval(&self) -> Span {
        Span::from_nanos(self.emission_interval.get())
    }

    /// T x `cost`.
    #[inline]
    pub(crate) const fn span_of(&self, cost: u64) -> Span {
        self.emission_interval().saturating_mul(cost)
    }

    /// T x `cost` for a cost of at most one burst: at most `burst_span`, so it cannot overflow and
    /// is not tested for it.
    #[inline]
    pub(crate) const fn span_within_burst(&self, cost: u64) -> Span {
        Span::from_nanos(self.emission_interval.get().wrapping_mul(cost))
    }

    /// The decision on a cost of at least one that can fit, by a clock that is not late by more
    /// than a burst. `None` otherwise: then [`Rate::debt_within_skew`] and the slow way decide.
    ///
    /// `paid_off_at` is when nothing is owed any more. This is the hot path of GCRA and its kin, so
    /// it contains no call, no division and no test that these conditions make unnecessary: no sum
    /// exceeds [`NEAR`] and one burst.
    #[inline]
    pub(crate) fn weigh(
        &self,
        paid_off_at: Timestamp,
        now: Timestamp,
        cost: u64,
    ) -> Option<Weighed> {
        // One comparison for both ends: 0 becomes the greatest number.
        if now > NEAR || cost.wrapping_sub(1) >= self.quota.burst() {
            return None;
        }
        let charge = self.span_within_burst(cost);
        let room = self.burst_span.wrapping_sub(charge);
        let latest_at = now.wrapping_add(room); // the latest time to be paid off at that leaves room
        if paid_off_at <= latest_at {
            let from = paid_off_at.max(now);
            let credit = latest_at.wrapping_since(from);
            return Some(Weighed::Fits { from, next: from.wrapping_add(charge), credit });
        }
        let wait = paid_off_at.since(latest_at);
        let credit = charge.checked_sub(wait)?;
        Some(Weighed::Denied { wait, credit })
    }

    /// The decision on a cost of 0 by a clock that is not late by more than a burst.
    #[inline]
    pub(crate) fn look(&self, paid_off_at: Timestamp, now: Timestamp) -> Option<Decision> {
        if now > NEAR {
            return None;
        }
        let credit = now.wrapping_add(self.burst_span).checked_since(paid_off_at.max(now))?;
        Some(self.decision_on_credit(Verdict::Allow, credit, None))
    }

    /// The decision for a denial that [`Rate::weigh`] found.
    #[inline]
    pub(crate) fn denial(&self, credit: Span, wait: Span) -> Decision {
        self.decision_on_credit(Verdict::Deny, credit, Some(wait))
    }

    /// The debt to decide on `cost` with: `debt` itself, unless it is foreign. Then it is one burst
    /// less the room for `cost`; nothing for a peek and for a cost that never fits
    /// ([`ALLOWED_SKEW`](crate::ALLOWED_SKEW) gives the reason).
    pub(crate) fn debt_within_skew(&self, debt: Span, cost: u64) -> Span {
        if debt <= self.longest_debt {
            debt
        } else if cost == 0 || cost > self.quota.burst() {
            Span::ZERO
        } else {
            self.burst_span.saturating_sub(self.span_of(cost))
        }
    }

    /// The units of `debt` above one burst, rounded up; 0 for a foreign debt.
    pub(crate) fn units_above_burst(&self, debt: Span) -> u64 {
        let above = self.debt_within_skew(debt, 0).saturating_sub(self.burst_span);
        above.div_ceil(self.emission_interval())
    }

    /// Units allowed at most in any half-open window: burst + ceil(window / T) - 1.
    pub(crate) const fn max_in_window(&self) -> u64 {
        let regrown = self.quota.window().div_ceil(self.emission_interval());
        self.quota.burst().saturating_add(regrown).saturating_sub(1)
    }

    /// The part of `charge` that has certainly not drained at `now`: it began to drain at the
    /// charge or later, and where it is the end of a greater one
    /// ([`Limiter::last_of`](crate::Limiter::last_of)) after the units before it.
    pub(crate) fn owed(&self, charge: &Charge, now: Timestamp) -> Span {
        let (charged_at, now) = (charge.at.min(LATEST), now.min(LATEST));
        if is_foreign(charged_at, now) {
            return Span::ZERO;
        }
        let span = self.span_of(charge.cost);
        charged_at.saturating_add(charge.delay).saturating_add(span).since(now).min(span)
    }

    /// When all is paid off after a debit of `units` at `now`: `paid_off_at` at the earliest, and
    /// the debit's addition ends two bursts from `now`. A foreign debt is first brought within one
    /// burst, as a charge of these units would leave it.
    pub(crate) fn debited(&self, paid_off_at: Timestamp, now: Timestamp, units: u64) -> Timestamp {
        let debt = paid_off_at.since(now);
        let standing = self.debt_within_skew(debt, units.min(self.quota.burst()));
        let owed = standing.saturating_add(self.span_of(units)).min(most_owed(self.burst_span));
        if standing == debt && owed <= debt { paid_off_at } else { now.saturating_add(owed) }
    }

    /// The time at this rate at which a debt is paid off that is paid off at `paid_off_at` at the
    /// rate `old`: as many units, and the part of one that has grown back rounded down, `ceil(debt
    /// x T' / T)`, at most one burst. The epoch where `old` treats the debt as foreign.
    pub(crate) fn carried(&self, old: &Self, paid_off_at: Timestamp, now: Timestamp) -> Timestamp {
        let debt = paid_off_at.since(now);
        if debt > old.longest_debt {
            return Timestamp::ZERO;
        }
        if debt == Span::ZERO {
            return paid_off_at;
        }
        let (from, to) = (old.emission_interval().as_nanos(), self.emission_interval().as_nanos());
        let scaled = mul_add_div(debt.as_nanos(), to, from.saturating_sub(1), from);
        now.saturating_add(Span::from_nanos(scaled).min(self.burst_span))
    }

    /// The time until `units` have been allowed one after the other, from `decision` on: the
    /// inverse of [`Rate::decision_on_credit`].
    pub(crate) const fn soonest(&self, decision: &Decision, units: u64) -> Span {
        let needed = self.span_of(units);
        if decision.remaining > 0 {
            return needed.saturating_sub(decision.reset_after);
        }
        needed.saturating_add(decision.reset_after).saturating_sub(self.emission_interval())
    }

    /// The decision with `debt`. One burst less the debt is the credit; on a late clock the debt
    /// can be more than a burst, and then nothing remains until one unit has grown back.
    pub(crate) fn decision(
        &self,
        verdict: Verdict,
        debt: Span,
        retry_after: Option<Span>,
    ) -> Decision {
        match self.burst_span.checked_sub(debt) {
            Some(credit) => self.decision_on_credit(verdict, credit, retry_after),
            None => Decision {
                verdict,
                limit: self.quota.limit(),
                remaining: 0,
                retry_after,
                reset_after: debt
                    .saturating_sub(self.burst_span)
                    .saturating_add(self.emission_interval()),
            },
        }
    }

    /// The decision with `credit` left: floor(credit / T) units remain, and until the credit has
    /// grown back no more than these should be used; with none remaining, until one has grown back.
    #[inline]
    pub(crate) fn decision_on_credit(
        &self,
        verdict: Verdict,
        credit: Span,
        retry_after: Option<Span>,
    ) -> Decision {
        let (remaining, reset_after) = if credit < self.emission_interval() {
            (0, self.until_one(credit))
        } else {
            (self.units_in(credit), credit)
        };
        Decision { verdict, limit: self.quota.limit(), remaining, retry_after, reset_after }
    }

    /// The time until a unit has grown back of which `credit` exists already.
    #[inline]
    pub(crate) const fn until_one(&self, credit: Span) -> Span {
        self.emission_interval().wrapping_sub(credit)
    }

    /// How many whole units grow back in `span`.
    #[inline]
    pub(crate) fn units_in(&self, span: Span) -> u64 {
        span.div_floor_by(self.emission_interval)
    }
}

/// The part of the burst that the debt leaves for a cost.
#[derive(Clone, Copy)]
pub(crate) enum Weighed {
    /// It is allowed.
    Fits {
        /// When the earlier debt is paid off, at the earliest now.
        from: Timestamp,
        /// When the debt after it is paid off.
        next: Timestamp,
        /// The rest of the burst after it.
        credit: Span,
    },
    /// It is denied.
    Denied {
        /// The time until it is allowed.
        wait: Span,
        /// The part of the burst that the debt leaves.
        credit: Span,
    },
}

const fn emission_interval(quota: &Quota, burst: u64) -> Span {
    let units = if quota.is_strict() {
        quota.limit().saturating_sub(burst).saturating_add(1)
    } else {
        quota.limit()
    };
    Span::from_nanos(quota.window().as_nanos().div_ceil(units))
}

/// The largest burst whose span is allowed; the span grows with the burst, so it is found by
/// halving.
const fn largest_burst(quota: &Quota) -> u64 {
    let (mut fits, mut too_large): (u64, u64) = (1, quota.burst());
    while fits.saturating_add(1) < too_large {
        let middle = fits.midpoint(too_large);
        let span = emission_interval(quota, middle).saturating_mul(middle);
        if span.as_nanos() > MAX_BURST_SPAN.as_nanos() {
            too_large = middle;
        } else {
            fits = middle;
        }
    }
    fits
}
