//! The numbers in a response's JSON body that make its cost.
//!
//! Invariant: the cost is known when every number is.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_http_syntax::json_pointer::is_pointer;

/// The most numbers of one cost.
pub const MAX_POINTERS: usize = 8;
/// The most bytes of a pointer.
pub const MAX_POINTER_LEN: usize = 256;
/// The most quota units for each 1 of a number.
pub const MAX_WEIGHT: u64 = 1_000_000;

/// The cost in a body in JSON: a sum of numbers, each times its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonCost {
    /// The numbers, 1 to [`MAX_POINTERS`].
    pub numbers: Vec<WeightedNumber>,
    /// The origin is asked for a body that is not compressed.
    pub identity: bool,
}

/// A number in a body, and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedNumber {
    /// Its place in the document (RFC 6901).
    pub pointer: String,
    /// The units for each 1 of it, 1 to [`MAX_WEIGHT`].
    pub weight: u64,
}

impl JsonCost {
    /// True for one that a document may have.
    pub(crate) fn is_one(&self) -> bool {
        let is_first = |(i, number): (usize, &WeightedNumber)| {
            !self.numbers.iter().take(i).any(|other| other.pointer == number.pointer)
        };
        (1..=MAX_POINTERS).contains(&self.numbers.len())
            && self.numbers.iter().all(WeightedNumber::is_one)
            && self.numbers.iter().enumerate().all(is_first)
    }

    /// The sum of the numbers that `read` returns, each times its weight; at most `u64::MAX`.
    ///
    /// # Errors
    /// The first one of `read`.
    pub fn sum<E>(&self, read: impl Fn(&str) -> Result<u64, E>) -> Result<u64, E> {
        self.numbers.iter().try_fold(0, |sum: u64, number| {
            let units = read(&number.pointer)?.saturating_mul(number.weight);
            Ok(sum.saturating_add(units))
        })
    }
}

impl WeightedNumber {
    fn is_one(&self) -> bool {
        let Self { pointer, weight } = self;
        (1..=MAX_WEIGHT).contains(weight) && pointer.len() <= MAX_POINTER_LEN && is_pointer(pointer)
    }
}
