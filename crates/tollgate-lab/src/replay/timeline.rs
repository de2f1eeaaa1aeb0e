//! The events over time, in a bounded number of bins for a log of any length.
//!
//! Invariant: a bin begins at a multiple of its length since 1970. When there would be too many
//! bins the length becomes the next of [`LENGTHS`], each of which is a multiple of the one before.
//! So bins are added up and never split.

use std::collections::VecDeque;
use std::ops::Range;

use tollgate_core::Timestamp;

/// The most bins: the number of pixels in the plot of a narrow report or in a column of the
/// playground.
const MOST: usize = 288;
/// How long a bin may be, in seconds: from one second to over a century.
const LENGTHS: [u64; 16] = [
    1,
    5,
    10,
    30,
    60,
    300,
    600,
    1800,
    3600,
    10_800,
    21_600,
    43_200,
    86_400,
    604_800,
    2_419_200,
    2_419_200 * 13 * 10,
];
const NANOS: u64 = 1_000_000_000;

/// The events in one length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) total: u64,
    pub(crate) denied: u64,
    pub(crate) delayed: u64,
    pub(crate) over: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        self.denied = self.denied.saturating_add(other.denied);
        self.delayed = self.delayed.saturating_add(other.delayed);
        self.over = self.over.saturating_add(other.over);
    }
}

/// Bins of one length, without gaps.
#[derive(Debug, Default)]
pub(crate) struct Bins {
    /// The index of the length in [`LENGTHS`].
    length: usize,
    /// The number of the first bin, counted from 1970.
    first: u64,
    bins: VecDeque<Counts>,
    /// The bin of the last addition, and its time in nanoseconds: usually the next one's, too.
    last: usize,
    last_ns: Range<u64>,
}

impl Bins {
    /// The length of a bin, in seconds.
    pub(crate) fn seconds(&self) -> u64 {
        LENGTHS.get(self.length).copied().unwrap_or(u64::MAX)
    }

    /// Adds the events at `at`.
    #[inline]
    pub(crate) fn add(&mut self, at: Timestamp, counts: &Counts) {
        if self.last_ns.contains(&at.as_nanos())
            && let Some(bin) = self.bins.get_mut(self.last)
        {
            bin.add(counts);
        } else {
            self.add_elsewhere(at, counts);
        }
    }

    /// Adds to another bin than the last time. Only this moves bins, and it ends with the place of
    /// the bin it added to.
    fn add_elsewhere(&mut self, at: Timestamp, counts: &Counts) {
        let second = at.as_nanos() / NANOS;
        while !self.reaches(second) {
            self.lengthen();
        }
        let number = self.number(second);
        if self.bins.is_empty() {
            self.first = number;
        }
        while self.first > number {
            self.bins.push_front(Counts::default());
            self.first = self.first.saturating_sub(1);
        }
        let place = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        while self.bins.len() <= place {
            self.bins.push_back(Counts::default());
        }
        if let Some(bin) = self.bins.get_mut(place) {
            bin.add(counts);
        }
        let length_ns = self.seconds().saturating_mul(NANOS);
        let from_ns = number.saturating_mul(length_ns);
        (self.last, self.last_ns) = (place, from_ns..from_ns.saturating_add(length_ns));
    }

    /// Every bin with its start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Timestamp, &Counts)> {
        let at = |number: u64| number.saturating_mul(self.seconds()).saturating_mul(NANOS);
        (self.first..).map(move |number| Timestamp::from_nanos(at(number))).zip(&self.bins)
    }

    fn number(&self, second: u64) -> u64 {
        second.checked_div(self.seconds()).unwrap_or(0)
    }

    /// True when a bin for this second keeps the number of bins within the maximum, or bins have
    /// their maximum length.
    fn reaches(&self, second: u64) -> bool {
        if self.bins.is_empty() || self.length.saturating_add(1) >= LENGTHS.len() {
            return true;
        }
        let held = u64::try_from(self.bins.len()).unwrap_or(u64::MAX);
        let end = self.first.saturating_add(held);
        let number = self.number(second);
        let spans = end.max(number.saturating_add(1)).saturating_sub(self.first.min(number));
        spans <= u64::try_from(MOST).unwrap_or(u64::MAX)
    }

    fn lengthen(&mut self) {
        let shorter = self.seconds();
        self.length = self.length.saturating_add(1);
        let first = self.first;
        let beginning = |number: u64| number.saturating_mul(shorter);
        let bins = std::mem::take(&mut self.bins);
        self.first = self.number(beginning(first));
        for (number, counts) in (first..).zip(&bins) {
            let place = self.number(beginning(number)).saturating_sub(self.first);
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            while self.bins.len() <= place {
                self.bins.push_back(Counts::default());
            }
            if let Some(bin) = self.bins.get_mut(place) {
                bin.add(counts);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn bins(seconds: &[u64]) -> Bins {
        let mut bins = Bins::default();
        for second in seconds {
            let counts = Counts { total: 1, denied: second % 2, ..Counts::default() };
            bins.add(Timestamp::from_nanos(second * NANOS), &counts);
        }
        bins
    }

    #[test]
    fn each_length_is_a_multiple_of_the_one_before() {
        for pair in LENGTHS.windows(2) {
            assert_eq!(pair[1] % pair[0], 0, "{pair:?}");
        }
        // The longest bins cover all possible times.
        let all = u64::MAX / NANOS / LENGTHS[15] + 1;
        assert!(all <= u64::try_from(MOST).unwrap());
    }

    #[test]
    fn a_short_log_has_a_bin_for_each_second() {
        let bins = bins(&[100, 100, 101, 103, 102]);
        let found: Vec<_> = bins.iter().map(|(at, c)| (at.as_nanos() / NANOS, c.total)).collect();
        assert_eq!((bins.seconds(), found), (1, vec![(100, 2), (101, 1), (102, 1), (103, 1)]));
    }

    #[test]
    fn a_long_log_has_no_more_bins_and_loses_nothing() {
        let day: Vec<u64> = (0..86_400).step_by(7).map(|s| 807_256_800 + s).collect();
        let found = bins(&day);
        assert_eq!(found.seconds(), 300);
        assert!(found.bins.len() <= MOST);
        let total: u64 = found.iter().map(|(_, counts)| counts.total).sum();
        let denied: u64 = found.iter().map(|(_, counts)| counts.denied).sum();
        assert_eq!((total, denied), (12_343, day.iter().map(|s| s % 2).sum()));
        assert!(found.iter().all(|(at, _)| (at.as_nanos() / NANOS).is_multiple_of(300)));
        // The same from the last line to the first.
        let backward = bins(&day.iter().rev().copied().collect::<Vec<_>>());
        assert!(found.iter().eq(backward.iter()));
    }

    /// Also where the next time is in the bin of the last one, directly next to it, or in the place
    /// that it had before bins moved.
    #[test]
    fn the_order_of_times_does_not_matter() {
        let mut seconds = vec![];
        for i in 0..2000_u64 {
            let near = 10_000 + i / 3;
            seconds.extend([near, near, near + i % 2, near - i % 7, 10_000 - i, 10_000 + i]);
        }
        let mixed = bins(&seconds);
        seconds.sort_unstable();
        let sorted = bins(&seconds);
        assert!(mixed.iter().eq(sorted.iter()) && mixed.bins.len() <= MOST);
        for (at, counts) in mixed.iter() {
            let from = at.as_nanos() / NANOS;
            let within = |second: &&u64| (from..from + mixed.seconds()).contains(*second);
            let total = u64::try_from(seconds.iter().filter(within).count()).unwrap();
            assert_eq!(counts.total, total, "{from}");
        }
    }

    #[test]
    fn years_apart_take_no_more() {
        let found = bins(&[0, 8_000_000_000, 17_000_000_000, 4]);
        assert!(found.bins.len() <= MOST);
        assert_eq!(found.iter().map(|(_, counts)| counts.total).sum::<u64>(), 4);
    }
}
