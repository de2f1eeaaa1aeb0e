//! How the greatest counts of the keys are spread, and which limit would touch how many of them.
//!
//! A percentile is the nearest rank: the smallest count that so many of the keys do not exceed. So
//! the limit that 1 % of the clients exceed at least once is the 99th percentile of their greatest
//! counts, and nothing is interpolated.
//!
//! Invariant: integers only; the same counts give the same figures everywhere.

/// The part of all clients that a limit may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Nobody.
    Nobody,
    /// 0.1 %: one client of 1,000.
    OneInThousand,
    /// 1 %: one client of 100.
    OneInHundred,
}

impl Share {
    /// Every share that a limit is suggested for.
    pub const ALL: [Self; 3] = [Self::Nobody, Self::OneInThousand, Self::OneInHundred];

    /// In per cent, as text: `0.1`.
    #[must_use]
    pub const fn percent(self) -> &'static str {
        match self {
            Self::Nobody => "0",
            Self::OneInThousand => "0.1",
            Self::OneInHundred => "1",
        }
    }

    /// So many of `clients` at most, rounded down.
    #[must_use]
    pub const fn of(self, clients: u64) -> u64 {
        match self {
            Self::Nobody => 0,
            Self::OneInThousand => clients / 1000,
            Self::OneInHundred => clients / 100,
        }
    }

    /// Three standard errors of the share that a uniform sample of so many clients has, in
    /// millionths: 3 x sqrt(p x (1 - p) / clients), rounded up. Of nobody it is that of one client
    /// in the sample, 3 / clients ("rule of three").
    #[must_use]
    pub const fn error_ppm(self, clients: u64) -> u64 {
        let clients = if clients == 0 { 1 } else { clients };
        // p x (1 - p), in parts of 10^12.
        let variance = match self {
            Self::Nobody => return 3_000_000_u64.div_ceil(clients),
            Self::OneInThousand => 999_000_000_u64,
            Self::OneInHundred => 9_900_000_000,
        };
        let squared = variance.saturating_mul(9).div_ceil(clients);
        squared.isqrt().saturating_add(1)
    }
}

/// The greatest counts of all keys, sorted.
#[derive(Debug)]
pub(super) struct Peaks(Vec<u64>);

impl Peaks {
    pub fn new(peaks: impl Iterator<Item = u64>) -> Self {
        let mut peaks: Vec<u64> = peaks.collect();
        peaks.sort_unstable();
        Self(peaks)
    }

    pub fn len(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap_or(u64::MAX)
    }

    /// The smallest count that at most `many` keys exceed; 0 of no keys.
    pub fn exceeded_by_at_most(&self, many: u64) -> u64 {
        let last = self.len().saturating_sub(1).saturating_sub(many);
        usize::try_from(last).ok().and_then(|i| self.0.get(i)).copied().unwrap_or(0)
    }

    /// How many keys exceed `limit`.
    pub fn above(&self, limit: u64) -> u64 {
        let below = self.0.partition_point(|peak| *peak <= limit);
        u64::try_from(self.0.len().saturating_sub(below)).unwrap_or(u64::MAX)
    }

    pub fn median(&self) -> u64 {
        self.exceeded_by_at_most(self.len() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let peaks = Peaks::new((1..=1000).rev());
        assert_eq!(peaks.median(), 500);
        assert_eq!(peaks.exceeded_by_at_most(Share::OneInHundred.of(1000)), 990);
        assert_eq!(peaks.exceeded_by_at_most(Share::OneInThousand.of(1000)), 999);
        assert_eq!(peaks.exceeded_by_at_most(Share::Nobody.of(1000)), 1000);
        assert_eq!((peaks.above(990), peaks.above(1000), peaks.above(0)), (10, 0, 1000));
        // Of 999 clients one is more than 0.1 %.
        assert_eq!(Share::OneInThousand.of(999), 0);
        let three = Peaks::new([3, 1, 2].into_iter());
        assert_eq!((three.median(), Peaks::new([7, 9].into_iter()).median()), (2, 7));
        let none = Peaks::new([].into_iter());
        assert_eq!((none.median(), none.exceeded_by_at_most(0), none.above(0)), (0, 0, 0));
    }
}
