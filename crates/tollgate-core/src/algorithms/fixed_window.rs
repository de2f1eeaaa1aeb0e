//! Fixed window: a counter per window aligned to the clock.
//!
//! State: the index of the window, `floor(now / window)` from the clock's epoch, and the units
//! counted in it. A cost is allowed when `count + cost <= limit`.
//!
//! Bound: `2 x limit` in a window across a boundary: the limit at the end of one window and again
//! at the start of the next. That is inherent; use `sliding_window` or `sliding_log` where it
//! matters.
//!
//! Source: common practice (for example nginx, Redis `INCR` with `EXPIRE`); RFC 6585, section 4
//! leaves the counting to the server.
//!
//! Deliberately not here: windows that start at a client's first request. Aligned windows need no
//! start to be agreed on, and `reset_after` is the same for every key.

use crate::algorithms::skew::{effective_now, is_foreign, kept, most_counted};
use crate::algorithms::step::Step;
use crate::decision::{Charge, Decision, Verdict};
use crate::encoding::{Encoded, read_u64, write_u64};
use crate::quota::{Quota, QuotaError};
use crate::time::{LATEST, NEAR, Span, Timestamp};

/// The parameters of the fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    pub(super) quota: Quota,
    /// The last window that begins before [`LATEST`].
    last_index: u64,
}

/// The state of the fixed window. All zero is "never seen".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindowState {
    /// floor(time / window).
    pub index: u64,
    /// The units allowed in that window.
    pub count: u64,
}

impl FixedWindow {
    /// The parameters for `quota`. Limit 100 per 60 s: at most 100 between two full minutes.
    ///
    /// # Errors
    /// A burst that differs from the limit, and a strict quota.
    pub const fn new(quota: Quota) -> Result<Self, QuotaError> {
        if quota.burst() != quota.limit() {
            return Err(QuotaError::NoBurst);
        }
        if quota.is_strict() {
            return Err(QuotaError::NoStrict);
        }
        Ok(Self { last_index: LATEST.index_of(quota.window()), quota })
    }

    /// The decision on `cost` at `now` and the state after it; the same state when denied or when
    /// `cost` is 0. Never fails.
    #[must_use]
    #[inline]
    pub fn check(
        &self,
        state: FixedWindowState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, FixedWindowState) {
        let now = now.min(LATEST);
        let allowed = self.quota.burst();
        let window = self.bring_to(state, now, cost, allowed);
        let reset_after = end_of(window.index, self.quota.window()).since(now);
        let decision = Decision::of_count(allowed, window.count, cost, reset_after);
        if !decision.is_admitted() || cost == 0 {
            return (decision, state);
        }
        let window = self.bring_to(state, now, cost, self.quota.limit());
        (decision, FixedWindowState { count: window.count.saturating_add(cost), ..window })
    }

    /// The state with `charge` taken back at `now`: exact while its window is the one counted;
    /// later there is nothing left to give back. Units that a late clock charged to the next window
    /// stay charged.
    #[must_use]
    pub fn refund(
        &self,
        state: FixedWindowState,
        charge: Charge,
        now: Timestamp,
    ) -> FixedWindowState {
        let charged_at = charge.at.min(LATEST);
        if is_foreign(charged_at, now) || charged_at.index_of(self.quota.window()) != state.index {
            return state;
        }
        FixedWindowState { count: state.count.saturating_sub(charge.cost), ..state }
    }

    /// The state after a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    #[must_use]
    pub fn debit(&self, state: FixedWindowState, units: u64, now: Timestamp) -> FixedWindowState {
        let limit = self.quota.limit();
        let window = self.bring_to(state, now, units.min(limit), limit);
        let most = most_counted(limit).max(window.count);
        FixedWindowState { count: window.count.saturating_add(units).min(most), ..window }
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten: the end
    /// of its window, or its start when nothing is counted in it.
    #[must_use]
    pub const fn idle_at(&self, state: FixedWindowState) -> Timestamp {
        // Before the start, a late clock still gets the end of this window.
        let start = Timestamp::start_of(state.index, self.quota.window());
        if state.count == 0 { start } else { start.saturating_add(self.quota.window()) }
    }

    /// The algorithm's quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Units allowed at most in any half-open window as long as the quota's: 2 x limit.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        self.quota.limit().saturating_mul(2)
    }

    /// The units of the window that `now` counts in.
    pub(crate) fn counted(&self, state: FixedWindowState, now: Timestamp) -> u64 {
        self.bring_to(state, now.min(LATEST), 0, self.quota.limit()).count
    }

    /// The window that `now` counts in. A foreign count is kept as far as `cost` fits in `limit`.
    fn bring_to(
        &self,
        state: FixedWindowState,
        now: Timestamp,
        cost: u64,
        limit: u64,
    ) -> FixedWindowState {
        let span = self.quota.window();
        let index = now.index_of(span);
        if index == state.index {
            return state;
        }
        if index > state.index {
            return FixedWindowState { index, count: 0 };
        }
        match effective_now(Timestamp::start_of(state.index, span), now) {
            Some(_) => state,
            None => FixedWindowState { index, count: kept(state.count, limit, cost) },
        }
    }
}

/// The end of the `index`-th window.
const fn end_of(index: u64, window: Span) -> Timestamp {
    Timestamp::start_of(index, window).saturating_add(window)
}

impl Step for FixedWindow {
    type State = FixedWindowState;

    fn limit(&self) -> u64 {
        self.quota().burst()
    }

    #[inline]
    fn check_fast(
        &self,
        state: FixedWindowState,
        now: Timestamp,
        cost: u64,
        record: impl FnOnce(FixedWindowState),
    ) -> Option<Decision> {
        // One comparison for both ends: 0 becomes the greatest number.
        if cost.wrapping_sub(1) >= self.quota.burst() {
            return None;
        }
        let look = self.look_fast(state, now)?;
        Some(match look.remaining.checked_sub(cost) {
            Some(remaining) => {
                record(FixedWindowState { count: state.count.wrapping_add(cost), ..state });
                Decision { remaining, ..look }
            }
            None => {
                Decision { verdict: Verdict::Deny, retry_after: Some(look.reset_after), ..look }
            }
        })
    }

    /// In the window that is counted; a multiplication, not a division, shows whether it is the
    /// same.
    #[inline]
    fn look_fast(&self, state: FixedWindowState, now: Timestamp) -> Option<Decision> {
        let (limit, window) = (self.quota.burst(), self.quota.window());
        if now > NEAR || state.index > self.last_index {
            return None;
        }
        let start_at = Timestamp::from_nanos(window.as_nanos().wrapping_mul(state.index));
        let elapsed = now.checked_since(start_at).filter(|elapsed| *elapsed < window)?;
        Some(Decision {
            verdict: Verdict::Allow,
            limit,
            remaining: limit.checked_sub(state.count)?,
            retry_after: None,
            reset_after: window.wrapping_sub(elapsed),
        })
    }

    fn check_slow(
        &self,
        state: FixedWindowState,
        now: Timestamp,
        cost: u64,
    ) -> (Decision, FixedWindowState) {
        self.check(state, now, cost)
    }
}

impl Encoded for FixedWindowState {
    const LEN: usize = 16;

    fn decode(bytes: &[u8]) -> Self {
        Self { index: read_u64(bytes, 0), count: read_u64(bytes, 1) }
    }

    fn encode(self, bytes: &mut [u8]) {
        write_u64(bytes, 0, self.index);
        write_u64(bytes, 1, self.count);
    }
}
