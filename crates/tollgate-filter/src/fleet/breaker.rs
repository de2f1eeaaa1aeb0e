//! Whether the authority is asked: one that does not answer is not waited for by everybody.
//!
//! Invariant: after so many failures in a row nobody asks for a while, then one does at a time,
//! until one is answered. It is each worker's own. Deliberately absent: what becomes of who may not
//! ask; that is the rule's `on_failure`.

use tollgate_core::{Span, Timestamp};

/// Failures in a row after which nobody asks.
const MOST: u32 = 5;
/// For how long.
const OPEN_FOR: Span = Span::from_secs(1);

/// What is known of the authority.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    failures: u32,
    closed_until: Timestamp,
    is_probed: bool,
}

impl Breaker {
    /// True when a question may go at `now`.
    pub fn may_ask(&self, now: Timestamp) -> bool {
        self.failures < MOST || (!self.is_probed && self.closed_until <= now)
    }

    /// A question goes.
    pub const fn asks(&mut self) {
        self.is_probed = self.failures >= MOST;
    }

    /// One was answered.
    pub fn answered(&mut self) {
        *self = Self::default();
    }

    /// One found no room on its way: that says nothing of who was to answer.
    pub const fn was_full(&mut self) {
        self.is_probed = false;
    }

    /// One was not, as of `now`.
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
