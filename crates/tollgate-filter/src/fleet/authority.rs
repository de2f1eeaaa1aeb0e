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
use tollgate_policy::waiting::{Limits, SlabMap};
use tollgate_storage::{MAX_LEASE_KEYS, MAX_LEASE_SETS};

use crate::active_policy::ActivePolicy;
use crate::fleet::agenda::Agenda;
use crate::fleet::breaker::Breaker;
use crate::fleet::crowd::Crowd;
use crate::fleet::pauses::{Pauses, Stage};
use crate::fleet::question::{Answers, KeyAnswer, Sent, Unsent};
use crate::fleet::spending::AskedKey;
use crate::host::calls::NotSent;
use crate::host::proxy::Proxy;
use crate::host::timer::{Timer, Wants};
use crate::watch::metrics::Asked;

/// The most lease requests in flight at once. Envoy's clusters take 1,024 by default from all
/// workers together, and those beyond fail without a response.
const MAX_CALLS: usize = 128;

/// Workers cannot wake each other, so a worker polls at this interval for a response that another
/// one waits for.
const LOOK_AGAIN: Span = Span::from_millis(4);

/// While no lease request may be sent, leases to return are checked at this interval.
const TRY_AGAIN: Span = Span::from_millis(100);

/// A response that is this late will not come: the host generates one when the time is over.
const GIVEN_UP: Span = Span::from_secs(5);

/// Whether a lease request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may be sent.
    Open,
    /// Too many lease requests are in flight.
    Busy,
    /// The authority did not respond lately.
    Away,
}

/// The exchange of one root with its authority.
pub struct Authority<H> {
    host: H,
    root: u32,
    timer: Rc<Timer<H>>,
    state: Cell<Option<State<H>>>,
    crowd: Crowd,
    /// The value in the gauge, and the gauge: a later policy may have none.
    reported: Cell<i64>,
    gauge: Cell<Option<u32>>,
}

struct State<H> {
    breaker: Breaker,
    /// Each call with its deadline.
    calls: SlabMap<u64, (Timestamp, Sent<H>)>,
    pauses: Pauses,
    agenda: Agenda<H>,
    /// The cluster took no more: no lease request is sent until then.
    full_until: Timestamp,
    /// When the timer is to fire for calls without a response.
    watch_at: Option<Timestamp>,
    /// When the timer is to fire for waiting requests.
    look_at: Option<Timestamp>,
}

impl<H: Proxy> Authority<H> {
    /// The exchange of the root of this number, with no lease requests yet.
    pub fn new(host: H, root: u32, timer: Rc<Timer<H>>) -> Self {
        let state = State {
            breaker: Breaker::default(),
            calls: SlabMap::new(),
            pauses: Pauses::default(),
            agenda: Agenda::default(),
            full_until: Timestamp::ZERO,
            watch_at: None,
            look_at: None,
        };
        let (reported, gauge) = (Cell::default(), Cell::default());
        let (state, crowd) = (Cell::new(Some(state)), Crowd::default());
        Self { host, root, timer, state, crowd, reported, gauge }
    }

    /// Sets the limits for waiting requests.
    pub fn set_limits(&self, limits: Limits) {
        self.with(|state| state.pauses.set_limits(limits));
    }

    /// Acts on the state. `act` must not make a host call: if the host called back, it would find
    /// no state.
    fn with<R>(&self, act: impl FnOnce(&mut State<H>) -> R) -> Option<R> {
        let mut state = self.state.take();
        let result = state.as_mut().map(act);
        self.state.set(state);
        result
    }

    /// Whether a lease request may be sent at `now`.
    pub fn gate(&self, now: Timestamp) -> Gate {
        let gate = self.with(|state| {
            if !state.breaker.may_ask(now) {
                return Gate::Away;
            }
            if state.has_room(now) { Gate::Open } else { Gate::Busy }
        });
        gate.unwrap_or(Gate::Busy)
    }

    /// Sends a lease request for a stream, which is the current context.
    ///
    /// # Errors
    /// The host does not send it.
    pub fn ask(
        &self,
        policy: &Rc<ActivePolicy<H>>,
        keys: Vec<AskedKey>,
        stream: u32,
        now: Timestamp,
    ) -> Result<u32, Unsent> {
        let sent = Sent { policy: Rc::clone(policy), keys, stream: Some(stream) };
        self.send(sent, Some(stream), now)
    }

    fn send(&self, sent: Sent<H>, back_to: Option<u32>, now: Timestamp) -> Result<u32, Unsent> {
        let call = match sent.send(&self.host, self.root, back_to) {
            Ok(call) => call,
            Err(why) => return Err(self.not_sent(sent, why, now)),
        };
        sent.policy.count_asked(Asked::Sent, 1);
        let (policy, patience) = (Rc::clone(&sent.policy), sent.policy.patience());
        let until = now.saturating_add(patience).saturating_add(GIVEN_UP);
        self.with(|state| {
            state.breaker.asks();
            state.calls.insert(call.into(), (until, sent));
        });
        self.crowd.note(&self.host, policy.cluster(), (now, patience));
        Ok(call)
    }

    fn not_sent(&self, sent: Sent<H>, why: NotSent, now: Timestamp) -> Unsent {
        let Sent { policy, keys, .. } = sent;
        let is_asking = || self.with(|state| !state.calls.is_empty()) == Some(true);
        let is_full = why == NotSent::Failed
            && (is_asking() || Crowd::is_there(&self.host, policy.cluster(), now));
        if is_full {
            self.with(|state| state.full_until = now.saturating_add(LOOK_AGAIN));
        } else {
            policy.count_asked(Asked::Sent, 1);
            policy.count_asked(Asked::Failed, 1);
            self.with(|state| state.breaker.failed(now));
        }
        Unsent { keys, is_full }
    }

    /// Asks in advance for the leases of `keys`; no request waits for the response. The stream
    /// `back_to`, if any, is the current context before and after.
    pub fn ask_ahead(
        &self,
        policy: &Rc<ActivePolicy<H>>,
        keys: Vec<AskedKey>,
        back_to: Option<u32>,
        now: Timestamp,
    ) {
        if keys.is_empty() {
            return;
        }
        let sent = Sent { policy: Rc::clone(policy), keys, stream: None };
        if let Err(unsent) = self.send(sent, back_to, now) {
            self.unask(policy, unsent.keys);
        }
        self.settle(now, policy);
    }

    /// Records that a lease request about these keys was not sent.
    pub fn unask(&self, policy: &Rc<ActivePolicy<H>>, keys: Vec<AskedKey>) {
        for key in keys {
            let next = policy.unask(&key);
            self.look_at(next, policy, key);
        }
    }

    /// Records results that no request waits for.
    pub fn hear(&self, policy: &Rc<ActivePolicy<H>>, keys: Vec<AskedKey>, answers: &[KeyAnswer]) {
        for (key, answer) in keys.into_iter().zip(answers) {
            let leased = match answer {
                KeyAnswer::Decided(leased, _) => Some(&leased[..]),
                KeyAnswer::Failed | KeyAnswer::Overloaded => None,
            };
            let next = policy.hear(&key, leased, &[]);
            self.look_at(next, policy, key);
        }
    }

    /// Schedules the check of the key for `next`, if there is such a time. The line of requests
    /// that wait for the key may continue.
    pub fn look_at(&self, next: Option<Timestamp>, policy: &Rc<ActivePolicy<H>>, key: AskedKey) {
        self.with(|state| {
            state.pauses.may_go_on(key.place);
            if let Some(at) = next {
                state.agenda.put(at, Rc::clone(policy), key);
            }
        });
    }

    /// The lease request of a call whose response has arrived, with the result for each key, read
    /// from `len` bytes.
    pub fn answered(&self, call: u32, len: usize) -> Option<(Sent<H>, Vec<KeyAnswer>)> {
        let (_, sent) = self.with(|state| state.calls.remove(&call.into())).flatten()?;
        let now = self.host.now().unwrap_or_default();
        match sent.answers(&self.host, len) {
            Answers::Each(answers) => {
                self.with(|state| state.breaker.answered());
                Some((sent, answers))
            }
            Answers::Full => {
                self.with(|state| {
                    state.breaker.was_full();
                    state.full_until = now.saturating_add(LOOK_AGAIN);
                });
                let full = sent.keys.iter().map(|_| KeyAnswer::Overloaded).collect();
                Some((sent, full))
            }
            Answers::Nothing => Some(self.failed(sent, now)),
        }
    }

    fn failed(&self, sent: Sent<H>, now: Timestamp) -> (Sent<H>, Vec<KeyAnswer>) {
        self.with(|state| state.breaker.failed(now));
        sent.policy.count_asked(Asked::Failed, 1);
        let nothing = sent.keys.iter().map(|_| KeyAnswer::Failed).collect();
        (sent, nothing)
    }

    /// A lease request without a response after its deadline, treated as failed. Otherwise it would
    /// hold its client request, its place among the calls and the breaker forever.
    pub fn overdue(&self, now: Timestamp) -> Option<(Sent<H>, Vec<KeyAnswer>)> {
        let sent = self.with(|state| {
            let call = *state.calls.iter().find(|(_, (until, _))| *until <= now)?.0;
            state.calls.remove(&call)
        });
        sent.flatten().map(|(_, sent)| self.failed(sent, now))
    }

    /// A request of this many bytes begins to wait; false when too many do.
    pub fn begin(&self, stage: Stage, stream: u32, bytes: usize) -> bool {
        self.with(|state| state.pauses.begin(stage, stream, bytes)) == Some(true)
    }

    /// A request that was given its turn continues to wait, as the first.
    pub fn go_on(&self, stage: Stage, stream: u32) {
        self.with(|state| state.pauses.go_on(stage, stream));
    }

    /// No request waits for the response to this call.
    pub fn forget(&self, call: u32) {
        self.with(|state| {
            if let Some((_, sent)) = state.calls.get_mut(&call.into()) {
                sent.stream = None;
            }
        });
    }

    /// A request no longer waits. The response to its lease request is still used.
    pub fn end(&self, stage: Stage, stream: u32, bytes: usize) {
        self.with(|state| state.pauses.end(stage, stream, bytes));
        if let Stage::Asked(call) = stage {
            self.forget(call);
        }
    }

    /// True when the timer may be this one's.
    pub fn is_used(&self) -> bool {
        let is_used = self.with(|state| {
            state.pauses.len() > 0 || !state.calls.is_empty() || state.agenda.next_at().is_some()
        });
        is_used == Some(true)
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.with(|state| state.pauses.len()).unwrap_or_default()
    }

    /// The timer fires: every waiting request may check again.
    pub fn wake(&self) {
        self.with(|state| {
            state.look_at = None;
            state.pauses.wake();
        });
    }

    /// The next stream that may have its turn, removed from its line.
    pub fn next(&self, now: Timestamp) -> Option<u32> {
        let next = self.with(|state| {
            let may_ask = state.has_room(now);
            state.pauses.next(may_ask)
        });
        next.flatten()
    }

    /// Returns or requests leases that are due at `now`.
    pub fn look_after(&self, now: Timestamp) {
        if self.gate(now) != Gate::Open {
            return;
        }
        let mut due: Vec<(Rc<ActivePolicy<H>>, Vec<AskedKey>)> = Vec::new();
        let mut room = MAX_LEASE_SETS;
        for _ in 0..MAX_LEASE_KEYS {
            let Some((policy, key)) = self.with(|state| state.agenda.pop(now, room)).flatten()
            else {
                break;
            };
            room = room.saturating_sub(key.key.rules.len());
            match policy.look_after(&key) {
                Ok(asked) => match due.last_mut().filter(|(last, _)| Rc::ptr_eq(last, &policy)) {
                    Some((_, keys)) => keys.push(asked),
                    None => due.push((policy, vec![asked])),
                },
                Err(next) => {
                    let next = next.map(|at| at.max(now.saturating_add(LOOK_AGAIN)));
                    self.look_at(next, &policy, key);
                }
            }
        }
        for (policy, keys) in due {
            self.ask_ahead(&policy, keys, None, now);
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
            let agenda = state.agenda.next_at();
            let soon = if state.pauses.has_more() {
                Some(Span::from_millis(1))
            } else if state.pauses.wait() {
                Some(LOOK_AGAIN)
            } else {
                // Leases are due that may not be requested yet.
                agenda.filter(|at| *at <= now).map(|_| TRY_AGAIN)
            };
            let soon = soon.map(|soon| now.saturating_add(soon));
            // New requests do not postpone it.
            state.look_at = state.look_at.into_iter().chain(soon).min().filter(|_| soon.is_some());
            let agenda = agenda.filter(|at| *at > now);
            let watch = state.watch(now);
            (state.look_at.into_iter().chain(agenda).chain(watch).min(), state.pauses.len())
        });
        let Some((next_at, paused)) = state else { return };
        self.timer.set(Wants::Asking, next_at, now);
        self.gauge.set(policy.observer.metrics.paused().or(self.gauge.get()));
        self.report(i64::try_from(paused).unwrap_or(i64::MAX));
    }
}

impl<H> State<H> {
    /// True when one more lease request may be in flight.
    fn has_room(&self, now: Timestamp) -> bool {
        self.calls.len() < MAX_CALLS && self.full_until <= now
    }

    /// When the timer is to fire for calls without a response; calls that end do not postpone it.
    fn watch(&mut self, now: Timestamp) -> Option<Timestamp> {
        let first = self.calls.values().map(|(until, _)| *until).min();
        self.watch_at = self.watch_at.filter(|at| first.is_some() && *at > now).or(first);
        self.watch_at
    }
}
