//! The requests of one root that wait, with the host's timer and gauges beside them.
//!
//! Invariant: the timer is set for the next time that the queue names, the gauges say what the
//! queue holds, and nothing is borrowed across a host call. Deliberately absent: whose turn is
//! when; that is `tollgate_policy::waiting`'s.

use std::cell::Cell;

use tollgate_core::Timestamp;
use tollgate_policy::waiting::{Limits, Queue};

use crate::metrics::Metrics;
use crate::proxy::Proxy;

/// Whose line it is: the rule or tier with its quotas, and the fingerprint of its key.
pub type Line = (u32, u64);

/// Who waits, by the numbers of their streams.
pub type Streams = Queue<Line, u32>;

/// What waits at one root.
pub struct Waiting<H> {
    host: H,
    queue: Cell<Option<Streams>>,
    /// When the timer is to fire.
    timer: Cell<Option<Timestamp>>,
    /// What the gauges say.
    reported: Cell<[i64; 2]>,
    /// The root has ended: there is no timer, and nobody is told.
    has_ended: Cell<bool>,
}

impl<H: Proxy> Waiting<H> {
    /// Nobody waits.
    pub fn new(host: H) -> Self {
        let queue = Some(Queue::new(Limits::default()));
        Self {
            host,
            queue: Cell::new(queue),
            timer: Cell::default(),
            reported: Cell::default(),
            has_ended: Cell::default(),
        }
    }

    /// As many may wait; unless some do, for whom it stays as it was.
    pub fn set_limits(&self, limits: Limits) {
        self.with(|queue| {
            if queue.is_empty() && queue.next_at().is_none() {
                *queue = Queue::new(limits);
            }
        });
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.with(|queue| queue.len()).unwrap_or_default()
    }

    /// Acts on the queue. No host call belongs into `act`: whoever calls back finds no queue.
    pub fn with<R>(&self, act: impl FnOnce(&mut Streams) -> R) -> Option<R> {
        let mut queue = self.queue.take();
        let result = queue.as_mut().map(act);
        self.queue.set(queue);
        result
    }

    /// The timer fires, and goes on with its period until it is set again.
    pub fn has_fired(&self) {
        self.timer.set(Some(Timestamp::ZERO));
    }

    /// Sets timer and gauges after the queue has changed.
    pub fn settle(&self, now: Timestamp, metrics: &Metrics) {
        if self.has_ended.get() {
            return;
        }
        let state = self.with(|queue| (queue.next_at(), [queue.len(), queue.bytes()]));
        let Some((next_at, held)) = state else { return };
        if self.timer.replace(next_at) != next_at {
            self.host.set_tick_ms(next_at.map_or(0, |at| tick_ms(at, now)));
        }
        self.report(held.map(|number| i64::try_from(number).unwrap_or(i64::MAX)), metrics);
    }

    /// The root ends. The gauges are those of all roots together, so its part leaves with it;
    /// streams that outlive it are waited for by nobody.
    pub fn end(&self, metrics: &Metrics) {
        self.has_ended.set(true);
        self.report([0, 0], metrics);
    }

    fn report(&self, held: [i64; 2], metrics: &Metrics) {
        let [waiters, bytes] = self.reported.replace(held);
        let [more, more_bytes] = held;
        let by = [more.saturating_sub(waiters), more_bytes.saturating_sub(bytes)];
        metrics.change_waiting(by, &self.host);
        metrics.grow_memory(self.host.memory_growth(), &self.host);
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
    fn the_timer_never_fires_early_and_never_stops_by_itself() {
        let at = Timestamp::from_nanos;
        assert_eq!(tick_ms(at(1_000_001), at(0)), 2);
        assert_eq!(tick_ms(at(1_000_000), at(0)), 1);
        assert_eq!(tick_ms(at(5), at(5)), 1);
        assert_eq!(tick_ms(at(5), at(9)), 1);
        assert_eq!(tick_ms(at(u64::MAX), at(0)), u32::MAX);
    }
}
