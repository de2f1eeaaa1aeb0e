//! The objects that decide a request: asking them, charging them, and giving back what a refusal
//! took.
//!
//! Invariant: all or nothing. A request of several keys is first looked at by every key's object
//! and charged only if all of them would admit it; each then decides for itself, at once and at the
//! same time; when a race was lost and the request is refused after all, the charges of those that
//! admitted it are taken back before the refusal is answered. An object that does not answer in
//! time is a failure, which is counted and logged, and `on_failure` decides. What it was asked it
//! may still do: such a charge stays, on the strict side. The calls of a request are bounded:
//! `MAX_CALLS` and its neighbours in `host.mjs`.

use std::cell::RefCell;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Answer, Failure, Partition, Plan, Policy, WireError};
use tollgate_service::log::Sampler;
use tollgate_service::metrics::Event;
use wasm_bindgen::JsValue;

use crate::counters::Counters;
use crate::denials::Remembered;
use crate::js::{self, Call, KeyObject, NoReply};
use crate::lines::Lines;
use crate::object_name::object_name;
use crate::tally::{Tally, Trouble};

/// The objects, and how they are named.
pub(crate) struct Objects {
    pub(crate) namespace: JsValue,
    pub(crate) hash_key: Vec<u8>,
    /// An object that says nothing for so long has failed.
    pub(crate) timeout_ms: u32,
    /// What is refused without asking any of them.
    pub(crate) denials: Remembered,
    /// Not borrowed across an await.
    pub(crate) tally: RefCell<Tally>,
    /// Who waits.
    pub(crate) lines: Lines,
    pub(crate) counters: Counters,
    /// Of what a line is logged. Not borrowed across an await.
    pub(crate) sampler: RefCell<Sampler>,
}

/// What one object was asked, and what it answered; nothing when it did not.
pub(crate) struct Asked {
    pub(crate) partition: usize,
    object: KeyObject,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// Decides the plan once, all or nothing, and says what was asked.
pub(crate) async fn decide_once(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    waited: Span,
) -> Vec<Asked> {
    let keys = objects.of_all(plan);
    let is_admitted = keys.len() < 2 || objects.admit_everywhere(policy, plan, &keys, waited).await;
    let asked =
        if is_admitted { charge(objects, policy, plan, keys, waited).await } else { Vec::new() };
    objects.denials.close(policy, plan);
    asked
}

/// The second half of it.
async fn charge(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    keys: Vec<KeyObject>,
    waited: Span,
) -> Vec<Asked> {
    // What did not answer when it was only asked is not waited for once more.
    let there = plan.partitions().zip(keys).filter(|(partition, _)| !partition.has_failed());
    let (mut asked, calls): (Vec<_>, Vec<_>) =
        there.map(|(partition, object)| objects.ask(policy, partition, object)).unzip();
    let asked_at = js::now();
    for (asked, call) in asked.iter_mut().zip(calls) {
        let reply = call.reply().await;
        asked.reply = reply.as_ref().cloned().unwrap_or_default();
        objects.accept(policy, plan, asked.partition, asked_at, reply);
    }
    if plan.newer().is_some() || is_refused(policy, plan, waited) {
        objects.refund_committed(policy, plan, &asked).await;
    }
    asked
}

fn is_refused(policy: &Policy, plan: &Plan, waited: Span) -> bool {
    let answer = plan.outcome(policy).answer_after(waited);
    matches!(answer, Answer::Refuse { .. } | Answer::Retry(_))
}

/// Takes `reply` as what partition `i`'s object decided.
fn accept(policy: &Policy, plan: &mut Plan, i: usize, reply: &[u8]) -> Result<(), WireError> {
    plan.partition_mut(i).map_or(Ok(()), |mut partition| partition.accept(policy, reply))
}

impl Objects {
    /// The objects of all partitions.
    fn of_all(&self, plan: &Plan) -> Vec<KeyObject> {
        plan.partitions().map(|partition| self.of(partition)).collect()
    }

    /// The object of a partition.
    pub(crate) fn of(&self, partition: Partition<'_>) -> KeyObject {
        let name = object_name(&self.hash_key, partition.key());
        js::key_object(&self.namespace, &name, self.timeout_ms)
    }

    pub(crate) fn ask(
        &self,
        policy: &Policy,
        partition: Partition<'_>,
        object: KeyObject,
    ) -> (Asked, Call) {
        let mut request = Vec::new();
        partition.request(policy, &mut request);
        self.counters.add(Event::Check);
        let call = Call::check(&object, &request);
        (Asked { partition: partition.index(), object, request, reply: Vec::new() }, call)
    }

    /// Asks the object of a partition of a settled plan to do what its response brought about.
    pub(crate) fn settle(&self, policy: &Policy, partition: Partition<'_>) -> (usize, Call) {
        let mut request = Vec::new();
        partition.settle_request(policy, &mut request);
        let gives_back = partition.gives_back();
        self.counters.add(if gives_back { Event::Settle } else { Event::Check });
        let call = if gives_back { Call::settle } else { Call::check };
        (partition.index(), call(&self.of(partition), &request))
    }

    /// Asks what every object would decide, for somebody who only looks.
    pub(crate) async fn look_at(&self, policy: &Policy, plan: &mut Plan) {
        let keys = self.of_all(plan);
        self.peek(policy, plan, &keys).await;
    }

    /// Asks what every object would decide, for a request that has to wait behind others. When it
    /// has its answer instead, because it is refused or what it would wait for has failed: what was
    /// asked.
    pub(crate) async fn look(&self, policy: &Policy, plan: &mut Plan) -> Option<Vec<Asked>> {
        let keys = self.of_all(plan);
        self.peek(policy, plan, &keys).await;
        if plan.newer().is_some() {
            return Some(Vec::new());
        }
        if plan.has_failed() {
            return Some(charge(self, policy, plan, keys, Span::ZERO).await);
        }
        matches!(plan.outcome(policy).answer(), Answer::Refuse { .. }).then(Vec::new)
    }

    /// Asks what every object would decide, before any of them charges: what one key refuses never
    /// holds a place in the counts of the others, which a flood would fill.
    async fn admit_everywhere(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        keys: &[KeyObject],
        waited: Span,
    ) -> bool {
        self.peek(policy, plan, keys).await;
        plan.newer().is_none() && !is_refused(policy, plan, waited)
    }

    async fn peek(&self, policy: &Policy, plan: &mut Plan, keys: &[KeyObject]) {
        let peek = |(partition, object): (Partition<'_>, &KeyObject)| {
            let mut request = Vec::new();
            partition.peek_request(policy, &mut request);
            self.counters.add(Event::Look);
            (partition.index(), Call::check(object, &request))
        };
        let calls: Vec<_> = plan.partitions().zip(keys).map(peek).collect();
        let asked_at = js::now();
        for (i, call) in calls {
            self.accept(policy, plan, i, asked_at, call.reply().await);
        }
    }

    /// Takes the reply of partition `i`'s object, which was asked at `asked_at`; without one the
    /// partition has failed.
    pub(crate) fn accept(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        i: usize,
        asked_at: Timestamp,
        reply: Result<Vec<u8>, NoReply>,
    ) {
        let failure = match reply {
            Ok(reply) => match accept(policy, plan, i, &reply) {
                Ok(()) => return self.denials.hear(policy, plan, i, asked_at),
                Err(_) if reply.is_empty() => self.failed(Trouble::Corrupt, ""),
                // Not one that is counted here: it is planned anew under that version.
                Err(WireError::Newer(version)) => Failure::Newer(version),
                Err(WireError::Malformed | WireError::OtherPolicy) => {
                    self.failed(Trouble::Misread, "")
                }
            },
            Err(NoReply::Late) => self.failed(Trouble::Late, ""),
            Err(NoReply::Failed(word)) => self.failed(Trouble::Failed, &word),
        };
        if let Some(mut partition) = plan.partition_mut(i) {
            partition.fail(failure);
        }
    }

    /// What a partition fails with whose object was the `trouble`, which is counted.
    fn failed(&self, trouble: Trouble, word: &str) -> Failure {
        self.note(trouble, word);
        if trouble == Trouble::Corrupt { Failure::Corrupt } else { Failure::Unreachable }
    }

    /// Takes back every charge of a refused request. The new replies say what is left without it.
    pub(crate) async fn refund_committed(&self, policy: &Policy, plan: &mut Plan, asked: &[Asked]) {
        let is_charged = |i| plan.partition(i).is_some_and(|partition| partition.changed());
        let charged = asked.iter().filter(|asked| is_charged(asked.partition));
        let refund = |asked: &Asked| {
            self.counters.add(Event::Refund);
            Call::refund(&asked.object, &asked.request, &asked.reply)
        };
        let calls: Vec<_> = charged.map(|asked| (asked.partition, refund(asked))).collect();
        for (i, call) in calls {
            match call.reply().await {
                // What cannot be read changes nothing: the request is refused in any case.
                Ok(reply) if accept(policy, plan, i, &reply).is_ok() => {}
                Ok(_) => self.note(Trouble::Misread, ""),
                Err(NoReply::Late) => self.note(Trouble::Late, ""),
                Err(NoReply::Failed(word)) => {
                    self.note(Trouble::Failed, &word);
                }
            }
        }
    }

    /// Counts what `on_failure` decided, if it did.
    pub(crate) fn report_failures(&self, policy: &Policy, plan: &Plan) {
        if plan.newer().is_some() {
            self.note(Trouble::Behind, "");
        }
        if plan.has_failed() {
            let outcome = plan.outcome(policy);
            match outcome.final_answer() {
                Answer::Pass | Answer::Delay(_) => {
                    self.note(Trouble::LetThrough, "");
                }
                _ if outcome.is_failure() => self.note(Trouble::Refused, ""),
                Answer::Refuse { .. } | Answer::Retry(_) => {}
            }
        }
        self.report();
    }

    /// Counts a failure; `word` is what the platform says, if anything.
    pub(crate) fn note(&self, trouble: Trouble, word: &str) {
        self.counters.add(trouble.event());
        self.tally.borrow_mut().note(trouble, word);
    }

    /// Logs what failed lately, if it is time.
    pub(crate) fn report(&self) {
        let mut tally = self.tally.borrow_mut();
        if let Some(line) = tally.is_due.then(|| tally.line(js::now())).flatten() {
            js::fail(&line);
        }
    }
}
