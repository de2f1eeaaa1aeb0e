//! Sliding buckets: a rolling window counted in N parts.
//!
//! State: the index of the newest sub-window, `floor(now / sub)` with `sub = ceil(window / N)`, and
//! a ring of N + 1 counters, so that the sub-window that contains the window's start is counted
//! whole. A sub-window counts until one window after its end; a cost is allowed when `the sum of
//! those that count + cost <= limit`. The sum of the whole ring and the oldest sub-window that has
//! any units are in the state, so that a decision costs the same with 2 parts as with 360: the
//! first that counts is `index - N`, or the next one in the last nanoseconds of a sub-window (N of
//! them may be longer than the window by less than N ns). Units that have left are subtracted from
//! the sum once, and once per window the counters are added up again. A damaged sum is found where
//! a state is read from its store.
//!
//! Bound: at most `limit` in any half-open window, never over. The cost is that a unit comes back
//! at most one sub-window later than an exact log would give it back.
//!
//! *Weighted*, the sub-window that contains the window's start counts in proportion to the part
//! that the window still covers, as the sliding window counts its older half: `its units x left /
//! sub`, rounded down, with `strict` up. On real traffic of a day that reduces the error by a
//! third, with 6 parts as with 60, but the bound becomes `2 x limit`, `strict` one less, by units
//! that are all at the end of one sub-window.
//!
//! Source: Figma, "An alternative approach to rate limiting", 2017 (60 sub-windows, not weighted).
//!
//! Deliberately not here: a fractional estimate, and weights of any other sub-window.

mod units;
use crate::algorithms::counters::{Counters, Header, Reached, Ring, Shape};
use crate::algorithms::ring::Counted;
use crate::algorithms::skew::{effective_now, is_foreign, kept, most_counted};
use crate::algorithms::weight::Weight;
use crate::decision::{Charge, Decision, Verdict};
use crate::quota::{MAX_BUCKETS, MAX_LIMIT_OF_BUCKETS, MIN_BUCKETS, Quota, QuotaError};
use crate::time::{LATEST, Span, Timestamp};

/// The parameters of the sliding buckets. The state is [`SlidingBuckets::state_len`] bytes: the
/// index of the newest sub-window, how much older the oldest one is that has any units, the sum of
/// all counters, and the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingBuckets {
    pub(super) quota: Quota,
    buckets: u16,
    /// The oldest sub-window counts in proportion to the part that the window covers.
    is_weighted: bool,
    shape: Shape,
    sub_window: Span,
    /// How long after its start a sub-window's window no longer reaches into the one N before it:
    /// all of it but the nanoseconds by which N sub-windows are longer than the window.
    reaches_for: Span,
    /// How long after its start a sub-window is one for [`SlidingBuckets::decide_fast`]: as long,
    /// or never where anything is weighted.
    fast_for: Span,
    /// How long a unit counts that is used at the very start of a sub-window.
    counts_for: Span,
    /// The last sub-window that [`SlidingBuckets::decide_fast`] decides in: it ends before
    /// [`LATEST`].
    last: u64,
}

/// A state at one time.
#[derive(Clone, Copy)]
struct Moment {
    now: Timestamp,
    /// The sub-window to count in: that of `now`, or the newest one on a late clock.
    index: u64,
    /// The units in the N + 1 sub-windows up to `index`. All of them count, unless the window no
    /// longer reaches into the first sub-window: that one counts again when the clock steps back.
    ring: Ring,
    /// The units of these that count.
    counting: Ring,
    /// How much of the sub-window N before `index` the window covers.
    left: Span,
    /// True when the clock was reset: the ring is then replaced by the units that count, all in
    /// `index`.
    is_anew: bool,
}

impl SlidingBuckets {
    /// The parameters for `quota` in `buckets` parts. Limit 100 per 60 s in 60 parts: a unit comes
    /// back between 60 s and 61 s after it was used; `weighted`, units of a part count as spread
    /// evenly over it.
    ///
    /// # Errors
    /// A burst that differs from the limit, a limit above [`MAX_LIMIT_OF_BUCKETS`], and `buckets`
    /// outside [`MIN_BUCKETS`] to [`MAX_BUCKETS`].
    pub const fn new(quota: Quota, buckets: u16, weighted: bool) -> Result<Self, QuotaError> {
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
        let longer_by = sub_window.saturating_mul(parts).saturating_sub(quota.window());
        let reaches_for = sub_window.saturating_sub(longer_by);
        let fast_for = if weighted { Span::ZERO } else { reaches_for };
        let counts_for = sub_window.saturating_add(quota.window());
        let last = LATEST.index_of(sub_window).saturating_sub(1);
        let shape = Shape::new(parts);
        Ok(Self {
            quota,
            buckets,
            is_weighted: weighted,
            shape,
            sub_window,
            reaches_for,
            fast_for,
            counts_for,
            last,
        })
    }

    /// Bytes of one state: 16 + 4 x (N + 1), at most 1,460.
    #[must_use]
    pub const fn state_len(&self) -> usize {
        self.shape.state_len()
    }

    /// Decides on `cost` at `now` and, when allowed, records it in `state`. Bytes of another length
    /// than [`SlidingBuckets::state_len`] are not a state, and are denied.
    #[inline(never)]
    pub fn check(&self, state: &mut [u8], now: Timestamp, cost: u64) -> Decision {
        let Some((header, counters)) = self.shape.split_mut(state) else {
            return Decision::of_no_state(self.quota.burst());
        };
        let ring = Ring::read(header, self.shape);
        if let Some((decision, next)) = self.decide_fast(ring, counters, now, cost) {
            if decision.is_admitted() {
                self.shape.add(header, counters, ring.newest, next, cost);
            }
            return decision;
        }
        let moment = self.moment(ring, counters, now, cost);
        let decision = self.decide(counters, &moment, cost);
        if decision.is_admitted() && cost > 0 {
            self.record(header, counters, &moment, cost);
        }
        decision
    }

    /// The decision that [`SlidingBuckets::check`] would return, without recording anything.
    #[must_use]
    #[inline(never)]
    pub fn peek(&self, state: &[u8], now: Timestamp, cost: u64) -> Decision {
        let Some((header, counters)) = self.shape.split(state) else {
            return Decision::of_no_state(self.quota.burst());
        };
        let ring = Ring::read(header, self.shape);
        if let Some((decision, _)) = self.decide_fast(ring, counters, now, cost) {
            return decision;
        }
        let moment = self.moment(ring, counters, now, cost);
        self.decide(counters, &moment, cost)
    }

    /// The decision at once in the usual case, and the ring after it when it is to be recorded. The
    /// usual case has no weights, a clock that is not late, a window that reaches into all of the
    /// ring, and a cost of at least one that can fit. When the cost does not fit now, it only has
    /// to wait for the oldest units. `None` otherwise. No sum here exceeds [`LATEST`].
    #[inline]
    fn decide_fast(
        &self,
        mut ring: Ring,
        counters: &Counters,
        now: Timestamp,
        cost: u64,
    ) -> Option<(Decision, Ring)> {
        let limit = self.quota.burst();
        if ring.newest > self.last || now > LATEST || !(1..=limit).contains(&cost) {
            return None;
        }
        let sub_window = self.sub_window.as_nanos();
        let newest_at = Timestamp::from_nanos(ring.newest.wrapping_mul(sub_window));
        let (mut index, mut elapsed) = (ring.newest, now.checked_since(newest_at)?.as_nanos());
        if elapsed >= sub_window {
            let passed = elapsed.checked_div(sub_window)?;
            index = index.wrapping_add(passed);
            elapsed = elapsed.wrapping_sub(passed.wrapping_mul(sub_window));
        }
        let first = index.checked_sub(self.shape.parts())?;
        if elapsed >= self.fast_for.as_nanos() {
            return None;
        }
        if ring.oldest < first {
            ring = self.shape.without(ring, counters, first);
        }
        if ring.sum == 0 {
            ring.oldest = index;
        }
        let older_by = index.wrapping_sub(ring.oldest).wrapping_mul(sub_window);
        let counted_for = older_by.wrapping_add(elapsed);
        let reset_after = Span::from_nanos(self.counts_for.as_nanos().wrapping_sub(counted_for));
        let sum = ring.sum.wrapping_add(cost);
        let (verdict, remaining, retry_after) = match limit.checked_sub(sum) {
            Some(remaining) => (Verdict::Allow, remaining, None),
            // One unit too many: until the oldest have left.
            None if sum.wrapping_sub(limit) == 1 => {
                (Verdict::Deny, limit.wrapping_sub(ring.sum), Some(reset_after))
            }
            None => return None,
        };
        let decision = Decision { verdict, limit, remaining, retry_after, reset_after };
        Some((decision, Ring { newest: index, oldest: ring.oldest, sum }))
    }

    /// Takes `charge` back at `now`: exact while its sub-window is in the ring; later there is
    /// nothing left to give back. Units that a late clock charged to a later sub-window are given
    /// back to the earlier one.
    pub fn refund(&self, state: &mut [u8], charge: Charge, now: Timestamp) {
        let Some((header, counters)) = self.shape.split_mut(state) else { return };
        let (ring, charged_at) = (Ring::read(header, self.shape), charge.at.min(LATEST));
        if !is_foreign(charged_at, now) {
            let index = charged_at.index_of(self.sub_window);
            self.shape.take(ring, counters, index, charge.cost).write(header);
        }
    }

    /// Records a debit of `units` at `now`; see [`Limiter::debit`](crate::Limiter::debit).
    pub(crate) fn debit(&self, state: &mut [u8], units: u64, now: Timestamp) {
        let Some((header, counters)) = self.shape.split_mut(state) else { return };
        let (ring, limit) = (Ring::read(header, self.shape), self.quota.limit());
        let moment = self.moment(ring, counters, now, units.min(limit));
        let most = most_counted(limit).min(MAX_LIMIT_OF_BUCKETS); // the most that one counter can contain
        let units = units.min(most.saturating_sub(moment.ring.sum));
        if units > 0 {
            self.record(header, counters, &moment, units);
        }
    }

    /// The time from which `state` decides like a state never seen, and may be forgotten; the epoch
    /// for bytes of another length.
    #[must_use]
    pub fn idle_at(&self, state: &[u8]) -> Timestamp {
        let Some((header, counters)) = self.shape.split(state) else { return Timestamp::ZERO };
        let ring = Ring::read(header, self.shape);
        let empty_at = Timestamp::start_of(ring.newest, self.sub_window); // for a late clock
        self.shape.last(ring, counters).map_or(empty_at, |index| self.leaves_at(index))
    }

    /// The ring of a state.
    pub(crate) const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// True where a state of `other` has the same parts at the same times.
    pub(crate) fn has_parts_of(&self, other: &Self) -> bool {
        (self.shape, self.quota.window()) == (other.shape, other.quota.window())
    }

    /// The algorithm's quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// N: the parts of the window.
    #[must_use]
    pub const fn buckets(&self) -> u16 {
        self.buckets
    }

    /// True when the oldest part counts in proportion to the part that the window still covers.
    #[must_use]
    pub const fn is_weighted(&self) -> bool {
        self.is_weighted
    }

    /// Units allowed at most in any half-open window as long as the quota's: the limit; weighted, 2
    /// x limit, one less when strict.
    #[must_use]
    pub const fn max_in_window(&self) -> u64 {
        let limit = self.quota.limit();
        match (self.is_weighted, self.quota.is_strict()) {
            (false, _) => limit,
            (true, false) => limit.saturating_mul(2),
            (true, true) => limit.saturating_mul(2).saturating_sub(1),
        }
    }

    #[inline]
    fn moment(&self, ring: Ring, counters: &Counters, now: Timestamp, cost: u64) -> Moment {
        let now = now.min(LATEST);
        let newest_at = Timestamp::start_of(ring.newest, self.sub_window);
        let Some(at) = effective_now(newest_at, now) else {
            let index = now.index_of(self.sub_window);
            let [ring, counting] = [self.quota.limit(), self.quota.burst()].map(|it| Ring {
                newest: index,
                oldest: index,
                sum: kept(ring.sum, it, cost),
            });
            let left = self.reaches_for;
            return Moment { now, index, ring, counting, left, is_anew: true };
        };
        let mut index = ring.newest;
        let mut elapsed = at.since(newest_at);
        if elapsed >= self.sub_window {
            index = at.index_of(self.sub_window);
            elapsed = at.since(Timestamp::start_of(index, self.sub_window));
        }
        let ring = self.shape.without(ring, counters, index.saturating_sub(self.shape.parts()));
        let mut counting = ring;
        let left = self.reaches_for.saturating_sub(elapsed);
        if left == Span::ZERO {
            let first = index.saturating_add(1).saturating_sub(self.shape.parts());
            counting = self.shape.without(ring, counters, first);
        }
        Moment { now, index, ring, counting, left, is_anew: false }
    }

    #[inline]
    fn decide(&self, counters: &Counters, moment: &Moment, cost: u64) -> Decision {
        let faded = if self.is_weighted { self.faded(counters, moment) } else { 0 };
        let used = moment.counting.sum.saturating_sub(faded);
        let counted = Counted { limit: self.quota.burst(), used, now: moment.now };
        let charged = if counted.admits(cost) { cost } else { 0 };
        counted.decide(cost, |units| {
            if self.is_weighted {
                self.faded_at(counters, moment, faded.saturating_add(units), charged)
            } else {
                self.left_at(counters, moment, units)
            }
        })
    }

    /// When the oldest `units` have left. Units that are not in the ring (yet) are in
    /// `moment.index`.
    fn left_at(&self, counters: &Counters, moment: &Moment, units: u64) -> Timestamp {
        if units > moment.counting.sum || moment.is_anew {
            return self.leaves_at(moment.index);
        }
        self.leaves_at(self.shape.reached_by(moment.counting, counters, units).index)
    }

    /// The units of the oldest sub-window that no longer weigh anything.
    fn faded(&self, counters: &Counters, moment: &Moment) -> u64 {
        let Moment { index, counting, left, is_anew, .. } = *moment;
        let is_oldest = index.checked_sub(self.shape.parts()) == Some(counting.oldest);
        if is_anew || !is_oldest {
            return 0;
        }
        let oldest = Reached { index: counting.oldest, before: 0 };
        let units = self.shape.units(counting, counters, oldest);
        units.saturating_sub(self.weight().of(units, left))
    }

    /// When the oldest `units` no longer weigh anything; `charged` are not in the ring yet.
    fn faded_at(
        &self,
        counters: &Counters,
        moment: &Moment,
        units: u64,
        charged: u64,
    ) -> Timestamp {
        let Moment { index, counting, is_anew, .. } = *moment;
        let newest = match (is_anew, counting.newest == index) {
            (true, _) => counting.sum,
            (false, true) => self.shape.units_of_newest(counting, counters),
            (false, false) => 0,
        };
        // The sub-window that the last of them is in, its units, and those before it.
        let (mut reached, mut of) = (index, newest.saturating_add(charged));
        let mut before = counting.sum.saturating_sub(newest);
        if units <= before {
            let last = self.shape.reached_by(counting, counters, units);
            of = self.shape.units(counting, counters, last);
            Reached { index: reached, before } = last;
        }
        // All but this many of its units may still weigh.
        let room = of.saturating_sub(units.saturating_sub(before));
        let left = self.weight().at_most(of, room).min(self.reaches_for);
        Timestamp::from_nanos(self.leaves_at(reached).as_nanos().saturating_sub(left.as_nanos()))
    }

    const fn weight(&self) -> Weight {
        Weight::new(self.sub_window, &self.quota)
    }

    /// When the `index`-th sub-window stops counting: one window after its end.
    #[inline]
    const fn leaves_at(&self, index: u64) -> Timestamp {
        let end_at = Timestamp::start_of(index, self.sub_window).saturating_add(self.sub_window);
        end_at.saturating_add(self.quota.window())
    }

    /// Counts `cost` in `moment.index`, and writes the resulting ring.
    fn record(&self, header: &mut Header, counters: &mut Counters, moment: &Moment, cost: u64) {
        let Moment { index, ring, .. } = *moment;
        if moment.is_anew {
            counters.fill([0; 4]);
            self.shape.add(header, counters, index, ring, ring.sum);
        }
        let oldest = if ring.sum == 0 { index } else { ring.oldest };
        let next = Ring { newest: index, oldest, sum: ring.sum.saturating_add(cost) };
        self.shape.add(header, counters, ring.newest, next, cost);
    }
}
