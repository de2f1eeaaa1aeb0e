//! The units that sliding buckets count, beyond the limit, too.
//!
//! Invariant: the number with which a decision at the same time compares. Deliberately not here:
//! decisions.

use crate::algorithms::counters::Ring;
use crate::algorithms::sliding_buckets::SlidingBuckets;
use crate::time::Timestamp;

impl SlidingBuckets {
    /// The units that are used at `now`; 0 for bytes that are not a state.
    pub(crate) fn counted(&self, state: &[u8], now: Timestamp) -> u64 {
        let Some((header, counters)) = self.shape.split(state) else { return 0 };
        let moment = self.moment(Ring::read(header, self.shape), counters, now, 0);
        let faded = if self.is_weighted { self.faded(counters, &moment) } else { 0 };
        moment.counting.sum.saturating_sub(faded)
    }
}
