//! Portable randomness: a seeded generator and the distributions drawn from it.
//!
//! Invariant: the same seed gives the same numbers natively and as wasm, in every version: PCG32
//! (XSH RR, O'Neill 2014) for bits, and only `+ - * /`, `sqrt` and `libm` on floats, never the
//! target's own logarithm. Nothing that decides on a request is drawn or computed here.
#![expect(
    clippy::float_arithmetic,
    clippy::as_conversions,
    reason = "random arrivals and shares are real numbers; they decide about no request"
)]

use rand_core::Rng as _;
use rand_pcg::Pcg32;
use tollgate_core::Span;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg32);

impl Random {
    /// Stream number `stream` of a seed: streams of one seed are independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(Pcg32::new(seed, stream))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to below 1, of 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / 9_007_199_254_740_992.0; // 2^-53
        (self.bits() >> 11) as f64 * STEP
    }

    /// A uniform whole number below `n`, with a bias of at most 2^-64; 0 when `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        let product = u128::from(self.bits()).saturating_mul(u128::from(n));
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// A uniform length of time up to `most`.
    pub(crate) fn up_to(&mut self, most: Span) -> Span {
        Span::from_nanos(self.below(most.as_nanos().saturating_add(1)))
    }

    /// The time until the next event of a Poisson process with a mean interval of `mean_ns`.
    pub(crate) fn exponential(&mut self, mean_ns: f64) -> u64 {
        whole(-libm::log(1.0 - self.unit()) * mean_ns)
    }
}

/// `count` in `per_ns`, as the mean time between two of them in nanoseconds.
pub(crate) fn mean_ns(count: u64, per_ns: u64) -> f64 {
    per_ns as f64 / count.max(1) as f64
}

/// When the `k`-th request comes, counted from 0, of a rate that goes evenly from `from` to `to`
/// requests per nanosecond within `span_ns`: `t` in `k = from t + (to - from) t^2 / 2 span`.
/// `None` when it never comes.
pub(crate) fn ramp_at(k: u64, from: f64, to: f64, span_ns: u64) -> Option<u64> {
    if k == 0 {
        return Some(0);
    }
    let (k, slope) = (k as f64, (to - from) / (span_ns.max(1) as f64));
    let under = from * from + 2.0 * slope * k;
    let sum = from + libm::sqrt(under.max(0.0));
    (under >= 0.0 && sum > 0.0).then(|| whole(2.0 * k / sum))
}

/// The whole part; 0 for a negative number, the maximum for one that is too large.
fn whole(x: f64) -> u64 {
    x as u64 // saturates
}

/// Ranks 1 to `n`; rank `k` is drawn with a weight of `k^-exponent`, by rejection and inversion
/// (Hörmann and Derflinger 1996), in constant memory and about one draw each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    n: u64,
    exponent: f64,
    first: f64,
    last: f64,
    squeeze: f64,
}

impl Zipf {
    pub(crate) fn new(n: u64, exponent: f64) -> Self {
        let mut zipf = Self { n: n.max(1), exponent, first: 0.0, last: 0.0, squeeze: 0.0 };
        zipf.first = zipf.area(1.5) - 1.0;
        zipf.last = zipf.area(zipf.n as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.weight(2.0));
        zipf
    }

    /// An index from 0 to below `n`; 0 is the most likely.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        // The probability of one rejection is below a half: 64 in a row do not happen.
        for _ in 0..64 {
            let u = self.last + random.unit() * (self.first - self.last);
            let x = self.area_inverse(u);
            let k = libm::floor(x + 0.5).clamp(1.0, self.n as f64);
            if k - x <= self.squeeze || u >= self.area(k + 0.5) - self.weight(k) {
                return whole(k).saturating_sub(1);
            }
        }
        0
    }

    fn weight(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// The area under the weights from 1 to `x`.
    fn area(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let y = (1.0 - self.exponent) * log;
        let growth = if libm::fabs(y) > 1e-8 { libm::expm1(y) / y } else { 1.0 + y / 2.0 };
        growth * log
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let y = (area * (1.0 - self.exponent)).max(-1.0);
        let log = if libm::fabs(y) > 1e-8 { libm::log1p(y) / y } else { 1.0 - y / 2.0 };
        libm::exp(log * area)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference output of PCG32 for this seed and stream (pcg32-demo of the author).
    #[test]
    fn the_numbers_are_those_of_pcg32() {
        let mut random = Random::new(42, 54);
        let numbers: Vec<u32> = (0..3).map(|_| random.0.next_u32()).collect();
        assert_eq!(numbers, [0xa15c_02b7, 0x7b47_f409, 0xba1d_3330]);
    }

    #[test]
    fn zipf_draws_each_rank_by_its_weight() {
        for (n, exponent) in [(1, 1.0), (10, 0.0), (10, 1.0), (10, 2.5), (1_000, 0.8)] {
            let (zipf, mut random) = (Zipf::new(n, exponent), Random::new(1, 2));
            let mut drawn = vec![0_u32; n as usize];
            for _ in 0..100_000 {
                drawn[zipf.draw(&mut random) as usize] += 1;
            }
            let weight = |k: u64| libm::pow((k + 1) as f64, -exponent);
            let all: f64 = (0..n).map(weight).sum();
            for k in 0..n.min(10) {
                let expected = 100_000.0 * weight(k) / all;
                let off = libm::fabs(f64::from(drawn[k as usize]) - expected);
                assert!(off <= 6.0 * libm::sqrt(expected) + 1.0, "{n} {exponent}: {k} {off}");
            }
        }
    }

    #[test]
    fn exponential_gaps_have_their_mean() {
        let mut random = Random::new(3, 4);
        let sum: u64 = (0..100_000).map(|_| random.exponential(1_000_000.0)).sum();
        assert!((99_000_000_000..101_000_000_000).contains(&sum), "{sum}");
    }

    #[test]
    fn a_ramp_has_as_many_as_the_area_under_it() {
        let second = 1_000_000_000;
        let (from, to) = (10.0 / 1e9, 30.0 / 1e9);
        let within = |k| ramp_at(k, from, to, second).is_some_and(|at| at < second);
        assert!(within(19) && !within(20)); // (10 + 30) / 2
        assert_eq!(ramp_at(5, 10.0 / 1e9, 0.0, second), Some(second)); // the last one of its area
        assert_eq!((ramp_at(6, 10.0 / 1e9, 0.0, second), ramp_at(1, 0.0, 0.0, 1)), (None, None));
    }
}
