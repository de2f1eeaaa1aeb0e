//! The circuit breaker of one node: no request waits for a node that is known not to respond.
//!
//! Invariant: while closed, every call is sent. While open, none is sent until its time is over;
//! then one call at a time is a probe, which closes the circuit or opens it for twice as long.
//! Silence and refused connections count as failures, and so do calls that are redirected without
//! end. A node that reports an error has responded.

use tollgate_core::Span;

use crate::commit::settings::Settings;

/// The state of the circuit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Breaker {
    failures: u32,
    open_for: Span,
    /// `None`: closed.
    open_until: Option<Span>,
    is_probed: bool,
}

/// Whether a call may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Closed,
    /// The call that shows whether the node is back.
    Probe,
    Open,
}

impl Breaker {
    pub(crate) const fn new(settings: &Settings) -> Self {
        Self { failures: 0, open_for: settings.open_for, open_until: None, is_probed: false }
    }

    /// Whether a call may be sent at `mono`. A caller that receives [`Gate::Probe`] must report its
    /// result.
    pub(crate) fn ask(&mut self, mono: Span) -> Gate {
        match self.open_until {
            None => Gate::Closed,
            Some(until) if mono < until || self.is_probed => Gate::Open,
            Some(_) => {
                self.is_probed = true;
                Gate::Probe
            }
        }
    }

    /// True while calls are not sent, as of the last [`Self::ask`].
    pub(crate) const fn is_open(&self) -> bool {
        self.open_until.is_some()
    }

    /// True while no call may be sent at `mono`, not even a probe.
    pub(crate) fn is_open_at(&self, mono: Span) -> bool {
        self.open_until.is_some_and(|until| mono < until)
    }

    /// The node responded.
    pub(crate) const fn answered(&mut self, settings: &Settings) {
        *self = Self::new(settings);
    }

    /// The call gave no evidence about the node: the next call is the probe.
    pub(crate) const fn no_evidence(&mut self) {
        self.is_probed = false;
    }

    /// A call was given up after repeated redirects; true when this opened the circuit. Whether it
    /// was a probe has not been reported yet.
    pub(crate) fn gave_up(&mut self, mono: Span, settings: &Settings) -> bool {
        self.is_probed = self.open_until.is_some_and(|until| until <= mono);
        self.failed(mono, settings)
    }

    /// The node did not respond; true when this opened the circuit.
    pub(crate) fn failed(&mut self, mono: Span, settings: &Settings) -> bool {
        self.failures = self.failures.saturating_add(1);
        let was_open = self.is_open();
        if self.is_probed {
            self.open_for = self.open_for.saturating_mul(2).min(settings.longest_open);
        } else if was_open || self.failures < settings.failures_to_open {
            return false;
        }
        self.is_probed = false;
        self.open_until = Some(mono.saturating_add(self.open_for));
        !was_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_is_probed_by_one_and_closes() {
        let settings = Settings::default();
        let ms = Span::from_millis;
        let mut breaker = Breaker::new(&settings);
        for _ in 0..4 {
            assert!(!breaker.failed(ms(0), &settings));
        }
        breaker.answered(&settings);
        let opened: Vec<bool> = (0..6).map(|_| breaker.failed(ms(0), &settings)).collect();
        assert_eq!(opened, [false, false, false, false, true, false], "five in a row");
        assert!(breaker.is_open_at(ms(99)) && !breaker.is_open_at(ms(100)));
        assert_eq!(breaker.ask(ms(99)), Gate::Open);
        assert_eq!(breaker.ask(ms(100)), Gate::Probe);
        assert_eq!(breaker.ask(ms(100)), Gate::Open, "one at a time");
        let mut at = 100;
        for open_for in [200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            assert!(!breaker.failed(ms(at), &settings));
            assert_eq!(breaker.ask(ms(at + open_for - 1)), Gate::Open);
            at += open_for;
            assert_eq!(breaker.ask(ms(at)), Gate::Probe);
        }
        breaker.answered(&settings);
        assert_eq!(breaker.ask(ms(at)), Gate::Closed);
    }

    // Guards: a circuit that is probed without a pause by calls that are redirected without end.
    #[test]
    fn calls_that_are_given_up_open_it_for_longer_and_longer() {
        let settings = Settings::default();
        let ms = Span::from_millis;
        let mut breaker = Breaker::new(&settings);
        let opened: Vec<bool> = (0..5).map(|_| breaker.gave_up(ms(0), &settings)).collect();
        assert_eq!(opened, [false, false, false, false, true]);
        assert!(!breaker.gave_up(ms(50), &settings), "one that was under way changes nothing");
        for (at, until) in [(100, 300), (300, 700)] {
            for _ in 0..16 {
                assert_eq!(breaker.ask(ms(at)), Gate::Probe);
                breaker.no_evidence();
            }
            assert!(!breaker.gave_up(ms(at), &settings));
            assert_eq!(breaker.ask(ms(until - 1)), Gate::Open);
        }
    }
}
