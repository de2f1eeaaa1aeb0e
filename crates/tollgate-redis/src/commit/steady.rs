//! The time since which a node's clock has made no step and the node has lost no write, as far as
//! is known here. Leases depend on it.
//!
//! Invariant: it is later than every step of more than [`STEP`] that replies showed, and than every
//! time that the node may have been replaced by another one. Smaller steps, whose sum is less than
//! the allowance of a lease, are not reported. Deliberately absent: what happened; only that it may
//! have happened.

use tollgate_core::{Span, Timestamp};

use crate::commit::clock::Reading;

/// Half of the allowance of a lease ([`CLOCK_ERROR`](tollgate_storage::CLOCK_ERROR)): the other
/// half is for the difference between two servers' readings of the same clock.
const STEP: Span = Span::from_millis(500);
/// A lease's longest life: a reply is compared with one from this long ago.
const PERIOD: Span = Span::from_secs(10);

/// The state of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steady {
    /// `None` until a reply arrives after the node may have been replaced.
    since: Option<Timestamp>,
    /// The first reading of this period and of the one before.
    readings: [Option<Reading>; 2],
    period_began: Span,
}

impl Steady {
    /// The node may have been replaced by now, or may have lost writes.
    pub(crate) fn disturb(&mut self) {
        *self = Self::default();
    }

    /// True when a reply arrived after the node may have been replaced.
    pub(crate) const fn is_known(&self) -> bool {
        self.since.is_some()
    }

    /// Takes the node's `time` from a reply to a call with these `sent` and `received` times.
    pub(crate) fn record_reply(&mut self, time: Timestamp, sent: Span, received: Span) {
        let reading = Reading::new(time, sent, received);
        let is_step = self.readings.iter().flatten().any(|before| is_step(before, &reading));
        if is_step || self.since.is_none() {
            *self =
                Self { since: Some(time), readings: [Some(reading), None], period_began: received };
        }
        if received.saturating_sub(self.period_began) > PERIOD {
            let [last, _] = self.readings;
            *self = Self { readings: [Some(reading), last], period_began: received, ..*self };
        }
    }

    /// The time since which the node is steady; `now` before the first reply. Never the beginning
    /// of time, which would mean that nothing ever happened.
    pub(crate) fn since(&self, now: Timestamp) -> Timestamp {
        self.since.unwrap_or(now).max(Timestamp::from_nanos(1))
    }
}

/// True when the clock certainly made a step between the two replies: the difference exceeds
/// [`STEP`] and half of both round trips.
fn is_step(before: &Reading, after: &Reading) -> bool {
    let expected = before.at(after.middle);
    let off = after.time.since(expected).max(expected.since(after.time));
    let halves = after.round_trip.saturating_add(before.round_trip).as_nanos().div_ceil(2);
    off > STEP.saturating_add(Span::from_nanos(halves))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::clock::tests::{at, ms};

    #[test]
    fn it_is_since_the_first_reply_the_last_step_and_the_last_disturbance() {
        let mut steady = Steady::default();
        assert_eq!(steady.since(at(77)), at(77), "nothing is known");
        steady.record_reply(at(100_000), ms(10), ms(12));
        assert_eq!(steady.since(at(200_000)), at(100_000));
        for second in 1..60 {
            steady.record_reply(
                at(100_000 + second * 1_000),
                ms(10 + second * 1_000),
                ms(12 + second * 1_000),
            );
        }
        assert_eq!(steady.since(at(200_000)), at(100_000));
        // Ahead by 600 ms.
        steady.record_reply(at(160_600), ms(60_010), ms(60_012));
        assert_eq!(steady.since(at(200_000)), at(160_600));
        // Back by 600 ms.
        steady.record_reply(at(161_000), ms(61_010), ms(61_012));
        assert_eq!(steady.since(at(200_000)), at(161_000));
        steady.disturb();
        assert_eq!(steady.since(at(200_000)), at(200_000));
        steady.record_reply(at(162_000), ms(62_010), ms(62_012));
        assert_eq!(steady.since(at(200_000)), at(162_000));
    }

    #[test]
    fn a_late_reply_and_a_slow_clock_are_no_steps_and_many_small_ones_are() {
        let mut steady = Steady::default();
        steady.record_reply(at(100_000), ms(0), ms(2));
        steady.record_reply(at(100_900), ms(1_000), ms(2_800));
        // 500 ppm slow, for an hour.
        for second in 2..3_600 {
            let time = 100_000 + second * 1_000 - second / 2;
            steady.record_reply(at(time), ms(second * 1_000), ms(second * 1_000 + 2));
        }
        assert_eq!(steady.since(at(1)), at(100_000));
        let mut sum = 0;
        for second in 3_600..3_604 {
            sum += 200;
            let time = 100_000 + second * 1_000 - 1_800 + sum;
            steady.record_reply(at(time), ms(second * 1_000), ms(second * 1_000 + 2));
        }
        assert!(steady.since(at(1)) > at(3_600_000), "600 ms in three seconds");
    }
}
