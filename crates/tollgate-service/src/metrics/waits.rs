//! The histogram of waits: its bounds, and its names in metrics.
//!
//! Invariant: the bounds are stored by their words and used in alerts: they never change.

/// The upper bounds of the histogram of waits, in milliseconds: the label `le`, in seconds, is the
/// word next to it. The last bucket, without a bound, follows them.
pub const WAIT_BOUNDS_MS: [(u64, &str); 11] = [
    (10, "0.01"),
    (50, "0.05"),
    (100, "0.1"),
    (250, "0.25"),
    (500, "0.5"),
    (1_000, "1.0"),
    (2_500, "2.5"),
    (5_000, "5.0"),
    (10_000, "10.0"),
    (30_000, "30.0"),
    (60_000, "60.0"),
];

/// The bucket of waits without a bound.
pub const INFINITE: &str = "+Inf";
/// The name under which the sum of waits is kept, in milliseconds.
pub const SUM: &str = "sum";

/// The bucket of a wait: its index among the bounds, or after them.
#[must_use]
pub fn wait_bucket(milliseconds: u64) -> usize {
    WAIT_BOUNDS_MS.partition_point(|(bound, _)| *bound < milliseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_first_bucket_that_holds_it() {
        for (ms, bucket) in [(0, 0), (10, 0), (11, 1), (60_000, 10), (60_001, 11), (u64::MAX, 11)] {
            assert_eq!(wait_bucket(ms), bucket, "{ms}");
        }
    }
}
