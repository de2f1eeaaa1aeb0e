//! What an exact limiter decides: the definition itself, counted anew for every request.
//!
//! A request is admitted when it and what was admitted in the window before it, `(now - window,
//! now]`, are at most the limit together. Then no half-open window ever holds more, and no request
//! is refused that could be admitted. Invariant: no code is shared with the core; times do not go
//! back, and a window is half-open at both decisions and counts.

use std::collections::VecDeque;
use tollgate_core::{Span, Timestamp};

/// What one client was admitted, by an exact limiter of its own.
#[derive(Clone, Debug)]
pub struct ExactLog {
    limit: u64,
    window: Window,
}

/// The units that lie in the window that ends now.
#[derive(Clone, Debug)]
pub struct Window {
    span: Span,
    units: VecDeque<(Timestamp, u64)>,
    sum: u64,
    most: u64,
}

impl ExactLog {
    /// Nothing was admitted yet.
    #[must_use]
    pub const fn new(limit: u64, window: Span) -> Self {
        Self { limit, window: Window::new(window) }
    }

    /// Whether an exact limiter admits `cost` units at `now`; if it does, they count from then on.
    pub fn admits(&mut self, now: Timestamp, cost: u64) -> bool {
        self.window.end_at(now);
        let fits = self.window.sum + cost <= self.limit;
        if fits {
            self.window.add(now, cost);
        }
        fits
    }
}

impl Window {
    /// An empty one.
    #[must_use]
    pub const fn new(span: Span) -> Self {
        Self { span, units: VecDeque::new(), sum: 0, most: 0 }
    }

    /// Counts `units` at `now`, which is not earlier than any before.
    pub fn add(&mut self, now: Timestamp, units: u64) {
        self.end_at(now);
        self.units.push_back((now, units));
        self.sum += units;
        self.most = self.most.max(self.sum);
    }

    /// The most units that were ever in one half-open window.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// What is a whole window old has left.
    fn end_at(&mut self, now: Timestamp) {
        while let Some((at, units)) = self.units.front().copied() {
            if now.since(at) < self.span {
                break;
            }
            self.units.pop_front();
            self.sum -= units;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_unit_leaves_when_it_is_a_window_old_and_not_a_nanosecond_before() {
        let mut log = ExactLog::new(3, Span::from_secs(1));
        assert!(log.admits(ms(0), 2));
        assert!(!log.admits(ms(10), 2));
        assert!(log.admits(ms(10), 1));
        assert!(!log.admits(Timestamp::from_nanos(999_999_999), 1));
        assert!(log.admits(ms(1_000), 2));
        assert!(!log.admits(ms(1_000), 1));
        assert!(!log.admits(ms(5_000), 4), "never fits");
        assert!(log.admits(ms(5_000), 3));
    }

    #[test]
    fn the_fullest_window_is_remembered() {
        let mut window = Window::new(Span::from_secs(1));
        for (at, units) in [(0, 2), (999, 1), (1_000, 1), (3_000, 1)] {
            window.add(ms(at), units);
        }
        assert_eq!(window.most(), 3);
    }
}
