//! Searches for the trace of which a limiter allows most in one window.
//!
//! It uses no knowledge of the algorithm: it sends requests and reads the responses. `grid` tries
//! every trace on a coarse clock, which proves that the documented bound is never exceeded there.
//! `climb` improves traces at any nanosecond, for limits that are too high for a full search.
//!
//! Invariant: a result is a trace, and [`crate::trace`] counts it again, so an error in a search
//! can only find too little. Deliberately not here: clocks that go back, and refunds. The bound is
//! not stated for these; the laws of the core hold.

pub mod climb;
pub mod grid;
mod goal;

pub use goal::Goal;

use crate::trace::{RequestGroup, admitted, busiest, departures};
use core::fmt;
use tollgate_core::{Limiter, Timestamp};

/// The best trace that a search found.
#[derive(Clone, Debug)]
pub struct Attack {
    /// The requests that are sent, all of which are allowed.
    pub volleys: Vec<RequestGroup>,
    /// Where the busiest window starts.
    pub window_at: Timestamp,
    /// The units in it.
    pub most: u64,
}

impl Attack {
    /// Counts the units of `volleys` that `limiter` allows.
    #[must_use]
    pub fn of(limiter: &Limiter, goal: Goal, volleys: &[RequestGroup]) -> Self {
        let mut volleys = admitted(limiter, volleys);
        volleys.retain(|volley| volley.units > 0);
        let (window_at, most) = match goal {
            Goal::Admissions => busiest(&volleys, limiter.window()),
            Goal::Departures => busiest(&departures(limiter, &volleys), limiter.window()),
        };
        Self { volleys, window_at, most }
    }

    /// The same with fewer requests: removes those that are not needed for the maximum.
    #[must_use]
    pub fn simplest(&self, limiter: &Limiter, goal: Goal) -> Self {
        let mut simplest = self.clone();
        for place in (0..self.volleys.len()).rev() {
            let mut fewer = simplest.volleys.clone();
            fewer.remove(place);
            let attack = Self::of(limiter, goal, &fewer);
            if attack.most == self.most && attack.volleys == fewer {
                simplest = attack;
            }
        }
        simplest
    }
}

/// `4 at 11.999999999 s, 1 at 12.000000001 s`
impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, RequestGroup { at, units }) in self.volleys.iter().enumerate() {
            let gap = if index == 0 { "" } else { ", " };
            write!(f, "{gap}{units} at {} s", seconds(*at))?;
        }
        Ok(())
    }
}

/// Seconds, with as many decimals as are needed: `1.5`.
fn seconds(at: Timestamp) -> String {
    let (whole, nanos) = (at.as_nanos() / 1_000_000_000, at.as_nanos() % 1_000_000_000);
    let text = format!("{whole}.{nanos:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{Algorithm, Quota, Span};

    #[test]
    fn a_simple_trace_has_nothing_that_is_not_needed() {
        let quota = Quota::new(2, Span::from_secs(2)).unwrap();
        let limiter = Limiter::new(Algorithm::FixedWindow, quota).unwrap();
        let sent = [(0, 2), (1_500, 1), (2_000, 1), (2_500, 9), (9_000, 1)];
        let volleys =
            sent.map(|(ms, units)| RequestGroup { at: Timestamp::from_millis(ms), units });
        let attack = Attack::of(&limiter, Goal::Admissions, &volleys);
        assert_eq!((attack.most, attack.volleys.len()), (2, 4));
        let simplest = attack.simplest(&limiter, Goal::Admissions);
        assert_eq!((simplest.most, simplest.to_string()), (2, "2 at 0 s".to_owned()));
        assert_eq!(seconds(Timestamp::from_nanos(11_999_999_999)), "11.999999999");
        assert_eq!(seconds(Timestamp::from_millis(10_500)), "10.5");
        assert_eq!(seconds(Timestamp::from_millis(20_000)), "20");
    }
}
