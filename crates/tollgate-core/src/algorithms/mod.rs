//! One file per algorithm: its formula, its bound and its source.
//!
//! Three more hold what is truly the same in several: `rate` the parameters of GCRA and its kin, `clock` what a
//! late clock means to a counter, `ring` the decision of the log and the buckets. Invariant: an algorithm never imports another.

pub(crate) mod clock;
pub(crate) mod fixed_window;
pub(crate) mod gcra;
pub(crate) mod leaky_bucket;
pub(crate) mod leaky_queue;
pub(crate) mod rate;
pub(crate) mod ring;
pub(crate) mod sliding_buckets;
pub(crate) mod sliding_log;
pub(crate) mod sliding_window;
pub(crate) mod token_bucket;
