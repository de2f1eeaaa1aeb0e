//! The objects that count, as a request calls them: the bytes sent, the replies, and the refund of
//! charges after a denial.
//!
//! Invariant: an object that does not reply in time is a failure, which is counted and logged, and
//! `on_failure` decides. The object may still carry out the call; such a charge stays, on the
//! strict side. The calls of a request are bounded: `MAX_CALLS` and its neighbours in `host.mjs`.
//! Deliberately absent: the order of calls, and the effect of each denial; that is in `charging`.

use std::cell::RefCell;

use tollgate_core::Timestamp;
use tollgate_policy::{Answer, Failure, Partition, Plan, Policy};
use tollgate_service::lease::key_name;
use tollgate_service::log::Sampler;
use tollgate_service::metrics::{Counters, Event};
use tollgate_storage::WireError;
use wasm_bindgen::JsValue;

use crate::counts::denials::Remembered;
use crate::counts::lines::Lines;
use crate::counts::object_name::object_name;
use crate::operate::tally::{Tally, Trouble};
use crate::runtime::js::{self, Call, KeyObject, NoReply};

/// The objects, and how they are named.
pub(crate) struct Objects {
    pub(crate) namespace: JsValue,
    pub(crate) hash_key: Vec<u8>,
    /// The secret that names the counts of a fleet; none where no node leases.
    pub(crate) fleet_secret: Option<[u8; 16]>,
    /// An object that does not reply for this long has failed.
    pub(crate) timeout_ms: u32,
    /// Denies requests without calling any object.
    pub(crate) denials: Remembered,
    /// Not borrowed across an await.
    pub(crate) tally: RefCell<Tally>,
    /// The requests that wait.
    pub(crate) lines: Lines,
    pub(crate) counters: Counters,
    /// Selects the events to log. Not borrowed across an await.
    pub(crate) sampler: RefCell<Sampler>,
}

/// One object's call and its reply; no reply if the object did not send one.
pub(crate) struct Asked {
    pub(crate) partition: usize,
    object: KeyObject,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// Partitions, and their objects.
pub(crate) type Keys = Vec<(usize, KeyObject)>;

/// How an object is called: within all of the time, or within half of the time that is left.
pub(crate) type Check = fn(&KeyObject, &[u8]) -> Call;

/// Calls under way of one round.
pub(crate) struct Round<T> {
    pub(crate) calls: Vec<(T, Call)>,
    asked_at: Timestamp,
}

/// Takes `reply` as the decision of partition `i`'s object.
fn accept(policy: &Policy, plan: &mut Plan, i: usize, reply: &[u8]) -> Result<(), WireError> {
    plan.partition_mut(i).map_or(Ok(()), |mut partition| partition.accept(policy, reply))
}

impl Objects {
    /// The objects of all partitions; their time-out starts now.
    pub(crate) fn of_all(&self, policy: &Policy, plan: &Plan) -> Keys {
        let now = js::now();
        let of = |partition: Partition<'_>| (partition.index(), self.of(policy, partition, now));
        plan.partitions().map(of).collect()
    }

    /// The object of a partition, or any of its shards. It is given up after the time-out, which
    /// started at `since`.
    fn of(&self, policy: &Policy, partition: Partition<'_>, since: Timestamp) -> KeyObject {
        let name = self.name_of(policy, partition.key());
        let shards = partition.shards(policy);
        js::key_object(&self.namespace, &name, shards, (self.timeout_ms, since))
    }

    /// The name of the object that counts `key` under `policy`.
    pub(crate) fn name_of(&self, policy: &Policy, key: &[u8]) -> String {
        object_name(&self.hash_key, &key_name(policy, self.fleet_secret, key))
    }

    /// Asks the objects of `keys` to charge. An object that did not reply when it was asked for its
    /// decision is not waited for a second time.
    pub(crate) fn ask_each(
        &self,
        policy: &Policy,
        plan: &Plan,
        keys: Keys,
        check: Check,
    ) -> Round<Asked> {
        let ask = |(partition, object): (usize, KeyObject)| {
            let asked = plan.partition(partition).filter(|asked| !asked.has_failed())?;
            let (mut request, reply) = (Vec::new(), Vec::new());
            asked.request(policy, &mut request);
            self.counters.add(Event::Check);
            let call = check(&object, &request);
            Some((Asked { partition, object, request, reply }, call))
        };
        Round { calls: keys.into_iter().filter_map(ask).collect(), asked_at: js::now() }
    }

    /// Waits for half of the time: returns the objects that replied, and calls that wait for the
    /// rest.
    pub(crate) async fn hear_soon(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        Round { calls, asked_at }: Round<Asked>,
    ) -> (Vec<Asked>, Round<Asked>) {
        let (mut heard, mut silent) = (Vec::with_capacity(calls.len()), Vec::new());
        for (mut asked, call) in calls {
            let reply = call.reply().await;
            if reply == Err(NoReply::Late) {
                let rest = Call::rest(&asked.object);
                silent.push((asked, rest));
                continue;
            }
            asked.reply = reply.as_ref().cloned().unwrap_or_default();
            self.accept(policy, plan, asked.partition, asked_at, reply);
            heard.push(asked);
        }
        (heard, Round { calls: silent, asked_at })
    }

    pub(crate) async fn hear_asked(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        Round { calls, asked_at }: Round<Asked>,
    ) -> Vec<Asked> {
        let mut heard = Vec::with_capacity(calls.len());
        for (mut asked, call) in calls {
            let reply = call.reply().await;
            asked.reply = reply.as_ref().cloned().unwrap_or_default();
            self.accept(policy, plan, asked.partition, asked_at, reply);
            heard.push(asked);
        }
        heard
    }

    /// Asks the object of a partition of a settled plan to carry out the effect of its response.
    pub(crate) fn settle(&self, policy: &Policy, partition: Partition<'_>) -> (usize, Call) {
        let mut request = Vec::new();
        partition.settle_request(policy, &mut request);
        let gives_back = partition.gives_back();
        self.counters.add(if gives_back { Event::Settle } else { Event::Check });
        let call = if gives_back { Call::settle } else { Call::check };
        (partition.index(), call(&self.of(policy, partition, js::now()), &request))
    }

    /// Asks every object for its decision, for a request that only looks.
    pub(crate) async fn look_at(&self, policy: &Policy, plan: &mut Plan) {
        let keys = self.of_all(policy, plan);
        self.peek(policy, plan, &keys).await;
    }

    pub(crate) async fn peek(&self, policy: &Policy, plan: &mut Plan, keys: &Keys) {
        let peeked = self.peek_each(policy, plan, keys, Call::check);
        self.hear_peeked(policy, plan, peeked).await;
    }

    /// Asks the objects of `keys` for their decisions.
    pub(crate) fn peek_each(
        &self,
        policy: &Policy,
        plan: &Plan,
        keys: &Keys,
        check: Check,
    ) -> Round<usize> {
        let peek = |(i, object): &(usize, KeyObject)| {
            let mut request = Vec::new();
            let partition = plan.partition(*i)?;
            if plan.charging_order(policy).is_some() {
                partition.told_peek_request(policy, &mut request);
            } else {
                partition.peek_request(policy, &mut request);
            }
            self.counters.add(Event::Look);
            Some((*i, check(object, &request)))
        };
        Round { calls: keys.iter().filter_map(peek).collect(), asked_at: js::now() }
    }

    /// Waits for half of the time; the calls returned wait for the objects that have not replied.
    pub(crate) async fn hear_peeked_soon(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        keys: &Keys,
        Round { calls, asked_at }: Round<usize>,
    ) -> Round<usize> {
        let mut silent = Vec::new();
        for (i, call) in calls {
            let object = keys.iter().find(|(of, _)| *of == i);
            match (call.reply().await, object) {
                (Err(NoReply::Late), Some((_, object))) => silent.push((i, Call::rest(object))),
                (reply, _) => self.accept(policy, plan, i, asked_at, reply),
            }
        }
        Round { calls: silent, asked_at }
    }

    pub(crate) async fn hear_peeked(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        Round { calls, asked_at }: Round<usize>,
    ) {
        for (i, call) in calls {
            self.accept(policy, plan, i, asked_at, call.reply().await);
        }
    }

    /// Takes the reply of partition `i`'s object, which was called at `asked_at`; without one the
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
                // Not counted as a failure here: the request is planned again under that version,
                // or entry.
                Err(WireError::Newer(version)) => Failure::Newer(version),
                Err(WireError::OtherEntry) => return,
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

    /// The failure of a partition whose object had this `trouble`, which is counted.
    fn failed(&self, trouble: Trouble, word: &str) -> Failure {
        self.note(trouble, word);
        if trouble == Trouble::Corrupt { Failure::Corrupt } else { Failure::Unreachable }
    }

    /// Refunds every charge of a denied request. The new replies contain the values without it.
    pub(crate) async fn refund_committed(&self, policy: &Policy, plan: &mut Plan, asked: &[Asked]) {
        let charged = Self::charged(plan, asked);
        self.refund(policy, plan, charged).await;
    }

    /// Those of `asked` that were charged.
    pub(crate) fn charged<'a>(plan: &Plan, asked: &'a [Asked]) -> Vec<&'a Asked> {
        let is_charged = |i| plan.partition(i).is_some_and(|partition| partition.changed());
        asked.iter().filter(|asked| is_charged(asked.partition)).collect()
    }

    /// Refunds these charges.
    pub(crate) async fn refund(&self, policy: &Policy, plan: &mut Plan, charged: Vec<&Asked>) {
        let refund = |asked: &Asked| {
            self.counters.add(Event::Refund);
            Call::refund(&asked.object, &asked.request, &asked.reply)
        };
        let calls: Vec<_> =
            charged.into_iter().map(|asked| (asked.partition, refund(asked))).collect();
        let asked_at = js::now();
        for (i, call) in calls {
            match call.reply().await {
                // A reply that cannot be read changes nothing: the request is denied in any case.
                Ok(reply) if accept(policy, plan, i, &reply).is_ok() => {
                    self.denials.hear(policy, plan, i, asked_at);
                }
                Ok(_) => self.note(Trouble::Misread, ""),
                Err(NoReply::Late) => self.note(Trouble::Late, ""),
                Err(NoReply::Failed(word)) => {
                    self.note(Trouble::Failed, &word);
                }
            }
        }
    }

    /// Counts the decision of `on_failure`, if it decided.
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

    /// Counts a failure; `word` is the platform's error message, if any.
    pub(crate) fn note(&self, trouble: Trouble, word: &str) {
        if let Some(event) = trouble.event() {
            self.counters.add(event);
        }
        self.tally.borrow_mut().note(trouble, word);
    }

    /// Logs the latest failures, if it is time.
    pub(crate) fn report(&self) {
        let mut tally = self.tally.borrow_mut();
        if let Some(line) = tally.is_due.then(|| tally.line(js::now())).flatten() {
            js::fail(&line);
        }
    }
}
