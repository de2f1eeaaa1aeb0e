//! The models of arrivals: each is a sequence of times.
//!
//! Invariant: times never go back, and the sequence is the same for the same seed. Even ones are
//! computed in whole numbers, so that the thousandth request of "10 a second" is not a nanosecond
//! off.

use crate::simulator::random::{Random, mean_ns, ramp_at};

use super::document::Arrivals;
use super::scalar::Rate;

/// One sequence of times.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Its start and end, in nanoseconds after the epoch.
    from: u64,
    to: u64,
    /// Requests so far.
    k: u64,
    /// The last time of a sequence defined by gaps; for counts, the bin and its requests so far.
    last: u64,
    bin: (usize, u64),
}

impl Pulse {
    pub(super) const fn new(from: u64, to: u64) -> Self {
        Self { from, to, k: 0, last: from, bin: (0, 0) }
    }

    /// The time of the next request.
    pub(super) fn next(&mut self, arrivals: &Arrivals, random: &mut Random) -> Option<u64> {
        let at = match arrivals {
            Arrivals::Steady { rate } => self.from.checked_add(even(self.k, rate)?),
            Arrivals::Poisson { rate } => self.poisson(rate, random),
            Arrivals::OnOff { rate, on, off } => {
                let (on, off) = (on.0.as_nanos(), off.0.as_nanos());
                let busy = even(self.k, rate)?;
                let pauses = busy.checked_div(on)?.checked_mul(off)?;
                self.from.checked_add(busy)?.checked_add(pauses)
            }
            Arrivals::Bursts { size, every } => {
                let burst = self.k.checked_div(size.0)?;
                self.from.checked_add(burst.checked_mul(every.0.as_nanos())?)
            }
            Arrivals::Ramp { from, to } => {
                let span = self.to.saturating_sub(self.from);
                let at = ramp_at(self.k, per_ns(from), per_ns(to), span)?;
                self.from.checked_add(at)
            }
            Arrivals::Edge { window, size, gap } => {
                self.edge(window.0.as_nanos(), size.0, gap.0.as_nanos())
            }
            Arrivals::Counts { bin, counts } => self.count(bin.0.as_nanos(), &counts.0),
            Arrivals::Spaced { size, wait, jitter } if self.k < size.0 => {
                let gap = wait.0.saturating_add(random.up_to(jitter.0)).as_nanos();
                // The first request comes at once.
                self.last = self.last.checked_add(if self.k > 0 { gap } else { 0 })?;
                Some(self.last)
            }
            Arrivals::Spaced { .. } => None,
            Arrivals::Instants { at } => {
                let listed = at.0.get(usize::try_from(self.k).ok()?)?;
                self.from.checked_add(listed.0.as_nanos())
            }
        };
        self.k = self.k.saturating_add(1);
        at.filter(|at| *at < self.to)
    }

    fn poisson(&mut self, rate: &Rate, random: &mut Random) -> Option<u64> {
        if rate.count == 0 {
            return None;
        }
        let gap = random.exponential(mean_ns(rate.count, rate.per.as_nanos()));
        self.last = self.last.checked_add(gap)?;
        Some(self.last)
    }

    /// `size` evenly within `gap` before each edge, counted from the epoch, and `size` on it.
    fn edge(&self, window: u64, size: u64, gap: u64) -> Option<u64> {
        let pair = size.checked_mul(2)?;
        let (number, place) = (self.k.checked_div(pair)?, self.k.checked_rem(pair)?);
        let first = self.from.checked_add(gap)?.div_ceil(window.max(1));
        let edge = first.checked_add(number)?.checked_mul(window)?;
        let ahead = size.saturating_sub(place);
        let before = u128::from(gap).checked_mul(ahead.into())?.div_ceil(size.max(1).into());
        edge.checked_sub(u64::try_from(before).ok()?)
    }

    /// The next request of the time line.
    fn count(&mut self, bin: u64, counts: &[super::scalar::Bin]) -> Option<u64> {
        loop {
            let (index, place) = self.bin;
            let count = counts.get(index)?.0;
            if place >= count {
                self.bin = (index.saturating_add(1), 0);
                continue;
            }
            self.bin = (index, place.saturating_add(1));
            let start = u64::try_from(index).ok()?.checked_mul(bin)?;
            let within = u128::from(bin).checked_mul(place.into())?.checked_div(count.into())?;
            return self.from.checked_add(start)?.checked_add(u64::try_from(within).ok()?);
        }
    }
}

/// The time of request `k` of an even sequence: `floor(k per / count)`.
fn even(k: u64, rate: &Rate) -> Option<u64> {
    let at = u128::from(k).checked_mul(rate.per.as_nanos().into())?;
    u64::try_from(at.checked_div(rate.count.into())?).ok()
}

fn per_ns(rate: &Rate) -> f64 {
    if rate.count == 0 { 0.0 } else { mean_ns(rate.per.as_nanos(), rate.count) }
}
