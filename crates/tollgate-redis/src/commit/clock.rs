//! The engine's clock, as a server keeps it: the server's monotonic clock and an offset.
//!
//! Invariant: `now` never goes back, except where the engine itself reported that it is far off.
//! The offset comes from the recent reply with the shortest round trip. That reply arrived at most
//! one round trip after the engine read its clock, so the offset is wrong by at most half of it. A
//! server's wall clock is not used.

use tollgate_core::{Span, Timestamp};

/// The minimum time that a reply counts as recent; the maximum is twice that.
const RECENT: Span = Span::from_secs(10);

/// The clock of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EngineClock {
    /// The best reading of this period and of the one before.
    best: [Option<Reading>; 2],
    period_began: Span,
    latest: Timestamp,
}

impl EngineClock {
    /// The engine's time at `mono`; `None` before the first reply.
    pub(crate) fn now(&mut self, mono: Span) -> Option<Timestamp> {
        let reading = self.best()?;
        self.latest = self.latest.max(reading.at(mono));
        Some(self.latest)
    }

    /// Takes the engine's `time` from a reply to a call that was `sent` and `received` at these
    /// times. If that time is impossible by the clock as it was known, only the new reading is
    /// kept: the engine's clock was set, or another engine replied.
    pub(crate) fn record_reply(&mut self, time: Timestamp, sent: Span, received: Span) {
        if !self.agrees(time, sent, received) {
            self.best = [None; 2];
        }
        let reading = Reading::new(time, sent, received);
        let age = received.saturating_sub(self.period_began);
        if age > RECENT {
            let [current, _] = self.best;
            // An offset from an old period may have drifted.
            let is_old = age > RECENT.saturating_mul(2);
            self.best = [None, if is_old { None } else { current }];
            self.period_began = received;
        }
        let [current, _] = &mut self.best;
        if current.is_none_or(|best| reading.round_trip <= best.round_trip) {
            *current = Some(reading);
        }
    }

    /// Like [`Self::record_reply`], for a reply that rejected a decision because of its time. True
    /// when the clock was wrong: then it goes back if necessary; otherwise the engine would reject
    /// every decision until its own clock has caught up.
    pub(crate) fn record_rejection(&mut self, time: Timestamp, sent: Span, received: Span) -> bool {
        let was_wrong = !self.agrees(time, sent, received);
        self.record_reply(time, sent, received);
        // Still ahead of this reply: `latest` is from an earlier time of the engine's clock.
        let ahead = self.latest.since(time) > received.saturating_sub(sent).saturating_add(SLACK);
        if was_wrong || ahead {
            self.latest = Timestamp::ZERO;
        }
        was_wrong || ahead
    }

    /// True when the engine may have read this `time` between `sent` and `received`.
    fn agrees(&self, time: Timestamp, sent: Span, received: Span) -> bool {
        let Some(best) = self.best() else { return false };
        let error = Span::from_nanos(best.round_trip.div_floor(TWO)).saturating_add(SLACK);
        let earliest = best.at(sent).saturating_sub(error);
        let latest = best.at(received).saturating_add(error);
        earliest <= time && time <= latest
    }

    fn best(&self) -> Option<Reading> {
        self.best.into_iter().flatten().min_by_key(|reading| reading.round_trip)
    }
}

const TWO: Span = Span::from_nanos(2);

/// How far two clocks may drift apart within two periods, 250 parts per million, and at least as
/// long as a machine may pause between reading its clock and sending.
const SLACK: Span = Span::from_millis(5);

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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A time in milliseconds.
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

    #[test]
    fn the_shortest_round_trip_counts_and_is_forgotten_after_a_while() {
        let mut clock = EngineClock::default();
        assert_eq!(clock.now(ms(5)), None);
        clock.record_reply(at(1_000_000), ms(100), ms(140));
        assert_eq!(clock.now(ms(140)), Some(at(1_000_020)));
        // Shorter: within half of 2 ms.
        clock.record_reply(at(1_000_090), ms(199), ms(201));
        assert_eq!(clock.now(ms(201)), Some(at(1_000_091)));
        clock.record_reply(at(1_000_280), ms(300), ms(400));
        assert_eq!(clock.now(ms(400)), Some(at(1_000_290)), "the longer one says less");
        // The engine's clock is slower by 1 ms in 5 s; after two periods the drift is known.
        clock.record_reply(at(1_010_090), ms(10_200), ms(10_204));
        assert_eq!(clock.now(ms(10_204)), Some(at(1_010_094)), "still the best of late");
        clock.record_reply(at(1_020_288), ms(20_400), ms(20_404));
        assert_eq!(clock.now(ms(20_404)), Some(at(1_020_290)), "the first one is forgotten");
    }

    #[test]
    fn it_does_not_go_back_until_the_engine_refuses_a_decision_for_it() {
        let mut clock = EngineClock::default();
        clock.record_reply(at(5_000), ms(10), ms(20));
        assert_eq!(clock.now(ms(20)), Some(at(5_005)));
        clock.record_reply(at(4_970), ms(20), ms(21));
        assert_eq!(clock.now(ms(21)), Some(at(5_005)), "set back a little: it stored still");
        assert!(
            clock.record_rejection(at(1_000), ms(30), ms(32)),
            "the engine's clock was set back"
        );
        assert_eq!(clock.now(ms(32)), Some(at(1_001)));
        assert!(clock.record_rejection(at(9_000), ms(40), ms(42)), "and forward");
        assert_eq!(clock.now(ms(42)), Some(at(9_001)));
    }

    #[test]
    fn a_call_that_waited_is_no_wrong_clock() {
        let mut clock = EngineClock::default();
        clock.record_reply(at(5_000), ms(10), ms(12));
        assert_eq!(clock.now(ms(20)), Some(at(5_009)));
        assert!(
            !clock.record_rejection(at(5_100), ms(20), ms(200)),
            "it waited 90 ms in the engine"
        );
        assert_eq!(clock.now(ms(200)), Some(at(5_189)));
    }

    #[test]
    fn the_first_reply_sets_it() {
        let mut clock = EngineClock::default();
        assert!(clock.record_rejection(at(5_000), ms(10), ms(12)));
        assert_eq!(clock.now(ms(12)), Some(at(5_001)));
    }
}
