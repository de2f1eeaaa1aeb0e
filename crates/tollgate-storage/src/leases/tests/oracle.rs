//! The decisions of one limiter, from the whole history: exact, in `i128`, and without the core.
//!
//! Only for clocks that do not go back.

use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter};

pub struct Oracle {
    algorithm: Algorithm,
    limit: i128,
    burst: i128,
    window: i128,
    is_strict: bool,
    /// The times and the amounts.
    pub history: Vec<(i128, i128)>,
}

impl Oracle {
    pub fn new(limiter: &Limiter) -> Self {
        let quota = limiter.quota();
        Self {
            algorithm: limiter.algorithm(),
            limit: quota.limit().into(),
            burst: quota.burst().into(),
            window: quota.window().as_nanos().into(),
            is_strict: quota.is_strict(),
            history: Vec::new(),
        }
    }

    pub fn admits(&self, now: i128, cost: i128) -> bool {
        match self.algorithm {
            Algorithm::FixedWindow => {
                let start = now / self.window * self.window;
                self.units_in(start, start + self.window) + cost <= self.limit
            }
            Algorithm::SlidingWindow => {
                let start = now / self.window * self.window;
                let previous = self.units_in(start - self.window, start);
                let current = self.units_in(start, start + self.window);
                let left = start + self.window - now;
                let over = previous * left + (current + cost - self.limit) * self.window;
                if self.is_strict { over <= 0 } else { over < self.window }
            }
            Algorithm::SlidingBuckets { buckets, weighted } => {
                let part = (self.window + i128::from(buckets) - 1) / i128::from(buckets);
                let weigh = |(at, units): &(i128, i128)| {
                    let end = (at / part + 1) * part;
                    let left = (end + self.window - now).clamp(0, part);
                    let is_oldest = at / part == now / part - i128::from(buckets);
                    let is_weighed = weighted && is_oldest || left == 0;
                    units * if is_weighed { left } else { part }
                };
                let weight: i128 = self.history.iter().map(weigh).sum();
                let over = weight + (cost - self.limit) * part;
                if weighted && !self.is_strict { over < part } else { over <= 0 }
            }
            Algorithm::SlidingLog => {
                self.units_in(now - self.window + 1, now + 1) + cost <= self.limit
            }
            _ => {
                let units = if self.is_strict { self.limit - self.burst + 1 } else { self.limit };
                let interval = (self.window + units - 1) / units;
                let mut sum = cost;
                let mut fits = cost <= self.burst;
                for (at, units) in self.history.iter().rev() {
                    sum += units;
                    fits &= at + sum * interval <= now + self.burst * interval;
                }
                fits
            }
        }
    }

    fn units_in(&self, start: i128, end: i128) -> i128 {
        let inside = |(at, _): &&(i128, i128)| (start..end).contains(at);
        self.history.iter().filter(inside).map(|(_, units)| units).sum()
    }
}
