//! A circuit breaker for the authority: when it does not respond, requests stop waiting for it.
//!
//! Invariant: after `MOST` failures in a row this worker sends nothing for a while, then one lease
//! request at a time, until one has a response. Every worker has its own breaker. Deliberately
//! absent: the handling of a request that may not ask; that is the rule's `on_failure`.

use tollgate_core::{Span, Timestamp};

/// Failures in a row after which no lease request is sent.
const MOST: u32 = 5;
/// For how long none is sent.
const OPEN_FOR: Span = Span::from_secs(1);

/// The breaker's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    failures: u32,
    closed_until: Timestamp,
    is_probed: bool,
}

impl Breaker {
    /// True when a lease request may be sent at `now`.
    pub fn may_ask(&self, now: Timestamp) -> bool {
        self.failures < MOST || (!self.is_probed && self.closed_until <= now)
    }

    /// A lease request was sent.
    pub const fn asks(&mut self) {
        self.is_probed = self.failures >= MOST;
    }

    /// A response arrived.
    pub fn answered(&mut self) {
        *self = Self::default();
    }

    /// A lease request found no room on its way, which shows nothing about the authority.
    pub const fn was_full(&mut self) {
        self.is_probed = false;
    }

    /// A lease request failed, as of `now`.
    pub fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.is_probed = false;
        self.closed_until = now.saturating_add(OPEN_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_five_failures_one_at_a_time_asks() {
        let at = Timestamp::from_millis;
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            breaker.failed(at(0));
            assert!(breaker.may_ask(at(0)));
        }
        breaker.answered();
        for _ in 0..5 {
            assert!(breaker.may_ask(at(0)));
            breaker.asks();
            breaker.failed(at(0));
        }
        assert!(!breaker.may_ask(at(999)));
        assert!(breaker.may_ask(at(1_000)));
        breaker.asks();
        assert!(!breaker.may_ask(at(1_000)), "one at a time");
        breaker.failed(at(1_100));
        assert!(!breaker.may_ask(at(2_099)));
        assert!(breaker.may_ask(at(2_100)));
        breaker.asks();
        breaker.answered();
        assert!(breaker.may_ask(at(2_100)));
    }
}
