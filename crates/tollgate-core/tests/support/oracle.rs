//! A naive oracle that keeps the whole history and computes in one line the cost that is allowed.
//! Its arithmetic is exact (`i128`, products in place of quotients) and shares no code with the
//! core.
//!
//! The oracle only answers "would this cost be admitted at that time?". The numbers of a decision
//! are checked by asking it: `remaining` is allowed and one more is not; `retry_after` is allowed
//! and one nanosecond less is not.

use tollgate_core::{Algorithm, Decision, Limiter, Verdict};

#[derive(Clone, Copy, Debug)]
pub struct Charged {
    /// The time it counts at: that of the request, or the latest before it when the clock was late.
    pub at: i128,
    pub cost: i128,
}

#[derive(Clone)]
pub struct Oracle {
    algorithm: Algorithm,
    limit: i128,
    burst: i128,
    window: i128,
    strict: bool,
    pub history: Vec<Charged>,
    /// The latest time anything was counted at, even if taken back since.
    pub latest: i128,
}

impl Oracle {
    pub fn new(limiter: &Limiter) -> Self {
        let quota = limiter.quota();
        Self {
            algorithm: limiter.algorithm(),
            limit: quota.limit().into(),
            burst: quota.burst().into(),
            window: quota.window().as_nanos().into(),
            strict: quota.is_strict(),
            history: Vec::new(),
            latest: 0,
        }
    }

    pub fn admits(&self, now: i128, cost: i128) -> bool {
        cost == 0
            || match self.algorithm {
                Algorithm::FixedWindow => self.fixed_window(now, cost),
                Algorithm::SlidingWindow => self.sliding_window(now, cost),
                Algorithm::SlidingBuckets { buckets, weighted: false } => {
                    self.buckets(now, cost, buckets.into())
                }
                Algorithm::SlidingBuckets { buckets, weighted: true } => {
                    self.weighted_buckets(now, cost, buckets.into())
                }
                Algorithm::SlidingLog => self.log(now, cost),
                _ => self.rate(now, cost),
            }
    }

    /// From every request on, the units allowed since then drain one unit every T: the debt of any
    /// stretch of the history, with the new cost, is at most one burst.
    fn rate(&self, now: i128, cost: i128) -> bool {
        let interval = self.interval();
        let mut units = cost;
        let mut fits = cost <= self.burst;
        for charged in self.history.iter().rev() {
            units += charged.cost;
            fits &= charged.at + units * interval <= now + self.burst * interval;
        }
        fits
    }

    /// The units in the window of the clock.
    fn fixed_window(&self, now: i128, cost: i128) -> bool {
        let index = now.max(self.latest / self.window * self.window) / self.window;
        self.units_in(index * self.window, (index + 1) * self.window) + cost <= self.limit
    }

    /// previous x left / window + current + cost against limit, times window; the floor gives less
    /// than one unit.
    fn sliding_window(&self, now: i128, cost: i128) -> bool {
        let start = self.latest / self.window * self.window;
        let now = now.max(start);
        let start = now / self.window * self.window;
        let previous = self.units_in(start - self.window, start);
        let current = self.units_in(start, start + self.window);
        let left = start + self.window - now;
        let over = previous * left + (current + cost - self.limit) * self.window;
        if self.strict { over <= 0 } else { over < self.window }
    }

    /// A unit counts until one window after the end of its part.
    fn buckets(&self, now: i128, cost: i128, buckets: i128) -> bool {
        let part = self.part(buckets);
        let now = now.max(self.latest / part * part);
        let counts = |c: &&Charged| now < (c.at / part + 1) * part + self.window;
        self.history.iter().filter(counts).map(|c| c.cost).sum::<i128>() + cost <= self.limit
    }

    /// Each part counts in proportion to the time that the window still covers. The oldest is
    /// covered in part or not at all; where N parts are longer than the window, the next one counts
    /// whole until then.
    fn weighted_buckets(&self, now: i128, cost: i128, buckets: i128) -> bool {
        let part = self.part(buckets);
        let now = now.max(self.latest / part * part);
        let index = now / part;
        let mut over = (cost - self.limit) * part;
        for charged in &self.history {
            let end = (charged.at / part + 1) * part;
            let is_oldest = charged.at / part == index - buckets;
            let left = (end + self.window - now).clamp(0, part);
            over += charged.cost * if is_oldest || left == 0 { left } else { part };
        }
        if self.strict { over <= 0 } else { over < part }
    }

    /// A unit counts for one window.
    fn log(&self, now: i128, cost: i128) -> bool {
        let now = now.max(self.latest);
        self.units_in(now - self.window + 1, now + 1) + cost <= self.limit
    }

    fn units_in(&self, start: i128, end: i128) -> i128 {
        let inside = |c: &&Charged| start <= c.at && c.at < end;
        self.history.iter().filter(inside).map(|c| c.cost).sum()
    }

    /// The most that is allowed at `now`.
    pub fn remaining(&self, now: i128) -> i128 {
        (0..self.burst).rev().find(|cost| self.admits(now, cost + 1)).map_or(0, |cost| cost + 1)
    }

    /// Records units that were used whether or not they fit, as documented.
    pub fn debit(&mut self, now: i128, units: i128) {
        match self.algorithm {
            _ if units == 0 => {}
            Algorithm::SlidingLog => {
                let at = now.max(self.latest);
                let mut left: Vec<Charged> = Vec::new();
                for charged in self.history.iter().filter(|c| c.at + self.window > at) {
                    left.extend((0..charged.cost).map(|_| Charged { at: charged.at, cost: 1 }));
                }
                let added = units.min(self.limit);
                let kept = usize::try_from(self.limit - added).expect("small");
                self.history = left.split_off(left.len().saturating_sub(kept));
                self.record(now, added);
            }
            algorithm if algorithm.has_burst() => {
                let (owed, burst) = (self.wait(now), self.burst * self.interval());
                let after = owed.max((owed + units * self.interval()).min(2 * burst));
                self.history.push(Charged { at: now + after, cost: 0 });
            }
            _ => {
                let added = units.min(2 * self.limit - self.counted(now));
                if added > 0 {
                    self.record(now, added);
                }
            }
        }
    }

    /// The units in a window counter at `now`, before any weight.
    fn counted(&self, now: i128) -> i128 {
        match self.algorithm {
            Algorithm::SlidingBuckets { buckets, .. } => {
                let (buckets, part) = (i128::from(buckets), self.part(buckets.into()));
                let index = now.max(self.latest / part * part) / part;
                self.units_in((index - buckets) * part, (index + 1) * part)
            }
            _ => {
                let start = now.max(self.latest / self.window * self.window) / self.window;
                self.units_in(start * self.window, (start + 1) * self.window)
            }
        }
    }

    fn part(&self, buckets: i128) -> i128 {
        (self.window + buckets - 1) / buckets
    }

    /// The history under the quota of `new` from `now` on, as documented.
    pub fn carried(&self, new: &Limiter, now: i128) -> Self {
        let used = self.burst - self.remaining(now);
        let mut next = Self::new(new);
        let is_same_window = self.window == next.window;
        match (self.algorithm, next.algorithm) {
            (Algorithm::SlidingLog, Algorithm::SlidingLog) => {
                let at = now.max(self.latest);
                let units = self.history.iter().flat_map(|c| (0..c.cost).map(|_| c.at));
                let units: Vec<i128> = units.filter(|made_at| made_at + self.window > at).collect();
                for made_at in units.iter().rev().take(new.limit().try_into().expect("small")) {
                    next.history.insert(0, Charged { at: *made_at, cost: 1 });
                }
                next.latest = next.history.iter().map(|c| c.at).max().unwrap_or(0);
            }
            (Algorithm::FixedWindow, Algorithm::FixedWindow) if is_same_window => {
                (next.history, next.latest) = (self.history.clone(), self.latest);
            }
            (Algorithm::SlidingWindow, Algorithm::SlidingWindow) if is_same_window => {
                // No count is used beyond two limits.
                let start = self.latest / self.window * self.window;
                for at in [start - self.window, start] {
                    let cost = self.units_in(at, at + self.window).min(2 * next.limit);
                    next.history.push(Charged { at, cost });
                }
                next.latest = self.latest;
            }
            (
                Algorithm::SlidingBuckets { buckets: parts, .. },
                Algorithm::SlidingBuckets { buckets, .. },
            ) if is_same_window && parts == buckets => {
                (next.history, next.latest) = (self.history.clone(), self.latest);
            }
            (from, to)
                if from.has_burst()
                    && to.has_burst()
                    && (from == Algorithm::LeakyQueue) == (to == Algorithm::LeakyQueue) =>
            {
                let debt = self.wait(now);
                let longest = next.burst * next.interval();
                let units_in_parts = debt * next.interval(); // of an old interval
                let scaled = (units_in_parts + self.interval() - 1) / self.interval();
                let debt = if from == Algorithm::LeakyQueue {
                    debt.min(2 * longest).max(scaled.min(longest))
                } else {
                    scaled.min(longest)
                };
                next.history.push(Charged { at: now + debt, cost: 0 });
            }
            _ => {}
        }
        let lost = used.min(next.burst) - (next.burst - next.remaining(now));
        if lost > 0 {
            next.record(now, lost);
        }
        next
    }

    pub fn interval(&self) -> i128 {
        let units = if self.strict { self.limit - self.burst + 1 } else { self.limit };
        (self.window + units - 1) / units
    }

    /// How long a request of the queue waits: for the end of the last slot taken.
    fn wait(&self, now: i128) -> i128 {
        let mut free_at = now;
        let mut slots_end = i128::MIN;
        for charged in &self.history {
            slots_end = slots_end.max(charged.at) + charged.cost * self.interval();
        }
        free_at = free_at.max(slots_end);
        free_at - now
    }

    pub fn record(&mut self, now: i128, cost: i128) {
        let at = match self.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                now.max(self.latest / self.window * self.window)
            }
            Algorithm::SlidingBuckets { buckets, .. } => {
                let part = self.part(buckets.into());
                now.max(self.latest / part * part)
            }
            Algorithm::SlidingLog => now.max(self.latest),
            _ => now,
        };
        self.latest = self.latest.max(at);
        self.history.push(Charged { at, cost });
    }

    /// Checks every field of a decision, then follows it.
    pub fn follow(&mut self, now: u64, cost: u64, decision: &Decision) {
        let (now, cost) = (i128::from(now), i128::from(cost));
        let admitted = self.admits(now, cost);
        assert_eq!(decision.is_admitted(), admitted, "verdict at {now}, {self:?}");
        assert_eq!(i128::from(decision.limit), self.limit);
        if !admitted {
            self.check_wait(now, cost, decision);
        } else {
            assert_eq!(decision.retry_after, None);
            let queued = self.algorithm == Algorithm::LeakyQueue && cost > 0;
            let expected = if queued { self.wait(now) } else { 0 };
            let wait = match decision.verdict {
                Verdict::Delay(wait) => i128::from(wait.as_nanos()),
                _ => 0,
            };
            assert_eq!(wait, expected, "wait at {now}, {self:?}");
            if cost > 0 {
                self.record(now, cost);
            }
        }
        let remaining = i128::from(decision.remaining);
        assert!(self.admits(now, remaining), "{remaining} remaining at {now}, {self:?}");
        assert!(!self.admits(now, remaining + 1), "{remaining} remaining at {now}, {self:?}");
        if remaining == 0 {
            let reset = i128::from(decision.reset_after.as_nanos());
            assert!(!self.admits(now + reset - 1, 1), "reset early at {now}, {self:?}");
            assert!(self.admits(now + reset, 1), "reset late at {now}, {self:?}");
        }
    }

    fn check_wait(&self, now: i128, cost: i128, decision: &Decision) {
        match decision.retry_after {
            None => assert!(cost > self.burst),
            Some(wait) => {
                let at = now + i128::from(wait.as_nanos());
                assert!(!self.admits(at - 1, cost), "early by {decision:?} at {now}, {self:?}");
                assert!(self.admits(at, cost), "late by {decision:?} at {now}, {self:?}");
            }
        }
    }
}

impl core::fmt::Debug for Oracle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { algorithm, limit, burst, window, strict, history, .. } = self;
        write!(f, "{algorithm:?} {limit}/{window} burst {burst} strict {strict}: {history:?}")
    }
}
