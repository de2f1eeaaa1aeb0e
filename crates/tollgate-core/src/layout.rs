//! Earlier layouts of states, and the conversion of their states to today's layout.
//!
//! Invariant: a converted state decides as the earlier one did, so a deployment with a new layout
//! resets no key. Versions are counted over all algorithms together; an algorithm whose layout did
//! not change keeps its bytes through every version. Deliberately not here: the way back. Earlier
//! code does not know a later layout, and the store has to prevent that it reads one as its own.

use crate::limiter::Limiter;

/// The latest version of the layouts: 2, since the sliding buckets keep their sum.
///
/// The store of the states records their version, [`Limiter::state_version`], and
/// [converts](Limiter::convert) those of an earlier one.
pub const ENCODING_VERSION: u8 = 2;

impl Limiter {
    /// The version in which this limiter's states got today's layout: 1 for most, 2 for the sliding
    /// buckets.
    #[must_use]
    pub const fn state_version(&self) -> u8 {
        match self {
            Self::SlidingBuckets(_) => 2,
            _ => 1,
        }
    }

    /// Bytes of one state in `version`; `None` where there is no such version.
    #[must_use]
    pub const fn state_len_in(&self, version: u8) -> Option<usize> {
        match (self, version) {
            (_, 0) => None,
            (_, later) if later > ENCODING_VERSION => None,
            (Self::SlidingBuckets(buckets), 1) => Some(buckets.shape().state_len_of_layout_1()),
            _ => Some(self.state_len()),
        }
    }

    /// Writes to `state`, in today's layout, the state that `earlier` is in the layout of
    /// `version`. False when either does not have the length of a state there, and then nothing is
    /// written. Any bytes are converted to a state.
    #[must_use]
    pub fn convert(&self, version: u8, earlier: &[u8], state: &mut [u8]) -> bool {
        if self.state_len_in(version) != Some(earlier.len()) || state.len() != self.state_len() {
            return false;
        }
        match (self, version) {
            (Self::SlidingBuckets(buckets), 1) => buckets.shape().convert(earlier, state),
            _ => state.copy_from_slice(earlier),
        }
        true
    }

    /// False when `state` contradicts itself, which only damage causes: the sum that sliding
    /// buckets store next to their counters differs from the sum of the counters. Such a state can
    /// allow three limits in a window. A process that reads stored states
    /// [repairs](Limiter::repair) them. States of the other algorithms contain nothing twice.
    #[must_use]
    #[inline]
    pub fn is_consistent(&self, state: &[u8]) -> bool {
        match self {
            Self::SlidingBuckets(buckets) => buckets.shape().is_consistent(state),
            Self::Gcra(_)
            | Self::TokenBucket(_)
            | Self::LeakyBucket(_)
            | Self::LeakyQueue(_)
            | Self::FixedWindow(_)
            | Self::CalendarWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingLog(_)
            | Self::Holds(_) => true,
        }
    }

    /// Makes `state` [consistent](Limiter::is_consistent): the counters are kept.
    pub fn repair(&self, state: &mut [u8]) {
        if let Self::SlidingBuckets(buckets) = self {
            buckets.shape().repair(state);
        }
    }
}
