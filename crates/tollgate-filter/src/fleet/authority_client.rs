//! The exchange of one root with the authority of a fleet: lease requests in flight, client
//! requests that wait for a response, and leases to check.
//!
//! Invariant: the limits bound the lease requests in flight and the waiting client requests, per
//! key and in all. One more is denied, never allowed. A lease request belongs to the root, so its
//! result is kept when its client has left. Nothing is borrowed across a host call. Deliberately
//! absent: the content of lease requests, and the handling of client requests.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::SlabMap;
use tollgate_policy::waiting::Limits;
use tollgate_storage::{MAX_LEASE_KEYS, MAX_LEASE_SETS};

use crate::active_policy::ActivePolicy;
use crate::cell::with;
use crate::fleet::check_schedule::CheckSchedule;
use crate::fleet::circuit_breaker::{Availability, CircuitBreaker};
use crate::fleet::in_flight::InFlightMarker;
use crate::fleet::lease_request::{KeyResult, LeaseRequest, ResponseContent, UnsentLeaseRequest};
use crate::fleet::lease_waiters::{LeaseWaiters, WaitStage};
use crate::fleet::spending::RequestedKey;
use crate::host::calls::NotSent;
use crate::host::proxy::Proxy;
use crate::host::timer::{Timer, TimerUser};
use crate::observability::metrics::LeaseEvent;

pub mod lease_work;
mod without_response;

/// The most lease requests in flight at once. Envoy's clusters take 1,024 by default from all
/// workers together, and those beyond fail without a response.
const MAX_CALLS: usize = 128;

/// Workers cannot wake each other, so a worker polls at this interval for a response that another
/// one waits for.
const POLL_INTERVAL: Span = Span::from_millis(4);

/// While no lease request may be sent, leases to return are checked at this interval.
const RETRY_INTERVAL: Span = Span::from_millis(100);

/// A response that is this late will not come: the host generates one when the time is over.
const LATE_AFTER: Span = Span::from_secs(5);

/// The exchange of one root with its authority.
pub struct AuthorityClient<H> {
    host: H,
    root: u32,
    timer: Rc<Timer<H>>,
    state: Cell<Option<AuthorityExchange<H>>>,
    in_flight: InFlightMarker,
    /// The value in the gauge, and the gauge: a later policy may have none.
    reported: Cell<i64>,
    gauge: Cell<Option<u32>>,
}

struct AuthorityExchange<H> {
    circuit_breaker: CircuitBreaker,
    /// Each call with its deadline.
    calls: SlabMap<u64, (Timestamp, LeaseRequest<H>)>,
    waiters: LeaseWaiters,
    check_schedule: CheckSchedule<H>,
    /// The cluster took no more: no lease request is sent until then.
    overloaded_until: Timestamp,
    /// When the timer is to fire for calls without a response.
    timeout_at: Option<Timestamp>,
    /// When the timer is to fire for waiting requests.
    poll_at: Option<Timestamp>,
}

impl<H: Proxy> AuthorityClient<H> {
    /// The exchange of the root of this number, with no lease requests yet.
    pub fn new(host: H, root: u32, timer: Rc<Timer<H>>) -> Self {
        let state = AuthorityExchange {
            circuit_breaker: CircuitBreaker::default(),
            calls: SlabMap::new(),
            waiters: LeaseWaiters::default(),
            check_schedule: CheckSchedule::default(),
            overloaded_until: Timestamp::ZERO,
            timeout_at: None,
            poll_at: None,
        };
        let (reported, gauge) = (Cell::default(), Cell::default());
        let (state, in_flight) = (Cell::new(Some(state)), InFlightMarker::default());
        Self { host, root, timer, state, in_flight, reported, gauge }
    }

    /// Sets the limits for waiting requests.
    pub fn set_limits(&self, limits: Limits) {
        self.with(|state| state.waiters.set_limits(limits));
    }

    /// Acts on the state. `act` must not make a host call: if the host called back, it would find
    /// no state.
    fn with<R>(&self, act: impl FnOnce(&mut AuthorityExchange<H>) -> R) -> Option<R> {
        with(&self.state, |state| state.as_mut().filter(|_| H::CALLS).map(act))
    }

    /// Whether a lease request may be sent at `now`.
    pub fn availability(&self, now: Timestamp) -> Availability {
        let availability = self.with(|state| {
            if !state.circuit_breaker.may_send(now) {
                return Availability::Unreachable;
            }
            if state.has_room(now) { Availability::Available } else { Availability::Busy }
        });
        availability.unwrap_or(Availability::Busy)
    }

    /// Sends a lease request for a stream, which is the current context.
    ///
    /// # Errors
    /// The host does not send it.
    pub fn request(
        &self,
        policy: &Rc<ActivePolicy<H>>,
        keys: Vec<RequestedKey>,
        stream: u32,
        now: Timestamp,
    ) -> Result<u32, UnsentLeaseRequest> {
        let sent = LeaseRequest { policy: Rc::clone(policy), keys, stream: Some(stream) };
        self.send(sent, Some(stream), now)
    }

    fn send(
        &self,
        sent: LeaseRequest<H>,
        back_to: Option<u32>,
        now: Timestamp,
    ) -> Result<u32, UnsentLeaseRequest> {
        let call = match sent.send(&self.host, self.root, back_to) {
            Ok(call) => call,
            Err(why) => return Err(self.not_sent(sent, why, now)),
        };
        sent.policy.count_lease_event(LeaseEvent::Sent, 1);
        let (policy, timeout) = (Rc::clone(&sent.policy), sent.policy.lease_timeout());
        // Where another thread sends it, a client does not wait for a thread that does nothing.
        let is_shared = H::SHARES_LEASE_WORK && sent.stream.is_some();
        let late_after = if is_shared { timeout } else { LATE_AFTER };
        let until = now.saturating_add(timeout).saturating_add(late_after);
        self.with(|state| {
            state.circuit_breaker.record_sent();
            state.calls.insert(call.into(), (until, sent));
        });
        self.in_flight.mark(&self.host, policy.cluster(), (now, timeout));
        Ok(call)
    }

    fn not_sent(&self, sent: LeaseRequest<H>, why: NotSent, now: Timestamp) -> UnsentLeaseRequest {
        let LeaseRequest { policy, keys, .. } = sent;
        let has_calls = self.with(|state| !state.calls.is_empty()) == Some(true);
        let has_others = || InFlightMarker::is_set(&self.host, policy.cluster(), now);
        let is_overloaded = match why {
            NotSent::Full => true,
            NotSent::Failed => has_calls || has_others(),
            NotSent::Refused => false,
        };
        if is_overloaded {
            self.with(|state| state.overloaded_until = now.saturating_add(POLL_INTERVAL));
        } else {
            policy.count_lease_event(LeaseEvent::Sent, 1);
            policy.count_lease_event(LeaseEvent::Failed, 1);
            self.with(|state| state.circuit_breaker.record_failure(now));
        }
        UnsentLeaseRequest { keys, is_overloaded }
    }

    /// Asks in advance for the leases of `keys`; no request waits for the response. The stream
    /// `back_to`, if any, is the current context before and after.
    pub fn prefetch(
        &self,
        policy: &Rc<ActivePolicy<H>>,
        keys: Vec<RequestedKey>,
        back_to: Option<u32>,
        now: Timestamp,
    ) {
        if keys.is_empty() {
            return;
        }
        let sent = LeaseRequest { policy: Rc::clone(policy), keys, stream: None };
        if let Err(unsent) = self.send(sent, back_to, now) {
            self.cancel(policy, unsent.keys);
        }
        self.settle(now, policy);
    }

    /// Records that a lease request about these keys was not sent.
    pub fn cancel(&self, policy: &Rc<ActivePolicy<H>>, keys: Vec<RequestedKey>) {
        for key in keys {
            let next = policy.cancel_request(&key);
            self.schedule_check(next, policy, key);
        }
    }

    /// Records results that no request waits for.
    pub fn record_results(
        &self,
        policy: &Rc<ActivePolicy<H>>,
        keys: Vec<RequestedKey>,
        answers: &[KeyResult],
    ) {
        for (key, answer) in keys.into_iter().zip(answers) {
            let leased = match answer {
                KeyResult::Decided(leased, _) => Some(&leased[..]),
                KeyResult::Failed | KeyResult::Overloaded => None,
            };
            let next = policy.record_results(&key, leased, &[]);
            self.schedule_check(next, policy, key);
        }
    }

    /// Schedules the check of the key for `next`, if there is such a time. The line of requests
    /// that wait for the key may continue.
    pub fn schedule_check(
        &self,
        next: Option<Timestamp>,
        policy: &Rc<ActivePolicy<H>>,
        key: RequestedKey,
    ) {
        self.with(|state| {
            state.waiters.mark_ready(key.holdings_key);
            if let Some(at) = next {
                state.check_schedule.schedule(at, Rc::clone(policy), key);
            }
        });
    }

    /// The lease request of a call whose response has arrived, with the result for each key, read
    /// from `len` bytes.
    pub fn answered(&self, call: u32, len: usize) -> Option<(LeaseRequest<H>, Vec<KeyResult>)> {
        let (_, sent) = self.with(|state| state.calls.remove(&call.into())).flatten()?;
        let now = self.host.now().unwrap_or_default();
        match sent.answers(&self.host, len) {
            ResponseContent::Results(answers) => {
                self.with(|state| state.circuit_breaker.record_success());
                Some((sent, answers))
            }
            ResponseContent::Overloaded => Some(self.overloaded(sent, now)),
            ResponseContent::Unusable => Some(self.failed(sent, now)),
        }
    }

    /// A request of this many bytes begins to wait; false when too many do.
    pub fn begin(&self, stage: WaitStage, stream: u32, bytes: usize) -> bool {
        self.with(|state| state.waiters.begin(stage, stream, bytes)) == Some(true)
    }

    /// A request that was given its turn continues to wait, as the first.
    pub fn rejoin(&self, stage: WaitStage, stream: u32) {
        self.with(|state| state.waiters.rejoin(stage, stream));
    }

    /// No request waits for the response to this call.
    pub fn detach(&self, call: u32) {
        self.with(|state| {
            if let Some((_, sent)) = state.calls.get_mut(&call.into()) {
                sent.stream = None;
            }
        });
    }

    /// A request no longer waits. The response to its lease request is still used.
    pub fn end(&self, stage: WaitStage, stream: u32, bytes: usize) {
        self.with(|state| state.waiters.end(stage, stream, bytes));
        if let WaitStage::Response(call) = stage {
            self.detach(call);
        }
    }

    /// True when the timer may be this one's.
    pub fn is_used(&self) -> bool {
        let is_used = self.with(|state| {
            state.waiters.len() > 0
                || !state.calls.is_empty()
                || state.check_schedule.next_at().is_some()
        });
        is_used == Some(true)
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.with(|state| state.waiters.len()).unwrap_or_default()
    }

    /// The timer fires: every waiting request may check again.
    pub fn mark_all_ready(&self) {
        self.with(|state| {
            state.poll_at = None;
            state.waiters.mark_all_ready();
        });
    }

    /// The next stream that may have its turn, removed from its line.
    pub fn next(&self, now: Timestamp) -> Option<u32> {
        let next = self.with(|state| {
            let may_send = state.has_room(now);
            state.waiters.pop_next(may_send)
        });
        next.flatten()
    }

    /// Returns or requests leases that are due at `now`.
    pub fn check_leases(&self, now: Timestamp) {
        if self.availability(now) != Availability::Available {
            return;
        }
        let mut due: Vec<(Rc<ActivePolicy<H>>, Vec<RequestedKey>)> = Vec::new();
        let mut room = MAX_LEASE_SETS;
        for _ in 0..MAX_LEASE_KEYS {
            let Some((policy, key)) =
                self.with(|state| state.check_schedule.pop_due(now, room)).flatten()
            else {
                break;
            };
            room = room.saturating_sub(key.key.rules.len());
            match policy.check_key(&key) {
                Ok(request) => match due.last_mut().filter(|(last, _)| Rc::ptr_eq(last, &policy)) {
                    Some((_, keys)) => keys.push(request),
                    None => due.push((policy, vec![request])),
                },
                Err(next) => {
                    let next = next.map(|at| at.max(now.saturating_add(POLL_INTERVAL)));
                    self.schedule_check(next, &policy, key);
                }
            }
        }
        for (policy, keys) in due {
            self.prefetch(&policy, keys, None, now);
        }
    }

    /// The root ends: it has no timer any more, and its part leaves the gauge.
    pub fn close(&self) {
        self.report(0);
        self.state.set(None);
    }

    fn report(&self, paused: i64) {
        let by = paused.saturating_sub(self.reported.replace(paused));
        if let (Some(gauge), true) = (self.gauge.get(), by != 0) {
            self.host.add(gauge, by);
        }
    }

    /// Sets the timer and the gauge.
    pub fn settle(&self, now: Timestamp, policy: &ActivePolicy<H>) {
        let state = self.with(|state| {
            let check_at = state.check_schedule.next_at();
            let soon = if state.waiters.has_ready() {
                Some(Span::from_millis(1))
            } else if state.waiters.is_polling() {
                Some(POLL_INTERVAL)
            } else {
                // Leases are due that may not be requested yet.
                check_at.filter(|at| *at <= now).map(|_| RETRY_INTERVAL)
            };
            let soon = soon.map(|soon| now.saturating_add(soon));
            // New requests do not postpone it.
            state.poll_at = state.poll_at.into_iter().chain(soon).min().filter(|_| soon.is_some());
            let check_at = check_at.filter(|at| *at > now);
            let watch = state.next_timeout(now);
            (state.poll_at.into_iter().chain(check_at).chain(watch).min(), state.waiters.len())
        });
        let Some((next_at, paused)) = state else { return };
        self.timer.set(TimerUser::Leases, next_at, now);
        self.gauge.set(policy.observer.metrics.paused().or(self.gauge.get()));
        self.report(i64::try_from(paused).unwrap_or(i64::MAX));
    }
}

impl<H> AuthorityExchange<H> {
    /// True when one more lease request may be in flight.
    fn has_room(&self, now: Timestamp) -> bool {
        self.calls.len() < MAX_CALLS && self.overloaded_until <= now
    }

    /// When the timer is to fire for calls without a response; calls that end do not postpone it.
    fn next_timeout(&mut self, now: Timestamp) -> Option<Timestamp> {
        let first = self.calls.values().map(|(until, _)| *until).min();
        let known = self.timeout_at.filter(|at| first.is_some() && *at > now);
        self.timeout_at = known.into_iter().chain(first).min();
        self.timeout_at
    }
}
