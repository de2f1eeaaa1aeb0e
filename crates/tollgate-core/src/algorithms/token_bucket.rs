//! Token bucket: the same decisions as GCRA, expressed in tokens.
//!
//! State: how many of the `burst` tokens are missing, and when that was counted. One token comes
//! back every T: `missing - floor((now - refilled_at) / T)` are missing at `now`, and a cost is
//! allowed when `missing + cost <= burst`. The state counts missing tokens, not tokens, so that all
//! zero bytes are a full bucket at any `now`. GCRA's TAT is `refilled_at + missing x T`.
//!
//! Bound: as GCRA, any half-open window w allows at most `burst + ceil(w / T) - 1`.
//!
//! Source: Turner, "New directions in communications", IEEE Communications Magazine 24 (10), 1986;
//! RFC 2697, RFC 2698.
//!
//! Deliberately not here: fractions of a token. The time towards the next token is kept in
//! `refilled_at`, which moves by whole T only, so nothing is lost to rounding.

use crate::algorithms::rate::{Rate, Weighed};
use crate::algorithms::step::Step;
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, Span, Timestamp};

/// The parameters of the token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket(Rate);

/// The state of the token bucket. All zero is a full bucket: "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucketState {
    /// The tokens missing from a full bucket at `refilled_at`.
    pub missing: u64,
    /// When whole tokens were last put back.
    pub refilled_at: Timestamp,
}

impl TokenBucket {
    /// The parameters for `quota`. Limit 5 per second, burst 10: a bucket of 10, a token every 200
    /// ms.
    ///
    /// # Errors
    /// A strict quota whose burst exceeds its limit, or takes too long to grow back.
    pub const fn new(quota: Quota) -> Result<Self, QuotaError> {
        match Rate::new(quota) {
            Ok(rate) => Ok(Self(rate)),
            Err(error) => Err(error),
        }
    }

    /// The decision on `cost` at `now` and the state after it; the same state when denied or when
    /// `cost` is 0. Never fails.
    #[must_use]
    #[inline]
    pub fn check(
        &self,
        state: TokenBucketState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, TokenBucketState) {
        let rate = &self.0;
        let burst = rate.quota.burst();
        let now = now.min(LATEST);
        let bucket = self.refill(state, now);
        let debt = self.debt(bucket, now);
        let standing = rate.debt_within_skew(debt, cost);
        if cost > burst {
            return (rate.decision(Verdict::Deny, standing, None), state);
        }
        if standing != debt {
            return self.restart(state, now, cost);
        }
        if cost > 0 && self.missing_at(bucket, now).saturating_add(cost) > burst {
            let needed = debt.saturating_add(rate.span_of(cost));
            let retry_after = needed.saturating_sub(rate.burst_span);
            return (rate.decision(Verdict::Deny, debt, Some(retry_after)), state);
        }
        let next = TokenBucketState { missing: bucket.missing.saturating_add(cost), ..bucket };
        let decision = rate.decision(Verdict::Allow, self.debt(next, now), None);
        (decision, if cost == 0 { state } else { next })
    }

    /// The state with `charge` taken back at `now`. Exact when `now` is the time of the charge;
    /// later, tokens that have been refilled by then are not given back, so that no window ever
    /// exceeds the bound.
    #[must_use]
    pub fn refund(
        &self,
        state: TokenBucketState,
        charge: Charge,
        now: Timestamp,
    ) -> TokenBucketState {
        let interval = self.0.emission_interval();
        let owed = self.0.owed(&charge, now);
        // Whole tokens, rounded up; `refilled_at` takes the excess back.
        let tokens = owed.div_ceil(interval).min(state.missing);
        let span = interval.saturating_mul(tokens);
        let refilled_at = state
            .refilled_at
            .saturating_add(span.saturating_sub(owed))
            .saturating_sub(owed.saturating_sub(span));
        TokenBucketState { missing: state.missing.saturating_sub(tokens), refilled_at }
    }

    /// The state after a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    /// It can have more tokens missing than the bucket holds.
    #[must_use]
    pub fn debit(&self, state: TokenBucketState, units: u64, now: Timestamp) -> TokenBucketState {
        let full_at = self.idle_at(state);
        let next_at = self.0.debited(full_at, now, units);
        if next_at == full_at { state } else { self.paid_off(next_at, now) }
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten.
    #[must_use]
    pub const fn idle_at(&self, state: TokenBucketState) -> Timestamp {
        state.refilled_at.saturating_add(self.0.span_of(state.missing))
    }

    /// The state in which all is paid off at `paid_off_at`: the tokens that are missing at `now`,
    /// and the part of the first of them that has come back.
    pub(crate) const fn paid_off(
        &self,
        paid_off_at: Timestamp,
        now: Timestamp,
    ) -> TokenBucketState {
        let missing = paid_off_at.since(now).div_ceil(self.0.emission_interval());
        let counted_at = paid_off_at.since(Timestamp::ZERO);
        match counted_at.checked_sub(self.0.span_of(missing)) {
            Some(span) => {
                TokenBucketState { missing, refilled_at: Timestamp::ZERO.saturating_add(span) }
            }
            None => {
                // Before the epoch, the rest of the first token is counted as a late clock would
                // count it.
                let missing = missing.saturating_sub(1);
                let refilled_at = paid_off_at.saturating_sub(self.0.span_of(missing));
                TokenBucketState { missing, refilled_at }
            }
        }
    }

    /// The rate that decides.
    pub(crate) const fn rate(&self) -> &Rate {
        &self.0
    }

    /// The algorithm's quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.0.quota
    }

    /// Units allowed at most in any half-open window as long as the quota's: burst + ceil(window /
    /// T) - 1.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        self.0.max_in_window()
    }

    /// When no token is missing any more; `None` unless a clock that is not late can have left this
    /// state.
    #[inline]
    const fn full_at(&self, state: TokenBucketState, now: Timestamp) -> Option<Timestamp> {
        let is_usual =
            state.missing <= self.0.quota.burst() && state.refilled_at.as_nanos() <= now.as_nanos();
        if is_usual {
            Some(state.refilled_at.wrapping_add(self.0.span_within_burst(state.missing)))
        } else {
            None
        }
    }

    /// The bucket with the whole tokens put back that came since; unchanged on a late clock.
    fn refill(&self, state: TokenBucketState, now: Timestamp) -> TokenBucketState {
        let interval = self.0.emission_interval();
        let tokens = now.since(state.refilled_at).div_floor(interval);
        if tokens >= state.missing {
            return TokenBucketState { missing: 0, refilled_at: now.max(state.refilled_at) };
        }
        TokenBucketState {
            missing: state.missing.saturating_sub(tokens),
            refilled_at: state.refilled_at.saturating_add(interval.saturating_mul(tokens)),
        }
    }

    /// The tokens missing at `now`: a late clock waits for ceil((refilled_at - now) / T) more.
    const fn missing_at(&self, bucket: TokenBucketState, now: Timestamp) -> u64 {
        let late = bucket.refilled_at.since(now).div_ceil(self.0.emission_interval());
        bucket.missing.saturating_add(late)
    }

    /// The time until the bucket is full: T for every missing token, less the elapsed part of the
    /// first.
    const fn debt(&self, bucket: TokenBucketState, now: Timestamp) -> Span {
        bucket.refilled_at.saturating_add(self.0.span_of(bucket.missing)).since(now)
    }

    /// After the clock was reset: the cost is allowed, and the bucket is then empty.
    fn restart(
        &self,
        state: TokenBucketState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, TokenBucketState) {
        if cost == 0 {
            return (self.0.decision(Verdict::Allow, Span::ZERO, None), state);
        }
        let empty = TokenBucketState { missing: self.0.quota.burst(), refilled_at: now };
        (self.0.decision(Verdict::Allow, self.0.burst_span, None), empty)
    }
}

impl Step for TokenBucket {
    type State = TokenBucketState;

    fn limit(&self) -> u64 {
        self.quota().limit()
    }

    /// One division: the tokens that came back are counted when a cost is allowed, and the
    /// remaining ones are the burst without those that are missing then.
    #[inline]
    fn check_fast(
        &self,
        state: TokenBucketState,
        now: Timestamp,
        cost: u64,
        record: impl FnOnce(TokenBucketState),
    ) -> Option<Decision> {
        let rate = &self.0;
        let TokenBucketState { missing, refilled_at } = state;
        let burst = rate.quota.burst();
        Some(match rate.weigh(self.full_at(state, now)?, now, cost)? {
            Weighed::Fits { from, credit, .. } => {
                // Full at or before now: nothing is missing, and the next token begins to come back
                // now.
                let bucket = if from == now {
                    TokenBucketState { missing: cost, refilled_at: now }
                } else {
                    let tokens = rate.units_in(now.wrapping_since(refilled_at));
                    TokenBucketState {
                        missing: missing.wrapping_sub(tokens).wrapping_add(cost),
                        refilled_at: refilled_at.wrapping_add(rate.span_within_burst(tokens)),
                    }
                };
                record(bucket);
                let remaining = burst.wrapping_sub(bucket.missing);
                let reset_after = if remaining == 0 { rate.until_one(credit) } else { credit };
                Decision {
                    verdict: Verdict::Allow,
                    limit: rate.quota.limit(),
                    remaining,
                    retry_after: None,
                    reset_after,
                }
            }
            Weighed::Denied { wait, credit } => rate.denial(credit, wait),
        })
    }

    #[inline]
    fn look_fast(&self, state: TokenBucketState, now: Timestamp) -> Option<Decision> {
        self.0.look(self.full_at(state, now)?, now)
    }

    fn check_slow(
        &self,
        state: TokenBucketState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, TokenBucketState) {
        self.check(state, now, cost)
    }
}

impl Encoded for TokenBucketState {
    const LEN: usize = 16;

    fn decode(bytes: &[u8]) -> Self {
        Self { missing: read_u64(bytes, 0), refilled_at: Timestamp::from_nanos(read_u64(bytes, 1)) }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.missing);
        write_u64(bytes, 1, self.refilled_at.as_nanos());
    }
}
