//! Layouts of states that once were, and how a state of one becomes one of today's.
//!
//! Invariant: a converted state decides as the earlier one did, so that a deployment with a new
//! layout resets nobody. Versions are counted over all algorithms together; one whose layout did
//! not change keeps its bytes through every version. Deliberately not here: the way back. Earlier
//! code does not know a later layout, and whoever stores states sees to it that it takes none for
//! its own.

use crate::limiter::Limiter;

/// The latest version of the layouts: 2, since the sliding buckets keep their sum.
///
/// Whoever stores states says beside them which version they are of, [`Limiter::state_version`],
/// and [converts](Limiter::convert) those of an earlier one.
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

    /// Writes what `earlier` is in the layout of `version` to `state`, in today's layout; false
    /// when either is not as long as a state there, and then nothing is written. Any bytes are
    /// converted to something.
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

    /// False when `state` contradicts itself, which only damage leaves: the sum that sliding
    /// buckets store next to their counters is another than theirs. Such a state can allow three
    /// limits in a window. Whoever reads stored states [repairs](Limiter::repair) them. No state
    /// of another algorithm says one thing twice.
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
            | Self::SlidingWindow(_)
            | Self::SlidingLog(_)
            | Self::Holds(_) => true,
        }
    }

    /// Makes `state` [consistent](Limiter::is_consistent): the counters are right.
    pub fn repair(&self, state: &mut [u8]) {
        if let Self::SlidingBuckets(buckets) = self {
            buckets.shape().repair(state);
        }
    }
}
