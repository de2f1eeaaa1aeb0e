//! A generator of random numbers whose sequence never changes.
//!
//! Invariant: the same seed gives the same numbers on every target and in every version of this
//! workspace. A library's generator cannot promise this, and the digests in `golden.txt` depend on
//! it.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
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
        let wide = u128::from(self.number()) * u128::from(end);
        u64::try_from(wide >> 64).expect("below `end`")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in this many of a hundred calls.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several, with equal probability.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let len = u64::try_from(from.len()).expect("a length");
        &from[usize::try_from(self.below(len)).expect("an index")]
    }

    /// One of several, most often the first.
    pub fn lean<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        if self.chance(50) { &from[0] } else { self.pick(from) }
    }
}
