//! The host's metrics, as a trait.
//!
//! Invariant: a metric that the host does not have is `None`, which has no other effect.
//! Deliberately absent: names.

/// The host's metrics.
pub trait Counters {
    /// The number of the counter `name`, the same for the same name; `None` if the host has none.
    fn define(&self, name: &str) -> Option<u32>;
    /// The same for a gauge, which may go down again.
    fn define_gauge(&self, name: &str) -> Option<u32>;
    /// The same for a histogram.
    fn define_histogram(&self, name: &str) -> Option<u32>;
    /// Adds to a counter or a gauge.
    fn add(&self, counter: u32, by: i64);
    /// Sets a gauge, or records a value in a histogram.
    fn record(&self, metric: u32, value: u64);
}
