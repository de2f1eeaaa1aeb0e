//! Limits of single requests, on the counts of one key.
//!
//! Invariant: only the burst of the quota changes, with which a request is compared. States, their
//! length, the bound and what stays of a foreign state depend on the limit. Deliberately not here:
//! GCRA and its kin, whose state is a debt in units of one rate.

use crate::algorithms::calendar_window::CalendarWindow;
use crate::algorithms::fixed_window::FixedWindow;
use crate::algorithms::sliding_buckets::SlidingBuckets;
use crate::algorithms::sliding_log::SlidingLog;
use crate::algorithms::sliding_window::SlidingWindow;

/// The same counts for a request with a limit of its own.
macro_rules! within {
    ($($counter:ident),*) => {$(
        impl $counter {
            pub(crate) const fn within(mut self, limit: u64) -> Self {
                self.quota = self.quota.within(limit);
                self
            }
        }
    )*};
}

within!(FixedWindow, CalendarWindow, SlidingWindow, SlidingBuckets);

impl SlidingLog {
    /// The same entries for a request with a limit of its own.
    pub(crate) const fn within(self, limit: u64) -> Self {
        Self(self.0.within(limit))
    }
}
