//! Sliding buckets: a rolling window counted in N parts.
//!
//! State: the index of the newest sub-window, `floor(now / sub)` with `sub = ceil(window / N)`, and a
//! ring of N + 1 counters, so that the sub-window which the window's start falls in is counted whole.
//! A sub-window counts until one window after its end; a cost is admitted when
//! `the sum of those that count + cost <= limit`.
//!
//! Bound: at most `limit` in any half-open window, never over. The price is on the other side: a unit comes
//! back at most one sub-window later than an exact log would give it back.
//!
//! Source: Figma, "An alternative approach to rate limiting", 2017 (60 sub-windows).
//!
//! Deliberately not here: weights. The oldest sub-window counts whole, so no estimate can be wrong.

use crate::algorithms::ring::Counted;
use crate::algorithms::skew::{effective_now, is_foreign, kept};
use crate::decision::{Charge, Decision};
use crate::encoding::{position, read_u32, read_u64, write_u32, write_u64};
use crate::quota::{MAX_BUCKETS, MAX_LIMIT_OF_BUCKETS, MIN_BUCKETS, Quota, QuotaError};
use crate::time::{LATEST, Span, Timestamp};

/// The `u32`s before the first counter: the index of the newest sub-window takes two.
const HEADER_WORDS: u64 = 2;

/// The parameters of the sliding buckets. The state is [`SlidingBuckets::state_len`] bytes: the index
/// of the newest sub-window (`u64`), then the counter of sub-window `k` (`u32`) at `k mod (N + 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingBuckets {
    quota: Quota,
    buckets: u16,
    /// N + 1.
    counters: u64,
    sub_window: Span,
}

/// A state as it stands at one time.
#[derive(Clone, Copy)]
struct Moment {
    now: Timestamp,
    /// The sub-window to count in: that of `now`, or the newest one on a late clock.
    index: u64,
    /// The sub-windows of the ring that count, from `first` up to but without `end`. None when the
    /// clock was set anew: the ring is then replaced by `used` units in `index`.
    first: u64,
    end: u64,
    /// The units that count.
    used: u64,
    is_anew: bool,
}

impl SlidingBuckets {
    /// The parameters for `quota` in `buckets` parts. Limit 100 per 60 s in 60 parts: a unit comes back
    /// between 60 s and 61 s after it was used.
    ///
    /// # Errors
    /// A burst that differs from the limit, a limit above [`MAX_LIMIT_OF_BUCKETS`], and `buckets` outside
    /// [`MIN_BUCKETS`] to [`MAX_BUCKETS`].
    pub const fn new(quota: Quota, buckets: u16) -> Result<Self, QuotaError> {
        if quota.burst() != quota.limit() {
            return Err(QuotaError::NoBurst);
        }
        if quota.limit() > MAX_LIMIT_OF_BUCKETS {
            return Err(QuotaError::LimitOfAlgorithm { max_limit: MAX_LIMIT_OF_BUCKETS });
        }
        if buckets < MIN_BUCKETS || buckets > MAX_BUCKETS {
            return Err(QuotaError::Buckets);
        }
        let [low, high] = buckets.to_le_bytes(); // `u64::from` is not const
        let parts = u64::from_le_bytes([low, high, 0, 0, 0, 0, 0, 0]);
        let sub_window = Span::from_nanos(quota.window().as_nanos().div_ceil(parts));
        Ok(Self { quota, buckets, counters: parts.saturating_add(1), sub_window })
    }

    /// Bytes of one state: 8 + 4 x (N + 1), at most 1,452.
    #[must_use]
    pub const fn state_len(&self) -> usize {
        position(self.counters.saturating_add(HEADER_WORDS).saturating_mul(4))
    }

    /// Decides on `cost` at `now` and, when admitted, records it in `state`. Never fails.
    pub fn check(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        let moment = self.moment(state, now, cost);
        let decision = self.decide(state, moment, cost);
        if decision.is_admitted() && cost > 0 {
            self.record(state, moment, cost);
        }
        decision
    }

    /// What [`SlidingBuckets::check`] would answer, without recording anything.
    #[must_use]
    pub fn peek(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        self.decide(state, self.moment(state, now, cost), cost)
    }

    /// Takes `charge` back at `now`: exact while its sub-window is in the ring; later there is nothing left
    /// to give back. What a late clock charged to a later sub-window is given back to the earlier one.
    pub fn refund(&self, state: &mut [u8], charge: Charge, now: Timestamp) {
        let charged_at = charge.at.min(LATEST);
        let index = charged_at.index_of(self.sub_window);
        let newest = read_u64(state, 0);
        if is_foreign(charged_at, now)
            || index > newest
            || newest.saturating_sub(index) >= self.counters
        {
            return;
        }
        let cost = u32::try_from(charge.cost).unwrap_or(u32::MAX);
        let count = self.count(state, index).saturating_sub(cost);
        self.set_count(state, index, count);
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten.
    #[must_use]
    pub fn idle_at(&self, state: &[u8]) -> Timestamp {
        let newest = read_u64(state, 0);
        let end = newest.saturating_add(1);
        let first = end.saturating_sub(self.counters);
        let used = self.counts(state, first, end).filter(|(_, count)| *count > 0);
        // With nothing counted a late clock is still told when the newest sub-window leaves.
        let empty_at = Timestamp::start_of(newest, self.sub_window);
        used.last().map_or(empty_at, |(index, _)| self.leaves_at(index))
    }

    /// The quota that is held.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// N: the parts of the window.
    #[must_use]
    pub const fn buckets(&self) -> u16 {
        self.buckets
    }

    /// Units admitted at most in any half-open window as long as the quota's: the limit.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        self.quota.limit()
    }

    fn moment(&self, state: &[u8], now: Timestamp, cost: u64) -> Moment {
        let now = now.min(LATEST);
        let newest = read_u64(state, 0);
        let end = newest.saturating_add(1);
        let in_ring = end.saturating_sub(self.counters);
        let sum = |first| self.counts(state, first, end).map(|(_, count)| count).sum();
        let Some(at) = effective_now(Timestamp::start_of(newest, self.sub_window), now) else {
            let index = now.index_of(self.sub_window);
            let used = kept(sum(in_ring), self.quota.limit(), cost);
            return Moment { now, index, first: 0, end: 0, used, is_anew: true };
        };
        // leaves_at(k) > at holds from k = floor((at - window) / sub) on.
        let counting = at.saturating_sub(self.quota.window()).index_of(self.sub_window);
        let first = in_ring.max(counting);
        let index = at.index_of(self.sub_window);
        Moment { now, index, first, end, used: sum(first), is_anew: false }
    }

    fn decide(&self, state: &[u8], moment: Moment, cost: u64) -> Decision {
        let counted = Counted { limit: self.quota.limit(), used: moment.used, now: moment.now };
        counted.decide(cost, |units| self.left_at(state, moment, units))
    }

    /// When the oldest `units` have left. What is not in the ring (yet) is in `moment.index`.
    fn left_at(&self, state: &[u8], moment: Moment, units: u64) -> Timestamp {
        let mut missing = units;
        for (index, count) in self.counts(state, moment.first, moment.end) {
            missing = missing.saturating_sub(count);
            if missing == 0 {
                return self.leaves_at(index);
            }
        }
        self.leaves_at(moment.index)
    }

    /// When the `index`-th sub-window stops counting: one window after its end.
    const fn leaves_at(&self, index: u64) -> Timestamp {
        let end_at = Timestamp::start_of(index, self.sub_window).saturating_add(self.sub_window);
        end_at.saturating_add(self.quota.window())
    }

    fn record(&self, state: &mut [u8], moment: Moment, cost: u64) {
        // The counters from `end` to `index` still hold what was counted a turn of the ring ago.
        let oldest = moment.index.saturating_add(1).saturating_sub(self.counters);
        let stale = if moment.is_anew { oldest } else { moment.end.max(oldest) };
        for index in stale..=moment.index {
            self.set_count(state, index, 0);
        }
        let before =
            if moment.is_anew { moment.used } else { u64::from(self.count(state, moment.index)) };
        let count = u32::try_from(before.saturating_add(cost)).unwrap_or(u32::MAX);
        self.set_count(state, moment.index, count);
        write_u64(state, 0, moment.index);
    }

    /// The sub-windows from `first` up to but without `end`, at most a ring of them, with their counts.
    fn counts(&self, state: &[u8], first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let start = first.checked_rem(self.counters).unwrap_or(0);
        let places = (start..self.counters).chain(0..start);
        let count =
            |place: u64| u64::from(read_u32(state, position(place.saturating_add(HEADER_WORDS))));
        (first..end).zip(places.map(count))
    }

    fn count(&self, state: &[u8], index: u64) -> u32 {
        read_u32(state, self.place(index))
    }

    fn set_count(&self, state: &mut [u8], index: u64, count: u32) {
        write_u32(state, self.place(index), count);
    }

    /// Where the counter of the `index`-th sub-window is, as a number of `u32`s.
    const fn place(&self, index: u64) -> usize {
        let Some(place) = index.checked_rem(self.counters) else { return usize::MAX };
        position(place.saturating_add(HEADER_WORDS))
    }
}
