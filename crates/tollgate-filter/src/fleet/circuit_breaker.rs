//! A circuit breaker for the authority: when it does not respond, requests stop waiting for it.
//!
//! Invariant: after [`FAILURE_THRESHOLD`] failures in a row this worker sends nothing for
//! [`OPEN_FOR`], then one lease request at a time, until one has a response. Every worker has its
//! own circuit breaker. Deliberately absent: the decision on a client request meanwhile; that is
//! the rule's `on_failure`.

use tollgate_core::{Span, Timestamp};

/// Failures in a row after which no lease request is sent.
const FAILURE_THRESHOLD: u32 = 5;
/// For how long none is sent.
const OPEN_FOR: Span = Span::from_secs(1);

/// Whether a lease request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It may be sent.
    Available,
    /// Too many lease requests are in flight.
    Busy,
    /// The authority did not respond lately.
    Unreachable,
}

/// The circuit breaker's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct CircuitBreaker {
    failures: u32,
    open_until: Timestamp,
    is_probing: bool,
}

impl CircuitBreaker {
    /// True when a lease request may be sent at `now`.
    pub fn may_send(&self, now: Timestamp) -> bool {
        self.failures < FAILURE_THRESHOLD || (!self.is_probing && self.open_until <= now)
    }

    /// A lease request was sent.
    pub const fn record_sent(&mut self) {
        self.is_probing = self.failures >= FAILURE_THRESHOLD;
    }

    /// A response arrived.
    pub fn record_success(&mut self) {
        *self = Self::default();
    }

    /// A lease request was rejected because too many were in flight, which shows nothing about the
    /// authority.
    pub const fn record_overload(&mut self) {
        self.is_probing = false;
    }

    /// A lease request failed at `now`.
    pub fn record_failure(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.is_probing = false;
        self.open_until = now.saturating_add(OPEN_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_five_failures_one_at_a_time_asks() {
        let at = Timestamp::from_millis;
        let mut circuit_breaker = CircuitBreaker::default();
        for _ in 0..4 {
            circuit_breaker.record_failure(at(0));
            assert!(circuit_breaker.may_send(at(0)));
        }
        circuit_breaker.record_success();
        for _ in 0..5 {
            assert!(circuit_breaker.may_send(at(0)));
            circuit_breaker.record_sent();
            circuit_breaker.record_failure(at(0));
        }
        assert!(!circuit_breaker.may_send(at(999)));
        assert!(circuit_breaker.may_send(at(1_000)));
        circuit_breaker.record_sent();
        assert!(!circuit_breaker.may_send(at(1_000)), "one at a time");
        circuit_breaker.record_failure(at(1_100));
        assert!(!circuit_breaker.may_send(at(2_099)));
        assert!(circuit_breaker.may_send(at(2_100)));
        circuit_breaker.record_sent();
        circuit_breaker.record_success();
        assert!(circuit_breaker.may_send(at(2_100)));
    }
}
