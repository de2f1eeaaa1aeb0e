//! Metrics: the counters, their names, how counts are summed, and their text for Prometheus.
//!
//! Invariant: integers only, and bounded: at most [`MAX_SERIES`] series, whatever policies come and
//! go. A counter never goes down. Deliberately absent: the source of counts and the storage of
//! sums. A counting service sends a [`Delta`], and the owner of [`Sums`] stores its pages.

mod counters;
mod delta;
mod event;
mod policy;
mod series;
mod sums;
mod text;
mod waits;

pub use counters::Counters;
pub use delta::Delta;
pub use event::Event;
pub use policy::PolicyInForce;
pub use series::{MAX_SERIES, OTHER, Series, TENANT};
pub use sums::{Added, Sums};
pub use text::Format;
pub use tollgate_policy::metrics::Family;
pub use waits::{INFINITE, SUM, WAIT_BOUNDS_MS, wait_bucket};
