//! The waiting requests of one root, with the host's timer and gauges.
//!
//! Invariant: the timer is set for the next time that the queue names, the gauges show the queue's
//! content, and nothing is borrowed across a host call. Deliberately absent: the order of turns;
//! that is `tollgate_policy::waiting`'s.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::Timestamp;
use tollgate_policy::waiting::{Limits, Queue, Ticket};

use crate::cell::with;
use crate::host::proxy::Proxy;
use crate::host::timer::{Timer, TimerUser};
use crate::observability::metrics::Metrics;

/// The key of a line: the rule or tier with its quotas, and the fingerprint of its key.
pub type QueueKey = (u32, u64);

/// The waiting requests, by the numbers of their streams.
pub type Streams = Queue<QueueKey, u32>;

/// The waiting requests of one root.
pub struct Waiting<H> {
    host: H,
    timer: Rc<Timer<H>>,
    /// `None` where no request waits.
    queue: Cell<Option<Streams>>,
    /// The values in the gauges.
    reported: Cell<[i64; 2]>,
    /// The root has ended: it has no timer and no gauges.
    has_ended: Cell<bool>,
}

impl<H: Proxy> Waiting<H> {
    /// No request waits.
    pub fn new(host: H, timer: Rc<Timer<H>>) -> Self {
        let queue = H::WAITS.then(|| Queue::new(Limits::default()));
        Self {
            host,
            timer,
            queue: Cell::new(queue),
            reported: Cell::default(),
            has_ended: Cell::default(),
        }
    }

    /// Sets the limits; while requests wait, the limits stay as they were.
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

    /// Acts on the queue. `act` must not make a host call: if the host called back, it would find
    /// no queue.
    pub fn with<R>(&self, act: impl FnOnce(&mut Streams) -> R) -> Option<R> {
        if !H::WAITS {
            return None;
        }
        with(&self.queue, |queue| queue.as_mut().map(act))
    }

    /// Sets timer and gauges after the queue has changed.
    pub fn settle(&self, now: Timestamp, metrics: &Metrics) {
        if self.has_ended.get() {
            return;
        }
        let state = self.with(|queue| (queue.next_at(), [queue.len(), queue.bytes()]));
        let Some((next_at, held)) = state else { return };
        self.timer.set(TimerUser::Waiting, next_at, now);
        self.report(held.map(|number| i64::try_from(number).unwrap_or(i64::MAX)), metrics);
    }

    /// The root ends. The gauges are those of all roots together, so its part is subtracted; no
    /// timer serves streams that outlive the root.
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

/// The turn of a waiting request. When nothing takes it, or a panic ends it, the next request of
/// the line has its turn.
pub struct GivenTurn<'a, H: Proxy> {
    waiting: &'a Waiting<H>,
    ticket: Ticket,
    now: Timestamp,
    pub is_taken: bool,
}

impl<'a, H: Proxy> GivenTurn<'a, H> {
    /// A turn that nothing has taken yet.
    pub const fn new(waiting: &'a Waiting<H>, ticket: Ticket, now: Timestamp) -> Self {
        Self { waiting, ticket, now, is_taken: false }
    }
}

impl<H: Proxy> Drop for GivenTurn<'_, H> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.waiting.with(|queue| queue.done(self.ticket, self.now, None));
        }
    }
}
