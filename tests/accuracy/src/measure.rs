//! Compares one limiter on one traffic with an exact log that sees the same arrivals.
//!
//! Invariant: the limiter and the exact log each keep their own history, so an error of one does
//! not carry over into the other. Both decide every request. The limiter is wrong wherever it
//! differs from the exact log.

use std::collections::{HashMap, VecDeque};
use tollgate_core::{Limiter, Timestamp, Verdict};
use tollgate_lab::simulator::{ExactLog, WindowCount};

/// A request for one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time of its arrival.
    pub at: Timestamp,
    /// The client that sends it.
    pub client: u32,
}

/// The difference between a limiter and an exact log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Requests in total.
    pub requests: u64,
    /// Requests that the limiter denied.
    pub denied: u64,
    /// Requests that the exact log denied.
    pub exact_denied: u64,
    /// Allowed by the limiter, denied by the exact log.
    pub false_allow: u64,
    /// Denied by the limiter, allowed by the exact log.
    pub false_deny: u64,
    /// The most units of one client that were sent on in any half-open window.
    pub most: u64,
}

/// The state of one client.
struct Client {
    state: Vec<u8>,
    exact: ExactLog,
    passed: WindowCount,
    /// The departure times of the waiting requests, in that order.
    waiting: VecDeque<Timestamp>,
}

/// Decides `arrivals`, which are in the order of time, with `limiter`.
///
/// A request that has to wait is compared and counted when it is sent on, because it waits in order
/// to arrive when it is allowed.
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
            Verdict::Deny | Verdict::Penalty => client.compare(&mut measured, arrival.at, false),
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

    /// Sends on the requests whose wait is over by `now`.
    fn go_on(&mut self, measured: &mut Measured, now: Timestamp) {
        while let Some(at) = self.waiting.front().copied().filter(|at| *at <= now) {
            self.waiting.pop_front();
            self.compare(measured, at, true);
        }
    }

    /// Compares a request that is sent on or denied at `at` with the decision of the exact log.
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
