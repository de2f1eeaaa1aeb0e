//! The exact log: the decisions of a limiter that remembers every unit it allowed, and the greatest
//! number of units in any true window.
//!
//! Invariant: the log uses no code of the limiter, so it can verify the limiter. It is a list of
//! times, and sums of `u128`. A window is half-open, `[t, t + window)`: of two requests exactly one
//! window apart the first has left when the second comes. Times are recorded in ascending order.

use std::collections::VecDeque;

use tollgate_core::{Span, Timestamp};

/// A limit of `limit` units in any window, held exactly.
#[derive(Clone, Debug)]
pub struct ExactLog {
    limit: u64,
    count: WindowCount,
}

/// The units in the window that ends now, and the greatest number so far.
#[derive(Clone, Debug)]
pub struct WindowCount {
    window: Span,
    units: VecDeque<(Timestamp, u64)>,
    now: u128,
    most: u128,
    /// Units at the last instant, and the most at any instant.
    at_once: u128,
    most_at_once: u128,
}

impl ExactLog {
    /// An empty log. Every limit and window is exact.
    #[must_use]
    pub const fn new(limit: u64, window: Span) -> Self {
        Self { limit, count: WindowCount::new(window) }
    }

    /// True when `cost` units fit at `at`. Records nothing.
    pub fn admits(&mut self, at: Timestamp, cost: u64) -> bool {
        self.count.at(at).saturating_add(cost.into()) <= self.limit.into()
    }

    /// The same for a request with a limit of its own, at most the log's.
    pub(crate) fn admits_within(&mut self, at: Timestamp, cost: u64, limit: u64) -> bool {
        self.count.at(at).saturating_add(cost.into()) <= limit.min(self.limit).into()
    }

    /// Records that `cost` units were allowed at `at`.
    pub fn record(&mut self, at: Timestamp, cost: u64) {
        self.count.record(at, cost);
    }

    /// Allows and records `cost` units at `at` if they fit.
    pub fn check(&mut self, at: Timestamp, cost: u64) -> bool {
        let admits = self.admits(at, cost);
        if admits {
            self.record(at, cost);
        }
        admits
    }

    /// True when no allowed unit still counts at `at`.
    pub fn is_idle(&mut self, at: Timestamp) -> bool {
        self.count.at(at) == 0
    }
}

impl WindowCount {
    /// An empty count.
    #[must_use]
    pub const fn new(window: Span) -> Self {
        Self { window, units: VecDeque::new(), now: 0, most: 0, at_once: 0, most_at_once: 0 }
    }

    /// Counts `units` at `at`, which is not before any earlier time.
    pub fn record(&mut self, at: Timestamp, units: u64) {
        self.at(at);
        if units == 0 {
            return;
        }
        match self.units.back_mut() {
            Some((last, count)) if *last == at => {
                self.at_once = self.at_once.saturating_add(units.into());
                match count.checked_add(units) {
                    Some(sum) => *count = sum,
                    None => self.units.push_back((at, units)),
                }
            }
            _ => {
                self.at_once = units.into();
                self.units.push_back((at, units));
            }
        }
        self.now = self.now.saturating_add(units.into());
        self.most = self.most.max(self.now);
        self.most_at_once = self.most_at_once.max(self.at_once);
    }

    /// The units in the window that ends with `at`: those after `at - window`.
    pub fn at(&mut self, at: Timestamp) -> u128 {
        while let Some((first, units)) = self.units.front() {
            if at.since(*first) < self.window {
                break;
            }
            self.now = self.now.saturating_sub((*units).into());
            self.units.pop_front();
        }
        self.now
    }

    /// The greatest number of units in any window so far.
    #[must_use]
    pub fn most(&self) -> u64 {
        u64::try_from(self.most).unwrap_or(u64::MAX)
    }

    /// The greatest number of units at one instant so far.
    #[must_use]
    pub fn most_at_once(&self) -> u64 {
        u64::try_from(self.most_at_once).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_unit_counts_for_one_window_and_not_a_moment_longer() {
        let mut log = ExactLog::new(2, Span::from_secs(1));
        assert_eq!([0, 0, 0, 999].map(|ms| log.check(at(ms), 1)), [true, true, false, false]);
        assert_eq!([1_000, 1_500, 1_999].map(|ms| log.check(at(ms), 1)), [true, true, false]);
        assert!(!log.admits(at(2_000), 2) && log.admits(at(2_500), 2));
        assert!(log.check(at(2_500), 0) && !log.check(at(2_500), u64::MAX));
        assert!(log.is_idle(at(2_500)));
    }

    #[test]
    fn the_most_is_over_every_window_and_not_over_those_that_begin_with_a_bin() {
        let mut count = WindowCount::new(Span::from_secs(1));
        for ms in [0, 900, 950, 1_000, 1_050, 3_000] {
            count.record(at(ms), 1);
        }
        count.record(at(3_000), 2);
        assert_eq!((count.most(), count.most_at_once(), count.at(at(4_000))), (4, 3, 0));
        count.record(at(5_000), u64::MAX);
        count.record(at(5_000), u64::MAX);
        assert_eq!((count.most(), count.at(at(5_001))), (u64::MAX, 2 * u128::from(u64::MAX)));
    }
}
