//! Earlier layouts of states, and the conversion of their states to today's layout.
//!
//! Invariant: a converted state decides as the earlier one did, so a deployment with a new layout
//! resets no key. Versions are counted over all algorithms together; an algorithm whose layout did
//! not change keeps its bytes through every version. Deliberately not here: the way back. Earlier
//! code does not know a later layout, and the store has to prevent that it reads one as its own.

use crate::limiter::Limiter;
use crate::method::Method;

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
        match &self.method {
            Method::SlidingBuckets(_) => 2,
            Method::Gcra(_)
            | Method::TokenBucket(_)
            | Method::LeakyBucket(_)
            | Method::LeakyQueue(_)
            | Method::FixedWindow(_)
            | Method::SlidingWindow(_)
            | Method::SlidingLog(_)
            | Method::Holds(_)
            | Method::CalendarWindow(_)
            | Method::InFlight(_) => 1,
        }
    }

    /// Bytes of one state in `version`; `None` where there is no such version.
    #[must_use]
    pub const fn state_len_in(&self, version: u8) -> Option<usize> {
        let len = self.state_len();
        match (&self.method, version) {
            (_, 0) => None,
            (_, later) if later > ENCODING_VERSION => None,
            (Method::SlidingBuckets(buckets), 1) => {
                let longer = len.saturating_sub(buckets.state_len());
                Some(buckets.shape().state_len_of_layout_1().saturating_add(longer))
            }
            _ => Some(len),
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
        match (&self.method, version) {
            (Method::SlidingBuckets(buckets), 1) => {
                let own = buckets.shape().state_len_of_layout_1();
                let parts = earlier.split_at_checked(own).zip(self.split_mut(state));
                let Some(((earlier, earlier_rest), (own, rest))) = parts else { return false };
                buckets.shape().convert(earlier, own);
                rest.copy_from_slice(earlier_rest);
            }
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
        match &self.method {
            Method::SlidingBuckets(buckets) => {
                self.split(state).is_none_or(|(own, _)| buckets.shape().is_consistent(own))
            }
            Method::Gcra(_)
            | Method::TokenBucket(_)
            | Method::LeakyBucket(_)
            | Method::LeakyQueue(_)
            | Method::FixedWindow(_)
            | Method::CalendarWindow(_)
            | Method::SlidingWindow(_)
            | Method::SlidingLog(_)
            | Method::Holds(_)
            | Method::InFlight(_) => true,
        }
    }

    /// Makes `state` [consistent](Limiter::is_consistent): the counters are kept.
    pub fn repair(&self, state: &mut [u8]) {
        if let (Method::SlidingBuckets(buckets), Some((own, _))) =
            (&self.method, self.split_mut(state))
        {
            buckets.shape().repair(own);
        }
    }
}
