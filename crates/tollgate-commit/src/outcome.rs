//! What becomes of a batch when its call has returned.
//!
//! Invariant: an answer leaves here only when the bytes of its commit were acknowledged, or are
//! seen to stand in the engine. Where nobody can know, what was asked is decided once more at the
//! most, and what gives units back not even once: a charge that is not known stays.

use tollgate_core::Span;

use crate::ask::Failed;
use crate::call::{Fault, Reply, What, Write};
use crate::committer::{Committer, Event};
use crate::key::{Asked, Doubt, Flight};
use crate::mutation::{self, Mutation};
use crate::name::Name;
use crate::remembered::Seen;
use crate::tally::Tally;
use crate::value::{Tag, tag_of};

/// So many calls in a row of one key may be refused for their time or for want of the script: each
/// of these halves what the node is sent or sets the clock, so more say that it is of no use.
const MAX_REFUSALS: u32 = 16;

impl<T> Committer<T> {
    /// Takes what a reply says of the batch in `flight`; false when a look at the engine follows.
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
            Reply::Mismatch { stands, .. } => {
                Tally::add(&mut self.tally.mismatches);
                if mutation::is(Mutation::WinsEveryRace) {
                    self.done(name, flight, out);
                } else {
                    self.lost(name, flight, stands.map(Seen::of_another), out);
                }
            }
            Reply::OtherTime { stands, .. } => {
                let stands = Some(stands.map(Seen::of_another));
                self.refused((name, mono), flight, stands, Fault::Clock, out);
            }
            Reply::NoScript => {
                Tally::add(&mut self.tally.scripts_missing);
                self.refused((name, mono), flight, None, Fault::Script, out);
            }
            Reply::Elsewhere { lane } if flight.doubt.is_none() => {
                self.know_lane(lane);
                if let Some(key) = self.keys.get_mut(&name) {
                    key.lane = lane;
                }
                self.refused((name, mono), flight, None, Fault::ClusterDown, out);
            }
            // A look that went astray tells nothing.
            Reply::Elsewhere { .. } => {
                return self.unknown(name, flight, Fault::ClusterDown, mono, out);
            }
            Reply::Stands(stands) => {
                self.looked(name, flight, stands.map(Seen::of_another), out);
            }
            Reply::Refused(fault) => self.not_done(name, flight, fault, out),
            Reply::Unknown(fault) => return self.unknown(name, flight, fault, mono, out),
        }
        true
    }

    /// It stands there: everybody of the batch has an answer.
    fn done(&mut self, name: Name, flight: Flight<T>, out: &mut Vec<Event<T>>) {
        Tally::add(&mut self.tally.commits);
        if let Some(key) = self.keys.get_mut(&name) {
            key.stands = flight.decided.leaves;
            key.refusals = 0;
        }
        let mut replies = flight.decided.replies.into_iter();
        for asked in flight.batch {
            let reply = replies.next().unwrap_or(Err(Failed::Malformed));
            self.answer(asked, reply, Some(flight.call), out);
        }
    }

    /// Other bytes stand there. They may be an earlier attempt's, or this one's that the network
    /// delivered twice.
    fn lost(
        &mut self,
        name: Name,
        flight: Flight<T>,
        stands: Option<Seen>,
        out: &mut Vec<Event<T>>,
    ) {
        if tag_there(stands.as_ref()) == Some(flight.tag) {
            return self.done(name, flight, out);
        }
        self.again(name, flight.batch, stands, out);
    }

    /// The engine did nothing because of the time, or for want of the script: it is decided again,
    /// but not for ever. Nodes that send calls on for ever are as good as away.
    fn refused(
        &mut self,
        (name, mono): (Name, Span),
        flight: Flight<T>,
        stands: Option<Option<Seen>>,
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
        match stands {
            Some(stands) => self.lost(name, flight, stands, out),
            None => key.put_back(flight.batch),
        }
    }

    /// It is certain that this call did nothing. Who waits behind it is decided by itself, unless
    /// the node is silent.
    fn not_done(&mut self, name: Name, flight: Flight<T>, fault: Fault, out: &mut Vec<Event<T>>) {
        let why = Failed::Engine(fault);
        if fault.is_silence() {
            return self.fail_all(name, Some(flight), why, out);
        }
        for asked in flight.batch {
            self.answer(asked, Err(why), None, out);
        }
    }

    /// Nobody knows whether it was done: looks, unless the node is known to be silent.
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
        // What is remembered may be the bytes before or after.
        key.stands = None;
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
        self.send(name, flight, What::Read, out);
        false
    }

    /// What stands there after a call that was not answered.
    fn looked(
        &mut self,
        name: Name,
        flight: Flight<T>,
        stands: Option<Seen>,
        out: &mut Vec<Event<T>>,
    ) {
        let tag = tag_there(stands.as_ref());
        if tag == Some(flight.tag) {
            Tally::add(&mut self.tally.found_done);
            return self.done(name, flight, out);
        }
        let why = Failed::Engine(flight.doubt.unwrap_or(Fault::Nonsense));
        let wrote_nothing = flight.decided.write == Write::Keep;
        let mut again = Vec::with_capacity(flight.batch.len());
        let mut replies = flight.decided.replies.into_iter();
        for mut asked in flight.batch {
            let reply = replies.next().unwrap_or(Err(Failed::Malformed));
            if asked.doubt.as_ref().is_some_and(|doubt| Some(doubt.tag) == tag) {
                // Of an earlier attempt: found below.
                again.push(asked);
                continue;
            }
            let may_repeat = wrote_nothing || asked.ask.is_repeatable();
            match reply {
                Ok(reply) if may_repeat && asked.doubt.is_none() => {
                    asked.doubt = Some(Doubt { call: flight.call, tag: flight.tag, reply });
                    again.push(asked);
                }
                Ok(_) => self.answer(asked, Err(why), None, out),
                Err(failed) => self.answer(asked, Err(failed), None, out),
            }
        }
        self.again(name, again, stands, out);
    }

    /// Other bytes than the call's stand there: whoever of `batch` they are not an earlier attempt
    /// of is decided on them once more.
    fn again(
        &mut self,
        name: Name,
        batch: Vec<Asked<T>>,
        stands: Option<Seen>,
        out: &mut Vec<Event<T>>,
    ) {
        let others = self.answer_doubts(batch, tag_there(stands.as_ref()), out);
        if let Some(key) = self.keys.get_mut(&name) {
            key.stands = stands;
            key.put_back(others);
        }
    }

    /// Answers those whose earlier attempt left the `tag` that stands there; gives back the others.
    fn answer_doubts(
        &mut self,
        batch: Vec<Asked<T>>,
        tag: Option<Tag>,
        out: &mut Vec<Event<T>>,
    ) -> Vec<Asked<T>> {
        let mut others = Vec::with_capacity(batch.len());
        for mut asked in batch {
            match asked.doubt.take_if(|doubt| Some(doubt.tag) == tag) {
                Some(doubt) => {
                    Tally::add(&mut self.tally.found_done);
                    self.answer(asked, Ok(doubt.reply), Some(doubt.call), out);
                }
                None => others.push(asked),
            }
        }
        others
    }
}

/// Whose commit left the bytes that stand there, if they say so.
fn tag_there(stands: Option<&Seen>) -> Option<Tag> {
    stands.and_then(|seen| tag_of(&seen.value)).copied()
}
