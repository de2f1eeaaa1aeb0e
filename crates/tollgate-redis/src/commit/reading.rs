//! One reading of a node's clock, from one reply.
//!
//! Invariant: the node read its clock within half of the round trip of its middle. Deliberately
//! absent: which replies are believed.

use tollgate_core::{Span, Timestamp};

/// The clock reading of one reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) time: Timestamp,
    pub(crate) round_trip: Span,
    /// The middle of the round trip, by the monotonic clock.
    pub(crate) middle: Span,
}

impl Reading {
    /// The node's `time`, from a reply to a call with these `sent` and `received` times.
    pub(crate) fn new(time: Timestamp, sent: Span, received: Span) -> Self {
        let round_trip = received.saturating_sub(sent);
        let half = Span::from_nanos(round_trip.as_nanos().div_euclid(2));
        Self { time, round_trip, middle: sent.saturating_add(half) }
    }

    /// The node's time at `mono`, which may be before the reading.
    pub(crate) fn at(&self, mono: Span) -> Timestamp {
        let after = self.time.saturating_add(mono.saturating_sub(self.middle));
        after.saturating_sub(self.middle.saturating_sub(mono))
    }
}

/// Times of tests, in milliseconds.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    pub(crate) const fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_time_is_that_of_the_middle() {
        let reading = Reading::new(at(1_000), ms(10), ms(13));
        assert_eq!(reading.round_trip, ms(3));
        assert_eq!(reading.middle, Span::from_nanos(11_500_000));
        for (mono, expected) in [(10, 998_500_000), (13, 1_001_500_000), (12, 1_000_500_000)] {
            assert_eq!(reading.at(ms(mono)), Timestamp::from_nanos(expected), "{mono}");
        }
    }
}
