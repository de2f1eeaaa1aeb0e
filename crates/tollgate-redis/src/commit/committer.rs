//! The committer: takes requests for keys, and emits calls to the engine and responses.
//!
//! ```text
//!  ask -> waits with its key -> batch, decided at one now -> call -> done: answers
//!              ^                                               |
//!              |      other bytes are stored, another time,    |
//!              +------------ no script: decided again ---------+
//!              |                                               | result unknown
//!              +-------- my tag is not there: again --------- read -> my tag: answers
//! ```
//!
//! Invariant: the driver returns exactly one [`Reply`] for every call of an [`Event::Call`], late
//! or not; then every request gets exactly one response in the end. All times are of one monotonic
//! clock with any origin; two servers need not share it.
//!
//! Memory is bounded: the number of requests under way and the bytes remembered have limits.

use std::collections::{HashMap, VecDeque};

use tollgate_core::{Span, Timestamp};
use tollgate_storage::{CLOCK_ERROR, Clock};

use crate::commit::batch;
use crate::commit::breaker::Gate;
use crate::commit::call::{Call, CallId, Operation, Reply, Write};
use crate::commit::key::{Answer, Flight, Key, PendingRequest};
use crate::commit::lane::Lane;
use crate::commit::mutation::{self, Mutation};
use crate::commit::name::Name;
use crate::commit::request::{Failed, KeyRequest};
use crate::commit::settings::Settings;
use crate::commit::tally::Tally;
use crate::commit::value::{TAG_LEN, Tags};
use crate::commit::value_memory::ValueMemory;

/// An action for the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// Carry this call to the engine, and return its [`Reply`].
    Call(Call),
    /// Send this response to the caller.
    Answer(T, Result<Vec<u8>, Failed>),
}

/// Decides for many keys of an engine. `T` identifies the caller of a request.
#[derive(Debug)]
pub struct Committer<T> {
    pub(crate) settings: Settings,
    pub(crate) keys: HashMap<Name, Key<T>>,
    /// The keys whose calls are under way.
    calls: HashMap<CallId, Name>,
    remembered: ValueMemory,
    pub(crate) lanes: Vec<Lane>,
    tags: Tags,
    last_call: CallId,
    asks: usize,
    pub(crate) tally: Tally,
    #[cfg(test)]
    pub(crate) trace: Vec<Trace>,
    /// The number of the next request in the trace.
    #[cfg(test)]
    pub(crate) number: u64,
}

/// A record for tests.
#[cfg(test)]
#[derive(Debug)]
pub(crate) enum Trace {
    /// A call was sent; `decided` lists the requests and their answers.
    Sent { id: CallId, now: Timestamp, decided: Vec<(u64, KeyRequest, Answer)> },
    /// An answer, and the call that it depends on.
    Answered(u64, Option<CallId>),
}

impl<T> Committer<T> {
    /// A committer that remembers nothing. `seed` is random: it identifies the values that this
    /// committer writes.
    #[must_use]
    pub fn new(settings: Settings, seed: [u8; TAG_LEN]) -> Self {
        Self {
            settings,
            keys: HashMap::new(),
            calls: HashMap::new(),
            remembered: ValueMemory::new(settings.max_remembered),
            lanes: Vec::new(),
            tags: Tags::new(seed),
            last_call: 0,
            asks: 0,
            tally: Tally::default(),
            #[cfg(test)]
            trace: Vec::new(),
            #[cfg(test)]
            number: 0,
        }
    }

    /// The counts since the beginning.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Requests that have no response yet.
    #[must_use]
    pub const fn under_way(&self) -> usize {
        self.asks
    }

    /// True when the circuit of a node is open: it did not reply recently.
    #[must_use]
    pub fn is_open(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.breaker.is_open())
    }

    /// True while the circuit of some node is open at `mono`: its keys are not decided.
    #[must_use]
    pub fn is_cut_off(&self, mono: Span) -> bool {
        self.lanes.iter().any(|lane| lane.breaker.is_open_at(mono))
    }

    /// Takes a request for the key `name` on the node `lane`, at `mono`.
    pub fn ask(
        &mut self,
        (name, lane): (Name, usize),
        (ask, caller): (KeyRequest, T),
        mono: Span,
        out: &mut Vec<Event<T>>,
    ) {
        self.know_lane(lane);
        let waiting = self.keys.get(&name).map_or(0, |key| key.waiting.len());
        if self.asks >= self.settings.max_asks || waiting >= self.settings.max_waiting {
            Tally::add(&mut self.tally.overloaded);
            return out.push(Event::Answer(caller, Err(Failed::Overloaded)));
        }
        self.asks = self.asks.saturating_add(1);
        let remembered = &mut self.remembered;
        let key = self.keys.entry(name).or_insert_with(|| Key::new(lane, remembered.take(&name)));
        key.waiting.push_back(PendingRequest {
            ask,
            caller,
            since: mono,
            doubt: None,
            #[cfg(test)]
            number: self.number,
        });
        let lane = key.lane;
        self.line_up(name);
        self.pump(lane, mono, out);
    }

    /// Takes the result of call `id`, at `mono`. A second reply to one call is ignored.
    pub fn reply(&mut self, id: CallId, reply: Reply, mono: Span, out: &mut Vec<Event<T>>) {
        let Some(name) = self.calls.remove(&id) else { return };
        let Some(key) = self.keys.get_mut(&name) else { return };
        let lane = key.lane;
        let Some(flight) = key.flight.take() else { return };
        self.record_reply(lane, flight.sent, &reply, mono);
        if !self.settle(name, flight, reply, mono, out) {
            // A read follows at once, in the same place.
            return;
        }
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.window.give();
        }
        self.line_up(name);
        let moved_to = self.keys.get(&name).map(|key| key.lane).filter(|now| *now != lane);
        self.pump(lane, mono, out);
        if let Some(lane) = moved_to {
            self.pump(lane, mono, out);
        }
    }

    /// A key with waiting requests and no call under way joins the queue of its node; a key with
    /// neither is only remembered.
    fn line_up(&mut self, name: Name) {
        let Some(key) = self.keys.get_mut(&name) else { return };
        if key.flight.is_some() || key.is_ready {
            return;
        }
        if !key.waiting.is_empty() {
            key.is_ready = true;
            if let Some(lane) = self.lanes.get_mut(key.lane) {
                lane.ready.push_back(name);
            }
        } else if let Some(seen) = self.keys.remove(&name).and_then(|key| key.stored) {
            self.remembered.put(name, seen);
        }
    }

    /// Sends as many calls as the node may receive.
    fn pump(&mut self, lane: usize, mono: Span, out: &mut Vec<Event<T>>) {
        while let Some(of) = self.lanes.get_mut(lane) {
            if of.ready.is_empty() || !of.window.take() {
                return;
            }
            let Some(name) = of.ready.pop_front() else { return };
            if let Some(key) = self.keys.get_mut(&name) {
                key.is_ready = false;
            }
            if !self.start(name, mono, out) {
                if let Some(of) = self.lanes.get_mut(lane) {
                    of.window.give();
                }
                self.line_up(name);
            }
        }
    }

    /// Decides the waiting requests of a key and sends the call; false when nothing was sent.
    fn start(&mut self, name: Name, mono: Span, out: &mut Vec<Event<T>>) -> bool {
        self.dismiss_overdue(name, mono, out);
        let Some(key) = self.keys.get_mut(&name) else { return false };
        let Some(lane) = self.lanes.get_mut(key.lane) else { return false };
        if key.waiting.is_empty() {
            return false;
        }
        let now = lane.clock.now(mono).unwrap_or(Timestamp::ZERO);
        let batch = key.take_batch();
        let tag = self.tags.next();
        // The engine has forgotten this value by now.
        key.stored.take_if(|seen| seen.until <= now);
        let clock = Clock { now, steady_since: lane.steady.since(now), error: CLOCK_ERROR };
        let asks = batch.iter().map(|pending| &pending.ask);
        let marks = (tag, self.settings.is_replicated);
        let decided = batch::decide(key.stored.as_ref(), asks, &clock, marks);
        if !decided.needs_call() || answers_early(&decided.write) {
            key.stored = decided.leaves;
            let mut answers = decided.replies.into_iter();
            for pending in batch {
                let answer = answers.next().unwrap_or(Err(Failed::Malformed));
                self.answer(pending, answer, None, out);
            }
            return false;
        }
        match lane.breaker.ask(mono) {
            Gate::Closed | Gate::Probe => {}
            Gate::Open => {
                key.put_back(batch);
                self.fail_all(name, None, Failed::Open, out);
                return false;
            }
        }
        let has_script = lane.lacks_script;
        let what = Operation::Commit {
            expected: key.stored.as_ref().map(|seen| seen.value.clone()),
            write: decided.write.clone(),
            decided_at_ms: now.as_nanos().div_euclid(NANOS_PER_MS),
            tolerance_ms: if mutation::is(Mutation::AnyTime) {
                ANY
            } else {
                self.settings.tolerance_ms
            },
            has_script,
        };
        let flight = Flight {
            id: 0,
            call: 0,
            sent: mono,
            batch,
            decided,
            tag,
            #[cfg(test)]
            now,
            has_script,
            doubt: None,
        };
        self.send(name, flight, what, out);
        true
    }

    /// Sends a call of `flight`.
    pub(crate) fn send(
        &mut self,
        name: Name,
        mut flight: Flight<T>,
        what: Operation,
        out: &mut Vec<Event<T>>,
    ) {
        let Some(key) = self.keys.get_mut(&name) else { return };
        self.last_call = self.last_call.wrapping_add(1);
        Tally::add(&mut self.tally.calls);
        let id = self.last_call;
        flight.id = id;
        if flight.doubt.is_none() {
            flight.call = id;
        }
        #[cfg(test)]
        if matches!(what, Operation::Commit { .. }) {
            let asks = flight.batch.iter().zip(&flight.decided.replies);
            let one = |(pending, reply): (&PendingRequest<T>, &Answer)| {
                (pending.number, pending.ask.clone(), reply.clone())
            };
            let decided = asks.map(one).collect();
            self.trace.push(Trace::Sent { id, now: flight.now, decided });
        }
        key.flight = Some(flight);
        self.calls.insert(id, name);
        let connection = self.lanes.get(key.lane).map_or(0, |lane| lane.connection);
        out.push(Event::Call(Call { id, lane: key.lane, connection, name, what }));
    }

    /// Answers requests that have waited too long as overload.
    fn dismiss_overdue(&mut self, name: Name, mono: Span, out: &mut Vec<Event<T>>) {
        let longest = self.settings.max_wait;
        let Some(key) = self.keys.get_mut(&name) else { return };
        let is_overdue = |pending: &PendingRequest<T>| mono.saturating_sub(pending.since) > longest;
        if !key.waiting.iter().any(is_overdue) {
            return;
        }
        let (overdue, waiting): (VecDeque<_>, _) = key.waiting.drain(..).partition(is_overdue);
        key.waiting = waiting;
        for pending in overdue {
            self.answer(pending, Err(Failed::Overloaded), None, out);
        }
    }

    /// Fails all requests that wait for a key or are in `flight`.
    pub(crate) fn fail_all(
        &mut self,
        name: Name,
        flight: Option<Flight<T>>,
        why: Failed,
        out: &mut Vec<Event<T>>,
    ) {
        let Some(key) = self.keys.get_mut(&name) else { return };
        for pending in key.take_requests(flight) {
            self.answer(pending, Err(why), None, out);
        }
    }

    /// Answers one request; tests also record the call that the answer depends on.
    pub(crate) fn answer(
        &mut self,
        pending: PendingRequest<T>,
        answer: Answer,
        depends_on: Option<CallId>,
        out: &mut Vec<Event<T>>,
    ) {
        debug_assert!(self.asks > 0, "every request is counted");
        self.asks = self.asks.saturating_sub(1);
        match answer {
            Ok(_) => Tally::add(&mut self.tally.acknowledged),
            Err(Failed::Overloaded) => Tally::add(&mut self.tally.overloaded),
            Err(Failed::Engine(_) | Failed::Open | Failed::Corrupt) => {
                Tally::add(&mut self.tally.failed);
            }
            Err(Failed::Malformed) => {}
        }
        #[cfg(test)]
        self.trace.push(Trace::Answered(pending.number, depends_on));
        let _ = depends_on;
        out.push(Event::Answer(pending.caller, answer));
    }
}

const NANOS_PER_MS: u64 = 1_000_000;
/// A tolerance that accepts every time, for a mutation.
const ANY: u64 = 1 << 50;

/// The effect of two of the mutations.
fn answers_early(write: &Write) -> bool {
    match write {
        Write::Keep => mutation::is(Mutation::DeniesBeforeAck),
        Write::Delete | Write::Put { .. } => mutation::is(Mutation::AnswersBeforeAck),
    }
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]
mod tests {
    use tollgate_language::DescribedRequest;
    use tollgate_policy::{Plan, Surface};
    use tollgate_storage::read_leased;

    use super::*;
    use crate::commit::call::Fault;

    const NAME: Name = Name::new([1; 32]);

    fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    /// Removes the calls from the events and returns them.
    fn calls(events: &mut Vec<Event<u32>>) -> Vec<Call> {
        let call = |event| match event {
            Event::Call(call) => Some(call),
            Event::Answer(..) => None,
        };
        let is_call = |event: &mut Event<u32>| matches!(event, Event::Call(_));
        events.extract_if(.., is_call).filter_map(call).collect()
    }

    /// A request of an operator: it describes a key of no rule, and changes nothing.
    fn look() -> KeyRequest {
        let zeros = [0; 8];
        KeyRequest::Operate([&b"tollgt\0K"[..], &zeros, &[1], &zeros, &zeros].concat())
    }

    #[test]
    fn who_comes_meanwhile_is_decided_together() {
        let mut committer = Committer::new(Settings::default(), [0; TAG_LEN]);
        let mut out = Vec::new();
        for caller in 0..5 {
            committer.ask((NAME, 0), (look(), caller), ms(1), &mut out);
        }
        let sent = calls(&mut out);
        assert_eq!((sent.len(), out.len()), (1, 0), "one call, and no answer before it returns");
        // The first one sets the clock.
        let time = Timestamp::from_millis(1_780_000_000_000);
        let other_time = Reply::OtherTime { stored: None, time };
        committer.reply(sent[0].id, other_time, ms(3), &mut out);
        let again = calls(&mut out);
        let Operation::Commit { decided_at_ms, expected: None, write: Write::Keep, .. } =
            again[0].what
        else {
            panic!("{again:?}")
        };
        assert_eq!(decided_at_ms, 1_780_000_000_001);
        committer.ask((NAME, 0), (look(), 5), ms(3), &mut out);
        committer.reply(again[0].id, Reply::Done { time }, ms(4), &mut out);
        let third = calls(&mut out);
        let answered: Vec<u32> = out.drain(..).filter_map(caller).collect();
        assert_eq!(answered, [0, 1, 2, 3, 4], "all at once, in order");
        committer.reply(again[0].id, Reply::Done { time }, ms(4), &mut out);
        assert_eq!(out, [], "a second reply is nothing");
        committer.reply(third[0].id, Reply::Done { time }, ms(5), &mut out);
        assert_eq!(out.drain(..).filter_map(caller).collect::<Vec<_>>(), [5]);
        assert_eq!((committer.under_way(), committer.keys.len()), (0, 0));
        assert_eq!(committer.tally().calls, 3);
    }

    #[test]
    fn queues_are_bounded_and_overload_is_told_apart() {
        let settings =
            Settings { max_waiting: 3, max_asks: 10, max_calls: 8, ..Settings::default() };
        let mut committer = Committer::new(settings, [0; TAG_LEN]);
        let mut out = Vec::new();
        for caller in 0..5 {
            committer.ask((NAME, 0), (look(), caller), ms(1), &mut out);
        }
        let overloaded = |caller| Event::Answer(caller, Err(Failed::Overloaded));
        assert_eq!(out.pop(), Some(overloaded(4)), "one is under way and three wait");
        for caller in 5..15 {
            let name = Name::new([u8::try_from(caller).expect("small"); 32]);
            committer.ask((name, 0), (look(), caller), ms(1), &mut out);
        }
        let sent = calls(&mut out);
        assert_eq!(sent.len(), 7, "at most ten requests");
        let refused: Vec<u32> = out.drain(..).filter_map(caller).collect();
        assert_eq!(refused, [11, 12, 13, 14]);
        // Without a reply from the engine, no request that waited too long is sent again.
        committer.reply(sent[1].id, Reply::Refused(Fault::Loading), ms(6_000), &mut out);
        assert_eq!(out, [Event::Answer(5, Err(Failed::Engine(Fault::Loading)))]);
        committer.reply(sent[0].id, Reply::Refused(Fault::Loading), ms(6_000), &mut out);
        assert_eq!(out[2..], [1, 2, 3].map(overloaded));
    }

    #[test]
    fn a_silent_node_opens_its_circuit_and_a_probe_closes_it() {
        let settings = Settings { failures_to_open: 2, ..Settings::default() };
        let mut committer = Committer::new(settings, [0; TAG_LEN]);
        let mut out = Vec::new();
        committer.ask((NAME, 0), (look(), 0), ms(1), &mut out);
        committer.ask((NAME, 0), (look(), 1), ms(1), &mut out);
        let sent = calls(&mut out);
        committer.reply(sent[0].id, Reply::Unknown(Fault::Late), ms(100), &mut out);
        let read = calls(&mut out);
        assert_eq!((&read[0].what, out.len()), (&Operation::Read, 0), "it reads the result");
        committer.reply(read[0].id, Reply::Unknown(Fault::Late), ms(200), &mut out);
        let failed = |caller, why| Event::Answer(caller, Err(why));
        let late = Failed::Engine(Fault::Late);
        assert_eq!(out, [failed(0, late), failed(1, late)], "a waiting request gets a response");
        assert!(committer.is_open(0));
        out.clear();
        committer.ask((NAME, 0), (look(), 2), ms(299), &mut out);
        assert_eq!(out, [failed(2, Failed::Open)]);
        out.clear();
        committer.ask((NAME, 0), (look(), 3), ms(300), &mut out);
        let probe = calls(&mut out);
        committer.ask((Name::new([2; 32]), 0), (look(), 4), ms(300), &mut out);
        assert_eq!(out, [failed(4, Failed::Open)], "one at a time");
        out.clear();
        let time = Timestamp::ZERO;
        committer.reply(probe[0].id, Reply::Done { time }, ms(301), &mut out);
        assert!(!committer.is_open(0));
        assert_eq!(out.drain(..).filter_map(caller).collect::<Vec<_>>(), [3]);
    }

    /// Guards: an engine that accepts connections and then cuts them, called without end: each
    /// request finds another connection than the one it was decided for.
    #[test]
    fn a_connection_that_is_only_greeted_is_no_answer() {
        let settings = Settings { failures_to_open: 3, ..Settings::default() };
        let mut committer = Committer::new(settings, [0; TAG_LEN]);
        let (mut out, mut connections, mut open) = (Vec::new(), 0, None);
        let mut carry = |committer: &mut Committer<u32>, call: &Call, at, out: &mut Vec<_>| {
            if open.is_none() {
                connections += 1;
                open = Some(connections);
                committer.connected(0, connections);
            }
            let is_sent = call.what == Operation::Read || open == Some(call.connection);
            let reply = match is_sent {
                true => Reply::Unknown(Fault::Cut),
                false => Reply::Elsewhere { lane: 0 },
            };
            open.take_if(|_| is_sent);
            committer.reply(call.id, reply, ms(at), out);
        };
        let mut calls_of = |committer: &mut Committer<u32>, asks: usize, at: u64| {
            let mut sent = 0;
            for caller in (0..).take(asks) {
                committer.ask((NAME, 0), (look(), caller), ms(at), &mut out);
                while let Some(call) = calls(&mut out).pop() {
                    sent += 1;
                    carry(committer, &call, at, &mut out);
                }
            }
            assert_eq!(std::mem::take(&mut out).len(), asks, "all are answered");
            sent
        };
        let first = calls_of(&mut committer, 20, 1);
        assert!(committer.is_open(0));
        assert!(first <= 6, "{first} calls for 20 requests");
        // The probe is not lost on a new connection.
        for at in [200, 500, 1_000, 2_000, 4_000] {
            let probes = calls_of(&mut committer, 5, at);
            assert!((1..=3).contains(&probes), "{probes} at {at}");
            assert!(committer.is_open(0));
        }
    }

    #[test]
    fn a_missing_script_is_sent_once_and_then_it_is_a_failure() {
        let mut committer = Committer::new(Settings::default(), [0; TAG_LEN]);
        let mut out = Vec::new();
        committer.ask((NAME, 0), (look(), 0), ms(1), &mut out);
        let has_script = |call: &Call| match call.what {
            Operation::Commit { has_script, .. } => has_script,
            Operation::Read => false,
        };
        let first = calls(&mut out);
        committer.reply(first[0].id, Reply::NoScript, ms(2), &mut out);
        let second = calls(&mut out);
        assert_eq!([has_script(&first[0]), has_script(&second[0])], [false, true]);
        committer.reply(second[0].id, Reply::NoScript, ms(3), &mut out);
        assert_eq!(out, [Event::Answer(0, Err(Failed::Engine(Fault::Script)))]);
    }

    /// Guards: units that a node holds from before a failover, whose lease the new primary never
    /// saw, leased a second time.
    #[test]
    fn nothing_is_leased_for_one_life_after_the_first_reply_of_a_connection() {
        let document = r#"{"version": 1, "rules": [{"name": "r", "key": [], "scope": "fleet",
            "quotas": [{"limit": 1000, "window": "1h"}]}]}"#;
        let policy = tollgate_language::compile(document, Surface::Server).expect("a policy");
        let mut plan = Plan::new();
        let facts =
            DescribedRequest::parse(br#"{"method": "GET", "path": "/"}"#).expect("a request");
        policy.plan(&facts, &mut plan);
        let mut key = plan.partition(0).expect("one key").lease_key(&policy, [0; 16]);
        let mut committer = Committer::new(Settings::default(), [0; TAG_LEN]);
        let (mut out, mut number) = (Vec::new(), 0);
        let time = |mono| Timestamp::from_millis(1_780_000_000_000 + mono);
        let mut leased = |committer: &mut Committer<u32>, mono: u64| {
            number += 1;
            let ask = &mut key.rules[0].ask;
            (ask.number, ask.want, ask.least, ask.life) = (number, 10, 1, Span::from_secs(1));
            let request = policy.fleet().lease_request(&key, 1, false).expect("of the policy");
            committer.ask((NAME, 0), (KeyRequest::Check(request), 0), ms(mono), &mut out);
            loop {
                match out.pop() {
                    Some(Event::Answer(_, reply)) => {
                        let reply = reply.expect("a reply");
                        return read_leased(&reply).expect("a reply").0[0].is_ok();
                    }
                    Some(Event::Call(call)) => {
                        let near = match call.what {
                            Operation::Commit { decided_at_ms, .. } => {
                                decided_at_ms.abs_diff(1_780_000_000_000 + mono) < 50
                            }
                            Operation::Read => false,
                        };
                        let time = time(mono);
                        let reply = match near {
                            true => Reply::Done { time },
                            false => Reply::OtherTime { stored: None, time },
                        };
                        committer.reply(call.id, reply, ms(mono), &mut out);
                    }
                    None => panic!("nobody answers"),
                }
            }
        };
        committer.connected(0, 1);
        let at = [1, 5_000, 10_990, 11_010].map(|mono| leased(&mut committer, mono));
        assert_eq!(at, [false, false, false, true], "the store may have begun empty");
        committer.connected(0, 1);
        assert!(leased(&mut committer, 12_000), "it is the same");
        committer.connected(0, 2);
        let at = [13_000, 23_990, 24_010].map(|mono| leased(&mut committer, mono));
        assert_eq!(at, [false, false, true]);
        // Another committer received a reply on the third connection at once.
        committer.record_shared_reply((0, 3), time(25_000), ms(24_999), ms(25_000));
        committer.record_shared_reply((0, 3), time(30_000), ms(29_999), ms(30_000));
        let at = [35_990, 36_010].map(|mono| leased(&mut committer, mono));
        assert_eq!(at, [false, true], "since its first reply");
    }

    fn caller(event: Event<u32>) -> Option<u32> {
        match event {
            Event::Answer(caller, _) => Some(caller),
            Event::Call(_) => None,
        }
    }
}
