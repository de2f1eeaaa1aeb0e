//! A generator of random numbers whose sequence never changes.
//!
//! Invariant: the same seed gives the same numbers on every target and in every version of this
//! workspace. A library's generator cannot promise this, and the digests in
//! `tests/cases/golden.txt` depend on it. Deliberately absent: numbers that an attacker cannot
//! guess.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert_ne!(end, 0, "no number is below 0");
        let wide = u128::from(self.number()) * u128::from(end);
        u64::try_from(wide >> 64).expect("below `end`")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index of a list with `len` items, at least one.
    pub fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).expect("a length");
        usize::try_from(self.below(len)).expect("an index")
    }

    /// True in this many of a hundred calls.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in one of `n` calls.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several, with equal probability.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// One of several, most often the first.
    pub fn lean<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        if self.chance(50) { &from[0] } else { self.pick(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The first numbers of seed 1234567 in the reference implementation (xoshiro.di.unimi.it).
    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.number());
        let reference =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, reference);
    }
}
