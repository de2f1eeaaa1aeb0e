//! The carrier: the stream by which the timer wakes this thread.
//!
//! Invariant: only a stream that lasts is one. The others end at once as a rule, and each would
//! need a handle of its own. So a tick may be late while no stream lasts, and then the next request
//! looks for it. That is a line of the log, or the count of a place that no request took: a request
//! that waits is itself a stream that lasts, and a thread whose roots make calls is woken by any
//! stream. Not here: what is done then.

use std::time::Instant;

use super::Worker;
use crate::calls;
use crate::context::{Armed, Open, Root};
use crate::timer::{self, Sleeper};

impl Worker {
    /// Lets another stream wake this thread once the outermost hook ends, if the one that ended
    /// did.
    pub(super) fn hand_carrier_on(&self, id: u32) {
        if self.carrier.get() == Some(id) {
            self.carrier.set(None);
            self.context.armed.set(Armed::No);
            timer::unregister(self.sleeper());
        }
    }

    /// True when a tick is due by then that no stream brings.
    pub(super) fn is_overdue(&self, by: Instant) -> bool {
        let is_due = |root: &Root| root.tick.is_some_and(|(at, _)| at <= by);
        self.context.armed.get() == Armed::Later && self.context.roots.borrow().iter().any(is_due)
    }

    /// A hook about a stream ends: if the stream lasts, the timer need not wait for one.
    pub(super) fn may_carry(&self, stream: u32) {
        let lasts = || self.context.open(stream).is_some_and(|open| open.lasts());
        if self.context.armed.get() == Armed::Later && lasts() {
            self.context.armed.set(Armed::No);
        }
    }

    /// Sets when the timer wakes this thread, at the end of the outermost hook.
    pub(super) fn arm(&self) {
        if self.context.armed.get() != Armed::No {
            return;
        }
        let tick_of = |root: &Root| root.tick.map(|(at, _)| at);
        let roots = self.context.roots.borrow();
        let at = roots.iter().filter(|root| !root.is_main).filter_map(tick_of).min();
        let makes_calls = roots.iter().any(|root| !root.is_main && root.makes_calls);
        let of_main = roots.iter().filter(|root| root.is_main);
        let of_main: Vec<_> = of_main.map(|it| (it.configuration.number, tick_of(it))).collect();
        drop(roots);
        // Without a thread the next hook tries again.
        let wakes_main = |(number, at)| timer::wake_at(Sleeper::Main(number), at);
        let is_armed = of_main.into_iter().map(wakes_main).fold(true, |all, is_set| all & is_set);
        if at.is_some() && self.carrier.get().is_none() && !self.find_carrier(makes_calls) {
            let waits = is_armed && !makes_calls;
            return self.context.armed.set(if waits { Armed::Later } else { Armed::No });
        }
        let is_awake = self.carrier.get().is_none() || timer::wake_at(self.sleeper(), at);
        self.context.armed.set(if is_armed && is_awake { Armed::Yes } else { Armed::No });
    }

    /// Makes a stream the carrier; false when there is none.
    fn find_carrier(&self, is_any: bool) -> bool {
        let wakes = |open: &Open| is_any || open.lasts();
        let found = self.context.streams.borrow().find(wakes).map(|(id, it)| (id, it.stream));
        let Some((id, stream)) = found else { return false };
        self.carrier.set(Some(id));
        timer::register(self.sleeper(), stream.scheduler());
        if calls::has_mail(self.number()) {
            // It came while no stream could wake this thread.
            timer::wake(self.sleeper());
        }
        true
    }
}
