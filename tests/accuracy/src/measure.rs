//! One limiter on one traffic, beside an exact log that sees the same arrivals.
//!
//! Invariant: the limiter and the exact log each keep their own history, so an error of the one is
//! not carried into the other; both are asked about every request, and wrong is who differs from
//! the exact log at that request.

use std::collections::{HashMap, VecDeque};
use tollgate_core::{Limiter, Timestamp, Verdict};
use tollgate_sim::{ExactLog, WindowCount};

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
    /// The most units of one client that went on in any half-open window.
    pub most: u64,
}

/// What one client has.
struct Client {
    state: Vec<u8>,
    exact: ExactLog,
    passed: WindowCount,
    /// When those go on who wait, in that order.
    waiting: VecDeque<Timestamp>,
}

/// Asks `limiter` about `arrivals`, which are in the order of time.
///
/// A request that has to wait is compared and counted when it goes on: what it waits for is to come
/// when it may.
#[must_use]
pub fn measure(limiter: &Limiter, arrivals: &[Arrival]) -> Measured {
    let mut clients: HashMap<u32, Client> = HashMap::new();
    let mut measured = Measured::default();
    for arrival in arrivals {
        let client = clients.entry(arrival.client).or_insert_with(|| Client::new(limiter));
        client.go_on(&mut measured, arrival.at);
        measured.requests += 1;
        match limiter.check(&mut client.state, arrival.at, 1).verdict {
            Verdict::Allow => client.compare(&mut measured, arrival.at, true),
            Verdict::Delay(wait) => client.waiting.push_back(arrival.at.saturating_add(wait)),
            Verdict::Deny => client.compare(&mut measured, arrival.at, false),
        }
    }
    clients.values_mut().for_each(|client| client.go_on(&mut measured, Timestamp::MAX));
    measured
}

impl Client {
    fn new(limiter: &Limiter) -> Self {
        Self {
            state: vec![0; limiter.state_len()],
            exact: ExactLog::new(limiter.limit(), limiter.window()),
            passed: WindowCount::new(limiter.window()),
            waiting: VecDeque::new(),
        }
    }

    /// Those whose wait is over by `now`.
    fn go_on(&mut self, measured: &mut Measured, now: Timestamp) {
        while let Some(at) = self.waiting.front().copied().filter(|at| *at <= now) {
            self.waiting.pop_front();
            self.compare(measured, at, true);
        }
    }

    /// A request that goes on or is refused at `at`, beside what the exact log decides then.
    fn compare(&mut self, measured: &mut Measured, at: Timestamp, is_admitted: bool) {
        if is_admitted {
            self.passed.record(at, 1);
            measured.most = measured.most.max(self.passed.most());
        }
        let is_due = self.exact.check(at, 1);
        measured.denied += u64::from(!is_admitted);
        measured.exact_denied += u64::from(!is_due);
        measured.false_allow += u64::from(is_admitted && !is_due);
        measured.false_deny += u64::from(!is_admitted && is_due);
    }
}
