//! GCRA: the generic cell rate algorithm, the default in the proxy.
//!
//! State: the theoretical arrival time (TAT) of the next unit if units came exactly T apart. A cost
//! is admitted when `max(TAT, now) + cost x T <= now + burst x T`, and that sum is the next TAT.
//!
//! Bound: any half-open window w admits at most `burst + ceil(w / T) - 1`; with `strict`,
//! T = ceil(window / (limit - burst + 1)) makes that at most `limit`. T rounds up, so rounding never
//! admits more than the quota.
//!
//! Source: ITU-T I.371 (virtual scheduling), ATM Forum Traffic Management 4.1, annex C.
//!
//! Deliberately not here: the time of the last request. TAT never falls while the clock is within
//! [`ALLOWED_SKEW`], so a clock that oscillates credits no interval twice.

use crate::Charge;
use crate::decision::{Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{ALLOWED_SKEW, Span, Timestamp};

/// The parameters of GCRA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    limit: u64,
    burst: u64,
    /// T: the time one unit takes to grow back, rounded up.
    emission_interval: Span,
    /// T x burst: the debt that a key may carry.
    burst_span: Span,
}

/// The state of GCRA: when the debt is paid off. Zero, or any time not after now, is "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcraState {
    /// TAT: the time from which the quota is whole again.
    pub theoretical_arrival_at: Timestamp,
}

impl Gcra {
    /// The parameters for `quota`. Limit 100 per 60 s, burst 20: T is 600 ms, the debt at most 12 s.
    ///
    /// # Errors
    /// A strict quota whose burst exceeds its limit.
    pub const fn new(quota: Quota) -> Result<Self, QuotaError> {
        let emission_interval = match emission_interval(&quota) {
            Ok(interval) => interval,
            Err(error) => return Err(error),
        };
        let burst_span = emission_interval.saturating_mul(quota.burst());
        Ok(Self { limit: quota.limit(), burst: quota.burst(), emission_interval, burst_span })
    }

    /// The decision on `cost` at `now` and the state after it; the same state when denied or when
    /// `cost` is 0. Never fails.
    #[must_use]
    pub fn check(&self, state: GcraState, now: Timestamp, cost: u64) -> (Decision, GcraState) {
        let arrival_at = self.clamp(state, now).max(now);
        let full_at = now.saturating_add(self.burst_span);
        if cost > self.burst {
            return (self.deny(arrival_at, full_at, None), state);
        }
        let next_at = arrival_at.saturating_add(self.emission_interval.saturating_mul(cost));
        if next_at > full_at && cost > 0 {
            return (self.deny(arrival_at, full_at, Some(next_at.since(full_at))), state);
        }
        let decision = Decision {
            verdict: Verdict::Allow,
            limit: self.limit,
            remaining: self.remaining(next_at, full_at),
            retry_after: None,
            reset_after: self.reset_after(next_at, full_at),
        };
        let next = if cost == 0 { state } else { GcraState { theoretical_arrival_at: next_at } };
        (decision, next)
    }

    /// The state with `charge` taken back at `now`. Exact when `now` is the time of the charge; later, what
    /// has drained by then is not given back, so that no window ever exceeds the bound.
    #[must_use]
    pub fn refund(&self, state: GcraState, charge: Charge, now: Timestamp) -> GcraState {
        let cost_span = self.emission_interval.saturating_mul(charge.cost);
        let owed = charge.at.saturating_add(cost_span).since(now).min(cost_span);
        GcraState { theoretical_arrival_at: state.theoretical_arrival_at.saturating_sub(owed) }
    }

    /// The quota's limit, in quota units per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten.
    #[must_use]
    pub const fn idle_at(&self, state: GcraState) -> Timestamp {
        state.theoretical_arrival_at
    }

    /// TAT brought within what this quota could have left: a clock further back than the allowed
    /// skew was set anew, and the debt is then one burst at most.
    fn clamp(&self, state: GcraState, now: Timestamp) -> Timestamp {
        let full_at = now.saturating_add(self.burst_span);
        let arrival_at = state.theoretical_arrival_at;
        if arrival_at.since(full_at) > ALLOWED_SKEW { full_at } else { arrival_at }
    }

    fn deny(
        &self,
        arrival_at: Timestamp,
        full_at: Timestamp,
        retry_after: Option<Span>,
    ) -> Decision {
        Decision {
            verdict: Verdict::Deny,
            limit: self.limit,
            remaining: self.remaining(arrival_at, full_at),
            retry_after,
            reset_after: self.reset_after(arrival_at, full_at),
        }
    }

    /// floor(d / T), where d is the credit left.
    const fn remaining(&self, arrival_at: Timestamp, full_at: Timestamp) -> u64 {
        full_at.since(arrival_at).div_floor(self.emission_interval)
    }

    /// d while a unit is left, otherwise the time until one is (HEADERS.md).
    fn reset_after(&self, arrival_at: Timestamp, full_at: Timestamp) -> Span {
        let credit = full_at.since(arrival_at);
        if credit >= self.emission_interval {
            credit
        } else {
            arrival_at.saturating_add(self.emission_interval).since(full_at)
        }
    }
}

/// T of GCRA and its kin: ceil(window / limit), or ceil(window / (limit - burst + 1)) when strict.
pub(crate) const fn emission_interval(quota: &Quota) -> Result<Span, QuotaError> {
    let units = if quota.is_strict() {
        if quota.burst() > quota.limit() {
            return Err(QuotaError::StrictBurst { max_burst: quota.limit() });
        }
        quota.limit().saturating_sub(quota.burst()).saturating_add(1)
    } else {
        quota.limit()
    };
    Ok(Span::from_nanos(quota.window().as_nanos().div_ceil(units)))
}

impl Encoded for GcraState {
    const LEN: usize = 8;

    fn decode(bytes: &[u8]) -> Self {
        Self { theoretical_arrival_at: Timestamp::from_nanos(read_u64(bytes, 0)) }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.theoretical_arrival_at.as_nanos());
    }
}
