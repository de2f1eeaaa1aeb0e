//! What one root asks the authority of a fleet: questions under way, requests that wait for an
//! answer, and what is to be looked after.
//!
//! Invariant: so many questions are under way and so many requests wait as the limits say, for one
//! key and in all, and one more is refused: never let through. A question belongs to the root, so
//! what it brings is kept when the client that it was asked for has left. Nothing is borrowed
//! across a host call. Deliberately absent: what is asked, and what becomes of a request.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Limits, SlabMap};
use tollgate_policy::{MAX_LEASE_KEYS, MAX_LEASE_SETS};

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

/// Questions under way at once. Envoy's clusters take 1,024 by default of all workers together, and
/// what is beyond fails, which is no answer.
const MAX_CALLS: usize = 128;

/// Workers cannot wake each other: for an answer that another one waits for is looked so often.
const LOOK_AGAIN: Span = Span::from_millis(4);

/// What is to go back while nothing may be asked is looked at so often.
const TRY_AGAIN: Span = Span::from_millis(100);

/// An answer that is this late will not come: the host gives one of its own when the time is over.
const GIVEN_UP: Span = Span::from_secs(5);

/// Whether the authority may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// Too many questions are under way.
    Busy,
    /// It did not answer lately.
    Away,
}

/// What one root asks.
pub struct Authority<H> {
    host: H,
    root: u32,
    timer: Rc<Timer<H>>,
    state: Cell<Option<State<H>>>,
    crowd: Crowd,
    /// What the gauge says, and which it is: a policy that comes later may have none.
    reported: Cell<i64>,
    gauge: Cell<Option<u32>>,
}

struct State<H> {
    breaker: Breaker,
    /// With the time until which each is waited for.
    calls: SlabMap<u64, (Timestamp, Sent<H>)>,
    pauses: Pauses,
    agenda: Agenda<H>,
    /// The cluster took no more: nobody asks until then.
    full_until: Timestamp,
    /// When the timer is to fire for calls that nobody answers.
    watch_at: Option<Timestamp>,
    /// When the timer is to fire for those who wait.
    look_at: Option<Timestamp>,
}

impl<H: Proxy> Authority<H> {
    /// Nothing is asked yet by the root of this number.
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

    /// As many may wait from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.with(|state| state.pauses.set_limits(limits));
    }

    /// Acts on the state. No host call belongs into `act`: whoever calls back finds none.
    fn with<R>(&self, act: impl FnOnce(&mut State<H>) -> R) -> Option<R> {
        let mut state = self.state.take();
        let result = state.as_mut().map(act);
        self.state.set(state);
        result
    }

    /// Whether it may be asked at `now`.
    pub fn gate(&self, now: Timestamp) -> Gate {
        let gate = self.with(|state| {
            if !state.breaker.may_ask(now) {
                return Gate::Away;
            }
            if state.has_room(now) { Gate::Open } else { Gate::Busy }
        });
        gate.unwrap_or(Gate::Busy)
    }

    /// Sends a question for a stream, which calls are about.
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

    /// Asks ahead for what `keys` are about; nobody waits for the answer. Calls are about the
    /// stream `back_to` before and after, if about one.
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

    /// Takes note that a question about these was not sent.
    pub fn unask(&self, policy: &Rc<ActivePolicy<H>>, keys: Vec<AskedKey>) {
        for key in keys {
            let next = policy.unask(&key);
            self.look_at(next, policy, key);
        }
    }

    /// Takes note of answers that nobody waits for.
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

    /// The key is to be looked after at `next`, if there is such a time; the line of who waits for
    /// it may go on.
    pub fn look_at(&self, next: Option<Timestamp>, policy: &Rc<ActivePolicy<H>>, key: AskedKey) {
        self.with(|state| {
            state.pauses.may_go_on(key.place);
            if let Some(at) = next {
                state.agenda.put(at, Rc::clone(policy), key);
            }
        });
    }

    /// The question of a call that is answered: with what it says about each key, in `len` bytes.
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

    /// A question that the host has not answered though its time is over, as if it had failed. It
    /// would hold its request, its place among the calls and the breaker for ever.
    pub fn overdue(&self, now: Timestamp) -> Option<(Sent<H>, Vec<KeyAnswer>)> {
        let sent = self.with(|state| {
            let call = *state.calls.iter().find(|(_, (until, _))| *until <= now)?.0;
            state.calls.remove(&call)
        });
        sent.flatten().map(|(_, sent)| self.failed(sent, now))
    }

    /// A request of so many bytes begins to wait; false when too many do.
    pub fn begin(&self, stage: Stage, stream: u32, bytes: usize) -> bool {
        self.with(|state| state.pauses.begin(stage, stream, bytes)) == Some(true)
    }

    /// A request that was given its turn waits on, as the first.
    pub fn go_on(&self, stage: Stage, stream: u32) {
        self.with(|state| state.pauses.go_on(stage, stream));
    }

    /// Nobody waits for the answer to this call.
    pub fn forget(&self, call: u32) {
        self.with(|state| {
            if let Some((_, sent)) = state.calls.get_mut(&call.into()) {
                sent.stream = None;
            }
        });
    }

    /// A request waits no longer. What was asked for it is answered for nobody.
    pub fn end(&self, stage: Stage, stream: u32, bytes: usize) {
        self.with(|state| state.pauses.end(stage, stream, bytes));
        if let Stage::Asked(call) = stage {
            self.forget(call);
        }
    }

    /// True when the timer may be its own.
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

    /// The timer fires: everybody may look again.
    pub fn wake(&self) {
        self.with(|state| {
            state.look_at = None;
            state.pauses.wake();
        });
    }

    /// The next stream that may have its turn; it stands in no line any more.
    pub fn next(&self, now: Timestamp) -> Option<u32> {
        let next = self.with(|state| {
            let may_ask = state.has_room(now);
            state.pauses.next(may_ask)
        });
        next.flatten()
    }

    /// Gives back, or asks for, what is due at `now`.
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

    /// The root ends: there is no timer any more, and its part leaves the gauge.
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
                // What is due and may not be asked.
                agenda.filter(|at| *at <= now).map(|_| TRY_AGAIN)
            };
            let soon = soon.map(|soon| now.saturating_add(soon));
            // Requests that come do not put it off.
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
    /// True when one more question may be under way.
    fn has_room(&self, now: Timestamp) -> bool {
        self.calls.len() < MAX_CALLS && self.full_until <= now
    }

    /// When the timer is to fire for calls that nobody answers; not put off by those that go.
    fn watch(&mut self, now: Timestamp) -> Option<Timestamp> {
        let first = self.calls.values().map(|(until, _)| *until).min();
        self.watch_at = self.watch_at.filter(|at| first.is_some() && *at > now).or(first);
        self.watch_at
    }
}
