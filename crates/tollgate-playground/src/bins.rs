//! A run over its time, in bins: the data of a plot, however many requests there were.
//!
//! Invariant: memory is that of [`BINS`] bins and never of requests. A bin is `[i, i + 1)` of this
//! many equal parts of the run's length; later events are in the last one.
#![expect(clippy::float_arithmetic, reason = "these are plots: nothing is decided by them")]

use tollgate_core::Span;

/// As many as the pixels of the widest screen, and a number with many divisors, so that the bins
/// add up to equal parts of most plots.
pub(crate) const BINS: usize = 7_200;

/// The data of one bin.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    offered: u32,
    admitted: u32,
    delayed: u32,
    denied: u32,
    /// Units of the watched key.
    true_count: Option<u64>,
    estimate: Option<u64>,
    remaining: Option<u64>,
    /// In nanoseconds.
    whole_after: Option<u64>,
    wait: Option<u64>,
}

/// The result of a request, for the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEvent {
    Offered,
    Admitted,
    Delayed,
    Denied,
}

/// The state of the watched key's quota at one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaState {
    pub(crate) remaining: u64,
    pub(crate) estimate: u64,
    /// `None` where it is unknown: for a request that waits in a line.
    pub(crate) whole_after: Option<Span>,
    pub(crate) wait: Option<Span>,
}

/// All bins of one run.
#[derive(Debug)]
pub(crate) struct Bins {
    length: Span,
    bins: Vec<Bin>,
}

impl Bins {
    pub(crate) fn new(length: Span) -> Self {
        Self { length, bins: vec![Bin::default(); BINS] }
    }

    /// The bin of a time since the start of the run.
    pub(crate) fn index(&self, since: Span) -> usize {
        let bins = u128::try_from(BINS).unwrap_or(1);
        let index = u128::from(since.as_nanos()).saturating_mul(bins);
        let index = index.checked_div(self.length.as_nanos().into()).unwrap_or(0);
        usize::try_from(index).unwrap_or(BINS).min(BINS.saturating_sub(1))
    }

    /// When a bin begins, since the beginning of the run, rounded up.
    pub(crate) fn begins(&self, index: usize) -> Span {
        let index = u128::try_from(index).unwrap_or(0);
        let bins = u128::try_from(BINS).unwrap_or(1);
        let nanos = u128::from(self.length.as_nanos()).saturating_mul(index).div_ceil(bins);
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(crate) fn count(&mut self, since: Span, what: RequestEvent) {
        let index = self.index(since);
        let Some(bin) = self.bins.get_mut(index) else { return };
        let count = match what {
            RequestEvent::Offered => &mut bin.offered,
            RequestEvent::Admitted => &mut bin.admitted,
            RequestEvent::Delayed => &mut bin.delayed,
            RequestEvent::Denied => &mut bin.denied,
        };
        *count = count.saturating_add(1);
    }

    /// Records the units in the true window that ends here; the bin keeps the greatest number.
    pub(crate) fn true_count(&mut self, index: usize, units: u64) {
        if let Some(bin) = self.bins.get_mut(index) {
            bin.true_count = bin.true_count.max(Some(units));
        }
    }

    pub(crate) fn state(&mut self, since: Span, state: QuotaState) {
        let index = self.index(since);
        let Some(bin) = self.bins.get_mut(index) else { return };
        bin.estimate = bin.estimate.max(Some(state.estimate));
        bin.remaining = bin.remaining.into_iter().chain([state.remaining]).min();
        bin.whole_after = bin.whole_after.max(state.whole_after.map(Span::as_nanos));
        bin.wait = bin.wait.max(state.wait.map(Span::as_nanos));
    }

    /// One series over the whole run in `buckets` equal parts, 1 to [`BINS`]; `None` for another
    /// number and for an unknown name. Counts are sums; `remaining` is the least of a part, all
    /// other series the greatest, in units or milliseconds, and NaN where there is no value.
    pub(crate) fn series(&self, name: &str, buckets: usize) -> Option<Vec<f64>> {
        if !(1..=BINS).contains(&buckets) {
            return None;
        }
        Some(match name {
            "offered" => self.sums(buckets, |bin| bin.offered),
            "admitted" => self.sums(buckets, |bin| bin.admitted),
            "delayed" => self.sums(buckets, |bin| bin.delayed),
            "denied" => self.sums(buckets, |bin| bin.denied),
            "true_count" => self.chosen(buckets, u64::max, |bin| bin.true_count),
            "estimate" => self.chosen(buckets, u64::max, |bin| bin.estimate),
            "remaining" => self.chosen(buckets, u64::min, |bin| bin.remaining),
            "whole_after" => millis(self.chosen(buckets, u64::max, |bin| bin.whole_after)),
            "wait" => millis(self.chosen(buckets, u64::max, |bin| bin.wait)),
            _ => return None,
        })
    }

    fn sums(&self, buckets: usize, of: fn(&Bin) -> u32) -> Vec<f64> {
        let sum = |bins: &[Bin]| bins.iter().map(|bin| f64::from(of(bin))).sum();
        self.parts(buckets).map(sum).collect()
    }

    fn chosen(
        &self,
        buckets: usize,
        choose: fn(u64, u64) -> u64,
        of: fn(&Bin) -> Option<u64>,
    ) -> Vec<f64> {
        let one = |bins: &[Bin]| bins.iter().filter_map(of).reduce(choose).map_or(f64::NAN, number);
        self.parts(buckets).map(one).collect()
    }

    /// The bins in `buckets` parts, each of those that begin in it.
    fn parts(&self, buckets: usize) -> impl Iterator<Item = &[Bin]> {
        let first = move |part: usize| part.saturating_mul(BINS).div_ceil(buckets.max(1));
        (0..buckets).map(move |part| {
            let end = first(part.saturating_add(1));
            self.bins.get(first(part)..end).unwrap_or_default()
        })
    }
}

fn millis(nanos: Vec<f64>) -> Vec<f64> {
    nanos.into_iter().map(|nanos| nanos / 1e6).collect()
}

/// Exact below 2^53.
#[expect(clippy::as_conversions, reason = "rounds above 2^53 and cannot fail")]
const fn number(whole: u64) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins() -> Bins {
        Bins::new(Span::from_secs(72))
    }

    #[test]
    fn a_request_is_in_the_bin_that_holds_it_and_a_late_one_in_the_last() {
        let bins = bins();
        for (millis, index) in [(0, 0), (9, 0), (10, 1), (71_999, 7_199), (72_000, 7_199)] {
            assert_eq!(bins.index(Span::from_millis(millis)), index);
        }
        assert_eq!(bins.index(Span::MAX), BINS - 1);
        assert_eq!(bins.begins(3), Span::from_millis(30));
        // A length that does not divide: a bin begins with the first time in it.
        let odd = Bins::new(Span::from_nanos(7_201));
        for index in [0, 1, 3_600, 7_199] {
            assert_eq!(odd.index(odd.begins(index)), index);
        }
    }

    #[test]
    fn no_request_is_lost_or_counted_twice_in_any_number_of_parts() {
        let mut bins = bins();
        for i in 0..7_200 {
            bins.count(Span::from_millis(i * 10), RequestEvent::Offered);
        }
        for buckets in [1, 2, 7, 317, 1_440, 7_199, 7_200] {
            let series = bins.series("offered", buckets).unwrap();
            assert_eq!((series.len(), series.iter().sum::<f64>()), (buckets, 7_200.0));
        }
        assert!(bins.series("offered", 0).is_none() && bins.series("offered", 7_201).is_none());
        assert!(bins.series("other", 10).is_none());
    }

    #[test]
    fn the_worst_state_is_shown_and_nothing_without_requests() {
        let mut bins = bins();
        let state = |remaining, estimate, wait: Option<u64>| QuotaState {
            remaining,
            estimate,
            whole_after: Some(Span::from_millis(estimate)),
            wait: wait.map(Span::from_millis),
        };
        bins.state(Span::from_secs(1), state(4, 6, None));
        bins.state(Span::from_secs(2), state(2, 8, Some(1_500)));
        bins.true_count(BINS - 1, 12);
        let two = |name| bins.series(name, 2).unwrap();
        assert_eq!((two("remaining")[0], two("estimate")[0]), (2.0, 8.0));
        assert_eq!((two("whole_after")[0], two("wait")[0]), (8.0, 1_500.0));
        assert!(two("remaining")[1].is_nan() && two("true_count")[0].is_nan());
        assert_eq!(two("true_count")[1], 12.0);
    }
}
