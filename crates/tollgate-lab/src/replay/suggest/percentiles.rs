//! The distribution of the keys' greatest counts, and how many keys each limit would affect.
//!
//! A percentile is the nearest rank: the smallest count that this share of the keys does not
//! exceed. So the limit that 1 % of the clients exceed at least once is the 99th percentile of
//! their greatest counts, and nothing is interpolated.
//!
//! Invariant: integers only; the same counts give the same figures everywhere.

/// The share of all clients that a limit may affect, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

const WHOLE: u32 = 1_000_000;

impl Share {
    /// No client.
    pub const NOBODY: Self = Self(0);
    /// The shares that a limit is always suggested for: none, 0.1 % and 1 %.
    pub const USUAL: [Self; 3] = [Self::NOBODY, Self(1_000), Self(10_000)];

    /// Reads `3%` or `0.05 %`.
    ///
    /// # Errors
    /// The accepted forms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        let (whole, part) =
            number.map(|number| number.split_once('.').unwrap_or((number, ""))).unwrap_or_default();
        let is_number = |digits: &str, most: usize| {
            digits.len() <= most && digits.bytes().all(|digit| digit.is_ascii_digit())
        };
        if whole.is_empty() || !is_number(whole, 2) || !is_number(part, 4) {
            return Err("use a share of the clients below 100%, as in 3% or 0.05%".to_owned());
        }
        let millionths = format!("{whole}{part:0<4}").parse();
        millionths.map(Self).map_err(|_| "use a share such as 3%".to_owned())
    }

    /// As a percentage, in text: `0.1`.
    #[must_use]
    pub fn percent(self) -> String {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 {
            return whole.to_string();
        }
        format!("{whole}.{}", format!("{part:04}").trim_end_matches('0'))
    }

    /// This share of `clients`, rounded down.
    #[must_use]
    pub fn of(self, clients: u64) -> u64 {
        let share = u128::from(clients).saturating_mul(self.0.into());
        let share = share.checked_div(WHOLE.into()).and_then(|share| u64::try_from(share).ok());
        share.unwrap_or(clients)
    }

    /// Three standard errors of this share in a uniform sample of `clients` clients, in millionths:
    /// 3 x sqrt(p x (1 - p) / clients), rounded up. For a share of zero it is that of one client in
    /// the sample, 3 / clients ("rule of three").
    #[must_use]
    pub fn error_ppm(self, clients: u64) -> u64 {
        let clients = clients.max(1);
        if self == Self::NOBODY {
            return 3_000_000_u64.div_ceil(clients);
        }
        // p x (1 - p), in parts of 10^12.
        let variance = u64::from(self.0).saturating_mul(WHOLE.saturating_sub(self.0).into());
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

    /// The greatest count; 0 of no keys.
    pub fn greatest(&self) -> u64 {
        self.exceeded_by_at_most(0)
    }

    /// The counts, the smallest first.
    pub fn all(&self) -> &[u64] {
        &self.0
    }

    pub fn median(&self) -> u64 {
        self.exceeded_by_at_most(self.len() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERMILLE: Share = Share(1_000);
    const PERCENT: Share = Share(10_000);

    #[test]
    fn a_share_is_a_number_of_per_cent() {
        let good = [
            ("3%", "3"),
            ("0.1 %", "0.1"),
            ("0%", "0"),
            ("99.9999%", "99.9999"),
            ("0.0500%", "0.05"),
        ];
        for (text, percent) in good {
            assert_eq!(Share::parse(text).map(Share::percent), Ok(percent.to_owned()));
        }
        for text in ["", "3", "%", ".5%", "100%", "-1%", "+1%", "1e1%", "0.00001%", "3%%"] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
        assert_eq!(Share::parse("3%").map(|share| share.of(296)), Ok(8));
        assert_eq!(Share(999_999).of(u64::MAX), u64::MAX - u64::MAX / 1_000_000 - 1);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let peaks = Peaks::new((1..=1000).rev());
        assert_eq!(peaks.median(), 500);
        assert_eq!(peaks.exceeded_by_at_most(PERCENT.of(1000)), 990);
        assert_eq!(peaks.exceeded_by_at_most(PERMILLE.of(1000)), 999);
        assert_eq!(peaks.exceeded_by_at_most(Share::NOBODY.of(1000)), 1000);
        assert_eq!((peaks.above(990), peaks.above(1000), peaks.above(0)), (10, 0, 1000));
        // Of 999 clients one is more than 0.1 %.
        assert_eq!(PERMILLE.of(999), 0);
        let three = Peaks::new([3, 1, 2].into_iter());
        assert_eq!((three.median(), Peaks::new([7, 9].into_iter()).median()), (2, 7));
        let none = Peaks::new([].into_iter());
        assert_eq!((none.median(), none.exceeded_by_at_most(0), none.above(0)), (0, 0, 0));
    }
}
