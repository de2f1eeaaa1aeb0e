//! How long requests waited: a histogram of bounded size.
//!
//! Invariant: a percentile is never below the true one (nearest rank) and above it by at most one
//! sixteenth; the longest wait is exact. Integers only.

use tollgate_core::Span;

use crate::replay::summary;

/// Exact up to here, in milliseconds; and the parts of each power of two above.
const EXACT: u64 = 16;

/// Waits in milliseconds, rounded up.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// The buckets up to that of the longest wait: at most 976.
    buckets: Vec<u64>,
    total: u64,
    longest: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, wait: Span) {
        let millis = wait.as_millis_ceil();
        let bucket = bucket_of(millis);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket.saturating_add(1), 0);
        }
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.total = self.total.saturating_add(1);
        self.longest = self.longest.max(millis);
    }

    /// The summary; `None` when no request waited.
    pub(crate) fn summary(&self) -> Option<summary::Waits> {
        (self.total > 0).then(|| summary::Waits {
            waited: self.total,
            p50_ms: self.percentile(50),
            p99_ms: self.percentile(99),
            max_ms: self.longest,
        })
    }

    /// The wait that `percent` per cent of the waits do not exceed.
    fn percentile(&self, percent: u128) -> u64 {
        let rank = u128::from(self.total).saturating_mul(percent).div_ceil(100);
        let mut seen = 0_u128;
        for (i, count) in self.buckets.iter().enumerate() {
            seen = seen.saturating_add(u128::from(*count));
            if seen >= rank {
                return last_of(i).min(self.longest);
            }
        }
        self.longest
    }
}

/// Up to [`EXACT`] the number itself; above, 16 parts of each power of two.
fn bucket_of(millis: u64) -> usize {
    if millis < EXACT {
        return usize::try_from(millis).unwrap_or(0);
    }
    // `millis` has its highest bit at 4 or above; the four bits below it determine the part.
    let high = millis.ilog2();
    let shift = high.saturating_sub(4);
    let part = (millis >> shift) & (EXACT - 1);
    let before = u64::from(shift).saturating_add(1).saturating_mul(EXACT);
    usize::try_from(before.saturating_add(part)).unwrap_or(usize::MAX)
}

/// The greatest number in a bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = u64::try_from(bucket).unwrap_or(u64::MAX);
    if bucket < EXACT {
        return bucket;
    }
    let shift = (bucket / EXACT).saturating_sub(1);
    let part = bucket % EXACT;
    let shift = u32::try_from(shift).unwrap_or(u32::MAX);
    let after = u128::from(EXACT.saturating_add(part).saturating_add(1));
    let last = after.checked_shl(shift).unwrap_or(u128::MAX).saturating_sub(1);
    u64::try_from(last).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_its_bucket() {
        let mut last = 0;
        let numbers = (0..100_000).chain((17..64).flat_map(|bit| {
            let power = 1_u64 << bit;
            [power - 1, power, power + 1, power + power / 2]
        }));
        for millis in numbers {
            let bucket = bucket_of(millis);
            assert!(millis <= last_of(bucket), "{millis} in {bucket}");
            assert!(bucket == 0 || millis > last_of(bucket - 1), "{millis} in {bucket}");
            let over = last_of(bucket) - millis;
            assert!(over <= millis / 16, "{millis}: {over}");
            assert!(bucket >= last || millis < 1 << 18, "in order");
            last = bucket;
        }
        assert_eq!(last_of(bucket_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_are_nearest_ranks_within_a_sixteenth() {
        let mut waits = Histogram::default();
        assert_eq!(waits.summary(), None);
        (1..=1000).for_each(|millis| waits.add(Span::from_millis(millis)));
        let found = waits.summary().unwrap();
        assert!((500..=531).contains(&found.p50_ms), "{found:?}");
        assert!((990..=1000).contains(&found.p99_ms), "{found:?}");
        assert_eq!((found.waited, found.max_ms), (1000, 1000));
        let mut one = Histogram::default();
        one.add(Span::from_nanos(1));
        assert_eq!(one.summary().unwrap().max_ms, 1, "rounded up");
    }
}
