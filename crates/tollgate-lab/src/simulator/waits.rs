//! Waits, as a histogram of bounded size.
//!
//! Invariant: a quantile is exact while few different waits were recorded. Otherwise it is never
//! below the true one and at most a 128th above it, because waits are then counted in 128 parts of
//! each power of two. The longest wait is always exact.

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate_core::Span;

/// Parts per power of two, as a power of two.
const PARTS: u32 = 7;

/// The number of different waits that are counted exactly.
const MAX_EXACT: usize = 8_192;

/// The number of times that each wait occurred.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// By length in nanoseconds; by the end of its bucket once there are too many lengths.
    counts: BTreeMap<u64, u64>,
    is_rough: bool,
    count: u64,
    longest: Span,
}

/// The figures on waits, in microseconds, rounded up; 0 when no request waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitFigures {
    /// Half of the waits were at most this long.
    pub p50_us: u64,
    /// 99 of 100 waits were at most this long.
    pub p99_us: u64,
    /// The longest wait.
    pub max_us: u64,
}

impl Waits {
    /// No waits yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one wait of this length.
    pub fn add(&mut self, wait: Span) {
        self.enter(wait.as_nanos(), 1);
        if self.counts.len() > MAX_EXACT && !self.is_rough {
            self.is_rough = true;
            for (nanos, count) in std::mem::take(&mut self.counts) {
                self.enter(nanos, count);
            }
        }
        self.count = self.count.saturating_add(1);
        self.longest = self.longest.max(wait);
    }

    fn enter(&mut self, nanos: u64, more: u64) {
        let nanos = if self.is_rough { end_of(bucket(nanos)) } else { nanos };
        let count = self.counts.entry(nanos).or_default();
        *count = count.saturating_add(more);
    }

    /// The number of waits.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The wait that `percent` of a hundred did not exceed, by nearest rank; zero when no request
    /// waited.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Span {
        let rank = u128::from(self.count).saturating_mul(percent.into()).div_ceil(100).max(1);
        let mut seen = 0_u128;
        for (nanos, count) in &self.counts {
            seen = seen.saturating_add((*count).into());
            if seen >= rank {
                return Span::from_nanos(*nanos).min(self.longest);
            }
        }
        Span::ZERO
    }

    /// The figures of a table.
    #[must_use]
    pub fn figures(&self) -> WaitFigures {
        let micros = |span: Span| span.as_nanos().div_ceil(1_000);
        WaitFigures {
            p50_us: micros(self.percentile(50)),
            p99_us: micros(self.percentile(99)),
            max_us: micros(self.longest),
        }
    }
}

/// The bucket of a number: its own below 256, otherwise by its 8 leading bits.
fn bucket(n: u64) -> u64 {
    let bits = u64::BITS.saturating_sub(n.leading_zeros());
    let shift = bits.saturating_sub(PARTS.saturating_add(1));
    let leading = n.checked_shr(shift).unwrap_or(0);
    let before = u64::from(shift).checked_shl(PARTS).unwrap_or(0);
    before.saturating_add(leading)
}

/// The greatest number of a bucket.
fn end_of(bucket: u64) -> u64 {
    let parts = 1_u64.checked_shl(PARTS).unwrap_or(1);
    let shift = (bucket.checked_shr(PARTS).unwrap_or(0)).saturating_sub(1);
    let leading = bucket.saturating_sub(shift.saturating_mul(parts));
    let end = u128::from(leading).saturating_add(1);
    let end = end.checked_shl(u32::try_from(shift).unwrap_or(u32::MAX)).unwrap_or(u128::MAX);
    u64::try_from(end.saturating_sub(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_most_a_128th_above_its_numbers() {
        for shift in 0..64 {
            for near in [0, 1, 2, 3, 1_000, u64::MAX >> 9] {
                let n = (1_u64 << shift).saturating_sub(1).saturating_add(near);
                let end = end_of(bucket(n));
                assert!(end >= n && end - n <= n / 128, "{n}: {end}");
                assert_eq!(bucket(end), bucket(n));
                assert!(end == u64::MAX || bucket(end + 1) == bucket(n) + 1, "{n}");
            }
        }
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut waits = Waits::new();
        assert_eq!(waits.figures(), WaitFigures::default());
        (1..=100).for_each(|n| waits.add(Span::from_nanos(n)));
        let percentiles = [1, 50, 99, 100].map(|p| waits.percentile(p).as_nanos());
        assert_eq!(percentiles, [1, 50, 99, 100]);
        waits.add(Span::from_secs(3));
        assert_eq!((waits.count(), waits.figures().max_us), (101, 3_000_000));
        assert_eq!(waits.percentile(100), Span::from_secs(3));
        (1..10_000).for_each(|n| waits.add(Span::from_millis(n)));
        assert!(waits.is_rough && waits.counts.len() < MAX_EXACT);
        let median = waits.percentile(50).as_nanos() / 1_000;
        assert!((4_949_000..4_990_000).contains(&median), "{median}");
    }
}
