//! Handles the reply to the call of a batch.
//!
//! Invariant: a response leaves here only when the bytes of its commit were acknowledged, or were
//! seen in the engine. Where the result is unknown, a request is decided at most one more time, and
//! a request that returns units is not decided again: an uncertain charge stays.

use tollgate_core::Span;

use crate::commit::call::{Fault, Operation, Reply, Write};
use crate::commit::committer::{Committer, Event};
use crate::commit::key::{Doubt, Flight, PendingRequest};
use crate::commit::mutation::{self, Mutation};
use crate::commit::name::Name;
use crate::commit::request::Failed;
use crate::commit::tally::Tally;
use crate::commit::value::{Tag, tag_of};
use crate::commit::value_memory::KnownValue;

/// The most consecutive calls of one key that may be rejected for their time or for the missing
/// script. Each rejection halves the calls sent to the node or sets the clock, so more of them show
/// that retrying does not help.
const MAX_REFUSALS: u32 = 16;

impl<T> Committer<T> {
    /// Takes the reply to the batch in `flight`; false when a read of the engine follows.
    pub(crate) fn settle(
        &mut self,
        name: Name,
        flight: Flight<T>,
        reply: Reply,
        mono: Span,
        out: &mut Vec<Event<T>>,
    ) -> bool {
        match reply {
            Reply::Done { .. } => self.done(name, flight, out),
            Reply::Alone { fault, .. } => self.too_few_replicas(name, flight, fault, out),
            Reply::Mismatch { stored, .. } => {
                Tally::add(&mut self.tally.mismatches);
                if mutation::is(Mutation::WinsEveryRace) {
                    self.done(name, flight, out);
                } else {
                    self.lost_race(name, flight, stored.map(KnownValue::of_another), out);
                }
            }
            Reply::OtherTime { stored, .. } => {
                let stored = Some(stored.map(KnownValue::of_another));
                self.rejected((name, mono), flight, stored, Fault::Clock, out);
            }
            Reply::NoScript => {
                Tally::add(&mut self.tally.scripts_missing);
                self.rejected((name, mono), flight, None, Fault::Script, out);
            }
            Reply::Elsewhere { lane } if flight.doubt.is_none() => {
                self.know_lane(lane);
                if let Some(key) = self.keys.get_mut(&name) {
                    key.lane = lane;
                }
                self.rejected((name, mono), flight, None, Fault::ClusterDown, out);
            }
            // A misdirected read shows nothing.
            Reply::Elsewhere { .. } => {
                return self.unknown(name, flight, Fault::ClusterDown, mono, out);
            }
            Reply::Stored(stored) => {
                self.read_back(name, flight, stored.map(KnownValue::of_another), out);
            }
            Reply::Refused(fault) => self.not_done(name, flight, fault, out),
            Reply::Unknown(fault) => return self.unknown(name, flight, fault, mono, out),
        }
        true
    }

    /// The write is stored: every request of the batch gets its response.
    fn done(&mut self, name: Name, flight: Flight<T>, out: &mut Vec<Event<T>>) {
        Tally::add(&mut self.tally.commits);
        if let Some(key) = self.keys.get_mut(&name) {
            key.stored = flight.decided.leaves;
            key.refusals = 0;
        }
        let mut replies = flight.decided.replies.into_iter();
        for pending in flight.batch {
            let reply = replies.next().unwrap_or(Err(Failed::Malformed));
            self.answer(pending, reply, Some(flight.call), out);
        }
    }

    /// The write is stored, and too few replicas are known to have it: the charge stays, and no
    /// request of the batch gets a response.
    fn too_few_replicas(
        &mut self,
        name: Name,
        flight: Flight<T>,
        fault: Fault,
        out: &mut Vec<Event<T>>,
    ) {
        if let Some(key) = self.keys.get_mut(&name) {
            key.stored = flight.decided.leaves;
            key.refusals = 0;
        }
        for pending in flight.batch {
            self.answer(pending, Err(Failed::Engine(fault)), None, out);
        }
    }

    /// The write is found stored, after its own reply was lost.
    fn found(&mut self, name: Name, flight: Flight<T>, out: &mut Vec<Event<T>>) {
        if self.settings.is_replicated {
            return self.too_few_replicas(name, flight, Fault::Replicas, out);
        }
        self.done(name, flight, out);
    }

    /// Other bytes are stored. They may be from an earlier attempt, or from this one, which the
    /// network delivered twice.
    fn lost_race(
        &mut self,
        name: Name,
        flight: Flight<T>,
        stored: Option<KnownValue>,
        out: &mut Vec<Event<T>>,
    ) {
        if tag_there(stored.as_ref()) == Some(flight.tag) {
            return self.found(name, flight, out);
        }
        self.decide_again(name, flight.batch, stored, out);
    }

    /// The engine did nothing because of the time, or because the script is missing: the batch is
    /// decided again, up to a limit. Nodes that redirect calls without end count as unavailable.
    fn rejected(
        &mut self,
        (name, mono): (Name, Span),
        flight: Flight<T>,
        stored: Option<Option<KnownValue>>,
        fault: Fault,
        out: &mut Vec<Event<T>>,
    ) {
        let Some(key) = self.keys.get_mut(&name) else { return };
        key.refusals = key.refusals.saturating_add(1);
        let is_nonsense = fault == Fault::Script && flight.has_script;
        if key.refusals > MAX_REFUSALS || is_nonsense {
            key.refusals = 0;
            let lane = self.lanes.get_mut(key.lane).filter(|_| fault == Fault::ClusterDown);
            if lane.is_some_and(|lane| lane.breaker.gave_up(mono, &self.settings)) {
                Tally::add(&mut self.tally.opened);
            }
            return self.not_done(name, flight, fault, out);
        }
        match stored {
            Some(stored) => self.lost_race(name, flight, stored, out),
            None => key.put_back(flight.batch),
        }
    }

    /// It is certain that this call did nothing. Requests that wait behind it are decided
    /// separately, unless the node is silent.
    fn not_done(&mut self, name: Name, flight: Flight<T>, fault: Fault, out: &mut Vec<Event<T>>) {
        let why = Failed::Engine(fault);
        if fault.is_silence() {
            return self.fail_all(name, Some(flight), why, out);
        }
        for pending in flight.batch {
            self.answer(pending, Err(why), None, out);
        }
    }

    /// It is unknown whether the call was applied: reads the key, unless the node is known to be
    /// silent.
    fn unknown(
        &mut self,
        name: Name,
        mut flight: Flight<T>,
        fault: Fault,
        mono: Span,
        out: &mut Vec<Event<T>>,
    ) -> bool {
        if mutation::is(Mutation::BelievesAfterTimeout) {
            self.done(name, flight, out);
            return true;
        }
        let Some(key) = self.keys.get_mut(&name) else { return true };
        // The remembered bytes may be those before or after the call.
        key.stored = None;
        let is_open = self.lanes.get(key.lane).is_none_or(|lane| lane.breaker.is_open());
        if let Some(first) = flight.doubt {
            self.fail_all(name, Some(flight), Failed::Engine(first), out);
            return true;
        }
        Tally::add(&mut self.tally.unknown);
        if is_open {
            self.fail_all(name, Some(flight), Failed::Engine(fault), out);
            return true;
        }
        Tally::add(&mut self.tally.reads);
        flight.doubt = Some(fault);
        flight.sent = mono;
        self.send(name, flight, Operation::Read, out);
        false
    }

    /// Takes the stored bytes, read after a call without a reply.
    fn read_back(
        &mut self,
        name: Name,
        flight: Flight<T>,
        stored: Option<KnownValue>,
        out: &mut Vec<Event<T>>,
    ) {
        let tag = tag_there(stored.as_ref());
        if tag == Some(flight.tag) {
            Tally::add(&mut self.tally.found_done);
            return self.found(name, flight, out);
        }
        let why = Failed::Engine(flight.doubt.unwrap_or(Fault::Nonsense));
        let wrote_nothing = flight.decided.write == Write::Keep;
        let mut again = Vec::with_capacity(flight.batch.len());
        let mut replies = flight.decided.replies.into_iter();
        for mut pending in flight.batch {
            let reply = replies.next().unwrap_or(Err(Failed::Malformed));
            if pending.doubt.as_ref().is_some_and(|doubt| Some(doubt.tag) == tag) {
                // From an earlier attempt: found below.
                again.push(pending);
                continue;
            }
            let may_repeat = wrote_nothing || pending.ask.is_repeatable();
            match reply {
                Ok(reply) if may_repeat && pending.doubt.is_none() => {
                    pending.doubt = Some(Doubt { call: flight.call, tag: flight.tag, reply });
                    again.push(pending);
                }
                Ok(_) => self.answer(pending, Err(why), None, out),
                Err(failed) => self.answer(pending, Err(failed), None, out),
            }
        }
        self.decide_again(name, again, stored, out);
    }

    /// Bytes of another commit are stored. Requests of `batch` that an earlier attempt did not
    /// write there are decided again on these bytes.
    fn decide_again(
        &mut self,
        name: Name,
        batch: Vec<PendingRequest<T>>,
        stored: Option<KnownValue>,
        out: &mut Vec<Event<T>>,
    ) {
        let others = self.answer_doubts(batch, tag_there(stored.as_ref()), out);
        if let Some(key) = self.keys.get_mut(&name) {
            key.stored = stored;
            key.put_back(others);
        }
    }

    /// Answers the requests whose earlier attempt left the stored `tag`; returns the others.
    fn answer_doubts(
        &mut self,
        batch: Vec<PendingRequest<T>>,
        tag: Option<Tag>,
        out: &mut Vec<Event<T>>,
    ) -> Vec<PendingRequest<T>> {
        let mut others = Vec::with_capacity(batch.len());
        for mut pending in batch {
            match pending.doubt.take_if(|doubt| Some(doubt.tag) == tag) {
                Some(_) if self.settings.is_replicated => {
                    Tally::add(&mut self.tally.found_done);
                    self.answer(pending, Err(Failed::Engine(Fault::Replicas)), None, out);
                }
                Some(doubt) => {
                    Tally::add(&mut self.tally.found_done);
                    self.answer(pending, Ok(doubt.reply), Some(doubt.call), out);
                }
                None => others.push(pending),
            }
        }
        others
    }
}

/// The tag of the commit that left the stored bytes, if they contain one.
fn tag_there(stored: Option<&KnownValue>) -> Option<Tag> {
    stored.and_then(|seen| tag_of(&seen.value)).copied()
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
    use std::sync::Arc;

    use tollgate_core::Timestamp;
    use tollgate_language::DescribedRequest;
    use tollgate_policy::{Plan, Surface};

    use super::*;
    use crate::commit::call::Call;
    use crate::commit::request::KeyRequest;
    use crate::commit::settings::Settings;
    use crate::commit::value::TAG_LEN;

    const NAME: Name = Name::new([1; 32]);
    const TIME: Timestamp = Timestamp::from_millis(1_780_000_000_000);

    fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    fn check(limit: u64) -> KeyRequest {
        let document = format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": [],
                "quotas": [{{"limit": {limit}, "window": "1h"}}]}}]}}"#
        );
        let policy = tollgate_language::compile(&document, Surface::Server).expect("a policy");
        let mut plan = Plan::new();
        let facts = DescribedRequest::parse(br#"{"method": "GET", "path": "/"}"#);
        policy.plan(&facts.expect("a request"), &mut plan);
        let mut request = Vec::new();
        plan.partition(0).expect("one key").request(&policy, &mut request);
        KeyRequest::Check(request)
    }

    type CommitterAndEvents = (Committer<u32>, Vec<Event<u32>>);

    /// A committer whose clock is set; it gets `asks` requests `ask`, and returns the call that is
    /// sent then.
    fn committer_with(asks: u32, ask: &KeyRequest) -> (CommitterAndEvents, Call) {
        let settings = Settings { is_replicated: true, ..Settings::default() };
        let mut committer = Committer::new(settings, [0; TAG_LEN]);
        let mut out = Vec::new();
        for caller in 0..asks {
            committer.ask((NAME, 0), (ask.clone(), caller), ms(1), &mut out);
        }
        let first = the_call(&mut out);
        let reply = Reply::OtherTime { stored: None, time: TIME };
        committer.reply(first.id, reply, ms(1), &mut out);
        let call = the_call(&mut out);
        ((committer, out), call)
    }

    fn the_call(out: &mut Vec<Event<u32>>) -> Call {
        match out.pop() {
            Some(Event::Call(call)) => call,
            other => panic!("no call: {other:?}"),
        }
    }

    fn written(call: &Call) -> Option<Arc<[u8]>> {
        match &call.what {
            Operation::Commit { write: Write::Put { value, .. }, .. } => Some(value.clone()),
            _ => None,
        }
    }

    fn too_few(caller: u32) -> Event<u32> {
        Event::Answer(caller, Err(Failed::Engine(Fault::Replicas)))
    }

    /// Guards: an answer that depends on a write that a failover loses, a charge that is forgotten,
    /// and a circuit that opens although the engine replies.
    #[test]
    fn a_commit_that_too_few_replicas_have_stays_and_answers_nobody() {
        let ((mut committer, mut out), call) = committer_with(3, &check(5));
        let left = written(&call).expect("it is charged");
        let alone = Reply::Alone { time: TIME, fault: Fault::Replicas };
        committer.reply(call.id, alone.clone(), ms(2), &mut out);
        assert_eq!(out, [too_few(0), too_few(1), too_few(2)], "all of the batch");
        assert_eq!((committer.tally().commits, committer.tally().failed), (0, 3));
        for n in 0..20 {
            out.clear();
            let name = Name::new([9; 32]);
            committer.ask((name, 0), (check(1_000), n), ms(3), &mut out);
            let call = the_call(&mut out);
            committer.reply(call.id, alone.clone(), ms(3), &mut out);
        }
        assert!(!committer.is_open(0), "it answers");
        out.clear();
        committer.ask((NAME, 0), (check(5), 7), ms(4), &mut out);
        let next = the_call(&mut out);
        let Operation::Commit { expected, .. } = &next.what else { panic!("{next:?}") };
        assert_eq!(expected.as_deref(), Some(&*left), "decided on what was written");
    }

    /// Guards: a commit whose own reply was lost and that is found stored, which is no evidence
    /// about replicas.
    #[test]
    fn a_commit_that_is_only_found_answers_nobody_either() {
        let ((mut committer, mut out), call) = committer_with(1, &check(5));
        let stored = written(&call);
        committer.reply(call.id, Reply::Unknown(Fault::Cut), ms(2), &mut out);
        let look = the_call(&mut out);
        committer.reply(look.id, Reply::Stored(stored), ms(3), &mut out);
        assert_eq!(out, [too_few(0)]);
        let ((mut committer, mut out), call) = committer_with(1, &check(5));
        let stored = written(&call);
        committer.reply(call.id, Reply::Mismatch { stored, time: TIME }, ms(2), &mut out);
        assert_eq!(out, [too_few(0)], "the network delivered it twice");
        // Decided again, and then the first attempt is found.
        let ((mut committer, mut out), call) = committer_with(1, &check(5));
        let first = written(&call);
        committer.reply(call.id, Reply::Unknown(Fault::Cut), ms(2), &mut out);
        let look = the_call(&mut out);
        committer.reply(look.id, Reply::Stored(None), ms(3), &mut out);
        let again = the_call(&mut out);
        committer.reply(again.id, Reply::Mismatch { stored: first, time: TIME }, ms(4), &mut out);
        assert_eq!(out, [too_few(0)]);
    }

    /// Guards: an operator's request or a settlement whose answer depends on an earlier attempt
    /// that no replica has: the second attempt changes nothing.
    #[test]
    fn what_tells_of_an_earlier_commit_is_written_again() {
        let ((mut committer, mut out), call) = committer_with(1, &check(5));
        let left = written(&call);
        committer.reply(call.id, Reply::Done { time: TIME }, ms(2), &mut out);
        let zeros = [0; 8];
        let look = KeyRequest::Operate([&b"tollgt\0K"[..], &zeros, &[1], &zeros, &zeros].concat());
        committer.ask((NAME, 0), (look, 1), ms(3), &mut out);
        let again = out.pop();
        let Some(Event::Call(again)) = again else { panic!("{again:?}") };
        assert!(written(&again).is_some_and(|value| Some(value) != left), "with a tag of its own");
        // A denial grants nothing and writes nothing.
        let ((mut committer, mut out), call) = committer_with(1, &check(1));
        committer.reply(call.id, Reply::Done { time: TIME }, ms(2), &mut out);
        committer.ask((NAME, 0), (check(1), 1), ms(3), &mut out);
        let Some(Event::Call(refusal)) = out.pop() else { panic!("no call") };
        assert_eq!(written(&refusal), None);
    }
}
