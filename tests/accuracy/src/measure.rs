//! One limiter on one traffic, beside an exact log that sees the same arrivals.
//!
//! Invariant: the limiter and the exact log each keep their own history, so an error of the one is
//! not carried into the other; both are asked about every request, and wrong is who differs from
//! the exact log at that request.

use crate::exact::{ExactLog, Window};
use std::collections::HashMap;
use tollgate_core::{Limiter, Timestamp, Verdict};

/// A request for one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it comes.
    pub at: Timestamp,
    /// Whose it is.
    pub client: u32,
}

/// How far a limiter was from exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Requests in all.
    pub requests: u64,
    /// Those that the limiter refused.
    pub denied: u64,
    /// Those that the exact log refused.
    pub exact_denied: u64,
    /// Admitted, and the exact log refused them.
    pub false_allow: u64,
    /// Refused, and the exact log admitted them.
    pub false_deny: u64,
    /// The most units of one client that were admitted in any half-open window; those that wait
    /// count when they go on.
    pub most: u64,
}

/// What one client has.
struct Client {
    state: Vec<u8>,
    exact: ExactLog,
    passed: Window,
}

/// Asks `limiter` about `arrivals`, which are in the order of time.
#[must_use]
pub fn measure(limiter: &Limiter, arrivals: &[Arrival]) -> Measured {
    let mut clients: HashMap<u32, Client> = HashMap::new();
    let mut measured = Measured::default();
    for arrival in arrivals {
        let client = clients.entry(arrival.client).or_insert_with(|| Client {
            state: vec![0; limiter.state_len()],
            exact: ExactLog::new(limiter.limit(), limiter.window()),
            passed: Window::new(limiter.window()),
        });
        let verdict = limiter.check(&mut client.state, arrival.at, 1).verdict;
        let passes_at = match verdict {
            Verdict::Allow => Some(arrival.at),
            Verdict::Delay(wait) => Some(arrival.at.saturating_add(wait)),
            Verdict::Deny => None,
        };
        if let Some(at) = passes_at {
            client.passed.add(at, 1);
        }
        let is_admitted = passes_at.is_some();
        let is_due = client.exact.admits(arrival.at, 1);
        measured.requests += 1;
        measured.denied += u64::from(!is_admitted);
        measured.exact_denied += u64::from(!is_due);
        measured.false_allow += u64::from(is_admitted && !is_due);
        measured.false_deny += u64::from(!is_admitted && is_due);
        measured.most = measured.most.max(client.passed.most());
    }
    measured
}
