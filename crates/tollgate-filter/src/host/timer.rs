//! The host's one timer of a root, for several users with times of their own.
//!
//! Invariant: it is set for the earliest wanted time, never earlier, and never stopped while a time
//! is wanted. Deliberately absent: the work when it fires; every user checks for itself.

use std::cell::Cell;

use tollgate_core::Timestamp;

use crate::host::proxy::Proxy;

/// A user of the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerUser {
    /// Requests that wait.
    Waiting,
    /// Lease requests to the authority of a fleet.
    Leases,
    /// The policy, which may have changed at its server.
    Policy,
    /// Counts that are to be handed over.
    Counters,
    /// Pending log lines.
    Logs,
    /// Requests in flight, which are to be confirmed.
    InFlight,
    /// The program around the filter, for work of its own.
    Program,
}

impl TimerUser {
    const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Leases,
        Self::Policy,
        Self::Counters,
        Self::Logs,
        Self::InFlight,
        Self::Program,
    ];

    const fn index(self) -> usize {
        match self {
            Self::Waiting => 0,
            Self::Leases => 1,
            Self::Policy => 2,
            Self::Counters => 3,
            Self::Logs => 4,
            Self::InFlight => 5,
            Self::Program => 6,
        }
    }
}

/// The timer of one root.
pub struct Timer<H> {
    host: H,
    wanted: [Cell<Option<Timestamp>>; TimerUser::ALL.len()],
    /// The time that the host's timer is set for.
    set_for: Cell<Option<Timestamp>>,
}

impl<H: Proxy> Timer<H> {
    /// A timer without a wanted time.
    pub fn new(host: H) -> Self {
        Self { host, wanted: Default::default(), set_for: Cell::default() }
    }

    /// The host's timer fires, and repeats with its period until it is set again.
    pub fn has_fired(&self) {
        self.set_for.set(Some(Timestamp::ZERO));
    }

    /// When `user` wants to be called.
    pub fn wanted(&self, user: TimerUser) -> Option<Timestamp> {
        self.wanted.get(user.index()).and_then(Cell::get)
    }

    /// Sets when `user` wants to be called: at `at`, or not at all.
    pub fn set(&self, user: TimerUser, at: Option<Timestamp>, now: Timestamp) {
        if let Some(wanted) = self.wanted.get(user.index()) {
            wanted.set(at);
        }
        let next_at = self.wanted.iter().filter_map(Cell::get).min();
        if self.set_for.replace(next_at) != next_at {
            self.host.set_tick_ms(next_at.map_or(0, |at| tick_ms(at, now)));
        }
    }
}

/// In how many milliseconds the host's timer is to fire for `at`, rounded up and at least 1: 0
/// would stop it.
fn tick_ms(at: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(at.since(now).as_millis_ceil()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_never_fires_early_and_never_stops_on_its_own() {
        let at = Timestamp::from_nanos;
        assert_eq!(tick_ms(at(1_000_001), at(0)), 2);
        assert_eq!(tick_ms(at(1_000_000), at(0)), 1);
        assert_eq!(tick_ms(at(5), at(5)), 1);
        assert_eq!(tick_ms(at(5), at(9)), 1);
        assert_eq!(tick_ms(at(u64::MAX), at(0)), u32::MAX);
    }
}
