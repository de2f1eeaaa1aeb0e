//! The requests in flight that rules count: confirmed while they run, released when they end.
//!
//! Invariant: each is released once, when the host deletes its stream, whatever ended it: the
//! response, the client, a time-out or another filter. Each belongs to the root of its stream,
//! whose timer confirms it; when the root ends, to another one, because streams outlive their root.
//! Nothing is borrowed across a host call, and a stream that ends during one is released after it.
//! An end gives the first request of this worker that waits for the place its turn.
//! Deliberately absent: what is counted, and when it expires; that is the policy's.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::SlabMap;
use tollgate_policy::waiting::Turn;
use tollgate_policy::{Plan, RequestInFlight};

use crate::active_policy::ActivePolicy;
use crate::cell::with;
use crate::host::proxy::Proxy;
use crate::request::waiting::Waiting;

/// The most requests that are confirmed in one call of the timer, so that the others of the worker
/// need not wait; the rest follow in the next calls.
const CONFIRMED_PER_TICK: usize = 256;

/// The least time between two attempts to confirm a request whose count cannot be written.
const AGAIN_AFTER: Span = Span::from_millis(200);

/// The requests of one root in flight.
pub struct InFlight<H> {
    requests: Cell<Requests<H>>,
    /// The stream whose request is being confirmed, unless it has ended meanwhile.
    confirming: Cell<Option<u32>>,
}

/// By the numbers of their streams, and these in the order in which they are to be confirmed.
struct Requests<H> {
    by_stream: SlabMap<u64, Request<H>>,
    /// Sorted. Nearly all are added at its end.
    due: VecDeque<(Timestamp, u32)>,
}

struct Request<H> {
    policy: Rc<ActivePolicy<H>>,
    counted: Box<RequestInFlight>,
    confirm_at: Timestamp,
}

impl<H> Default for Requests<H> {
    fn default() -> Self {
        Self { by_stream: SlabMap::new(), due: VecDeque::new() }
    }
}

impl<H> Default for InFlight<H> {
    fn default() -> Self {
        Self { requests: Cell::default(), confirming: Cell::default() }
    }
}

impl<H: Proxy> InFlight<H> {
    /// A request continues whose plan is allowed and was charged at `since` or later.
    pub fn begin(&self, stream: u32, policy: &Rc<ActivePolicy<H>>, plan: &Plan, since: Timestamp) {
        if !policy.config.limits_in_flight {
            return;
        }
        let counted = plan.in_flight(&policy.config.policy).map(Box::new);
        let Some(mut counted) = counted else { return };
        let Some(after) = counted.confirm_after(&policy.config.policy) else { return };
        counted.plan_mut().memory().shrink();
        let confirm_at = since.saturating_add(after);
        self.insert(stream, Request { policy: Rc::clone(policy), counted, confirm_at });
    }

    /// The stream of a request has ended.
    pub fn end(&self, stream: u32, waiting: &Waiting<H>) {
        if self.confirming.get() == Some(stream) {
            return self.confirming.set(None);
        }
        if let Some(Request { policy, counted, .. }) = self.take(stream) {
            release(&policy, counted, waiting);
        }
    }

    /// When the next one has to be confirmed.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.with(|requests| requests.due.front().map(|(at, _)| *at))
    }

    /// Confirms the requests that are due.
    pub fn tick(&self, now: Timestamp, waiting: &Waiting<H>) {
        for _ in 0..CONFIRMED_PER_TICK {
            let due = self.with(|requests| requests.due.front().copied());
            let Some((_, stream)) = due.filter(|(at, _)| *at <= now) else { return };
            match self.take(stream) {
                Some(request) => self.confirm(stream, request, now, waiting),
                None => drop(self.with(|requests| requests.due.pop_front())),
            }
        }
    }

    fn confirm(&self, stream: u32, mut request: Request<H>, now: Timestamp, waiting: &Waiting<H>) {
        let Request { policy, counted, .. } = &mut request;
        if !counted.confirm() {
            return;
        }
        self.confirming.set(Some(stream));
        policy.charge(counted.plan_mut());
        policy.count_late(counted.confirmed(&policy.config.policy));
        if self.confirming.take().is_none() {
            return release(&request.policy, request.counted, waiting);
        }
        let Some(after) = counted.confirm_after(&policy.config.policy) else { return };
        let has_failed = counted.plan().has_failed();
        counted.plan_mut().memory().shrink();
        request.confirm_at = now.saturating_add(if has_failed { AGAIN_AFTER } else { after });
        self.insert(stream, request);
    }

    fn insert(&self, stream: u32, request: Request<H>) {
        self.with(|requests| {
            if requests.by_stream.get(&stream.into()).is_some() {
                return; // a stream is one request
            }
            let due = (request.confirm_at, stream);
            let place = requests.due.partition_point(|other| *other < due);
            requests.due.insert(place, due);
            requests.by_stream.insert_new(stream.into(), request);
        });
    }

    fn take(&self, stream: u32) -> Option<Request<H>> {
        self.with(|requests| {
            let request = requests.by_stream.remove(&stream.into())?;
            if let Ok(place) = requests.due.binary_search(&(request.confirm_at, stream)) {
                requests.due.remove(place);
            }
            Some(request)
        })
    }

    /// Acts on the requests. `act` must not make a host call: if the host called back, it would
    /// find none.
    fn with<R>(&self, act: impl FnOnce(&mut Requests<H>) -> R) -> R {
        with(&self.requests, act)
    }
}

fn release<H: Proxy>(
    policy: &ActivePolicy<H>,
    mut ended: Box<RequestInFlight>,
    waiting: &Waiting<H>,
) {
    if !ended.release() {
        return;
    }
    policy.charge(ended.plan_mut());
    if waiting.with(|queue| queue.is_empty()) != Some(false) {
        return;
    }
    let Some(now) = policy.host.now() else { return };
    for turn in Turn::freed_by(&policy.config.policy, &ended) {
        let line = policy.queue_key(ended.plan(), &turn);
        waiting.with(|queue| {
            let _ = queue.place_freed(&line, now);
        });
    }
    policy.settle_waiting(waiting, now);
}
