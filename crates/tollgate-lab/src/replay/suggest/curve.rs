//! How many clients each limit would affect, over the whole range, and where this hardly depends on
//! the limit.
//!
//! The share of clients that a limit may affect is a guess: if there are more abusers than that,
//! the limit becomes the rate of the abusers. So the curve shows limits from the usage of half of
//! the clients to the greatest usage, and the widest gap between two counts. All limits in the gap
//! affect the same clients.
//!
//! Invariant: every limit of the curve is a count, the end of a gap, or a round number.
//! Deliberately absent: the denials of the limits, which the second pass counts (`trial`).

use super::percentiles::Peaks;

/// The most clients that the lowest limit of a curve affects: the second pass keeps states of each.
const MOST_TRIED: u64 = 50_000;
/// The most round limits of a curve.
const MOST_ROUND: usize = 14;
/// Round numbers from 10 to 99, from fine to coarse.
const ROUND: [&[u64]; 3] = [&[10, 15, 20, 30, 50, 70], &[10, 20, 50], &[10]];

/// The limits between two counts that no client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Between {
    /// The greatest count below the gap: the lowest limit in it.
    pub from: u64,
    /// The highest limit in it, one less than the next count.
    pub to: u64,
    /// Clients above the gap.
    pub clients: u64,
}

/// The widest gap, by the ratio of its ends, with at most a quarter of the clients above it; of
/// equal ones the lowest. `None` where no upper end is at least double the lower one.
pub(super) fn widest(peaks: &Peaks) -> Option<Between> {
    let (all, quarter) = (peaks.all(), peaks.len() / 4);
    let mut found: Option<(u64, u64)> = None;
    for pair in all.windows(2) {
        let [from, next] = *pair else { continue };
        let from = from.max(1);
        let is_wide = next >= from.saturating_mul(2) && peaks.above(from) <= quarter;
        let product = |a: u64, b: u64| u128::from(a).saturating_mul(b.into());
        let is_wider = |(f, n): (u64, u64)| product(next, f) > product(n, from);
        if is_wide && found.is_none_or(is_wider) {
            found = Some((from, next));
        }
    }
    let (from, next) = found?;
    Some(Between { from, to: next.saturating_sub(1), clients: peaks.above(from) })
}

/// The limits of the curve, the lowest first; empty without clients.
pub(super) fn limits(peaks: &Peaks, gap: Option<Between>) -> Vec<u64> {
    if peaks.len() == 0 {
        return Vec::new();
    }
    let many = (peaks.len() / 2).min(MOST_TRIED);
    let (low, high) = (peaks.exceeded_by_at_most(many).max(1), peaks.greatest().max(1));
    let round = |grid: &&[u64]| -> Vec<u64> { round_numbers(low, high, grid) };
    let mut grids = ROUND.iter().map(round);
    let mut limits = grids.find(|limits| limits.len() <= MOST_ROUND).unwrap_or_default();
    limits.extend([low, high]);
    limits.extend(gap.into_iter().flat_map(|gap| [gap.from, gap.to]));
    limits.sort_unstable();
    limits.dedup();
    limits
}

/// The numbers from `low` to `high` that are a tenth of a number of `grid` times a power of ten.
fn round_numbers(low: u64, high: u64, grid: &[u64]) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut power = 1_u64;
    loop {
        for digits in grid {
            let number = digits.saturating_mul(power) / 10;
            if (low..=high).contains(&number) && numbers.last() != Some(&number) {
                numbers.push(number);
            }
        }
        match power.checked_mul(10) {
            Some(next) if next <= high => power = next,
            _ => return numbers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks(counts: &[(u64, usize)]) -> Peaks {
        let all = counts.iter().flat_map(|(count, keys)| std::iter::repeat_n(*count, *keys));
        Peaks::new(all)
    }

    #[test]
    fn the_widest_gap_is_that_of_the_greatest_ratio() {
        let found = |counts: &[(u64, usize)]| widest(&peaks(counts));
        let between = |from, to, clients| Some(Between { from, to, clients });
        // Eight abusers of 296: not the gap between the two busiest of them.
        let abusers = [(5, 200), (20, 80), (43, 8), (632, 3), (700, 4), (5_000, 1)];
        assert_eq!(found(&abusers), between(43, 631, 8));
        // More than a quarter of the clients are not outliers.
        assert_eq!(found(&[(1, 10), (100, 10)]), None);
        assert_eq!(found(&[(1, 30), (100, 10)]), between(1, 99, 10));
        assert_eq!(found(&[(10, 90), (19, 10)]), None);
        assert_eq!(found(&[(0, 90), (19, 10)]), between(1, 18, 10));
        assert_eq!(found(&[(10, 90), (20, 4), (40, 4)]), between(10, 19, 8));
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(7, 100)]), None);
        assert_eq!(found(&[(1, 9), (u64::MAX, 1)]), between(1, u64::MAX - 1, 1));
    }

    #[test]
    fn a_curve_has_round_limits_and_the_ends_of_the_gap() {
        let abusers = peaks(&[(5, 200), (43, 8), (632, 8)]);
        let limits = super::limits(&abusers, widest(&abusers));
        assert_eq!(limits, [5, 7, 10, 15, 20, 30, 43, 50, 70, 100, 150, 200, 300, 500, 631, 632]);
        assert_eq!(super::limits(&peaks(&[(3, 1)]), None), [3]);
        assert_eq!(super::limits(&peaks(&[]), None), [0_u64; 0]);
        assert_eq!(super::limits(&peaks(&[(0, 5)]), None), [1]);
        for high in [1, 9, 999, 1_000_000, u64::MAX] {
            let limits = super::limits(&peaks(&[(1, 5), (high, 1)]), None);
            assert!(limits.len() <= MOST_ROUND + 6 && limits.last() == Some(&high), "{limits:?}");
            assert!(limits.is_sorted() && limits[0] == 1);
        }
    }
}
