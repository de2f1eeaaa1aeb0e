//! A search for the trace of which a limiter lets most through in one window.
//!
//! It knows nothing of how an algorithm works: it sends requests and looks at the answers. `grid`
//! tries everything that can be sent on a coarse clock, which proves that the documented bound is
//! never passed there; `climb` tries better and better traces at any nanosecond, for limits that
//! are too high to try everything.
//!
//! Invariant: what is found is a trace, and counted again from it by [`crate::trace`]: a mistake of
//! a search can only find too little. Deliberately not here: clocks that go back, and what is given
//! back; for these the bound is not stated so, and the laws of the core hold.

pub mod climb;
pub mod grid;
mod goal;

pub use goal::Goal;

use crate::trace::{Volley, admitted, busiest, departures};
use tollgate_core::{Limiter, Timestamp};

/// The best trace that a search found.
#[derive(Clone, Debug)]
pub struct Attack {
    /// What is sent, all of which is admitted.
    pub volleys: Vec<Volley>,
    /// Where the busiest window starts.
    pub window_at: Timestamp,
    /// The units in it.
    pub most: u64,
}

impl Attack {
    /// Counts what `limiter` lets through of `volleys`.
    #[must_use]
    pub fn of(limiter: &Limiter, goal: Goal, volleys: &[Volley]) -> Self {
        let mut volleys = admitted(limiter, volleys);
        volleys.retain(|volley| volley.units > 0);
        let (window_at, most) = match goal {
            Goal::Admissions => busiest(&volleys, limiter.window()),
            Goal::Departures => busiest(&departures(limiter, &volleys), limiter.window()),
        };
        Self { volleys, window_at, most }
    }
}
