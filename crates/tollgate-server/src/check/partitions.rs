//! Requests to the store about the partitions of a plan: charge, peek, and refund the charges of a
//! denied request.
//!
//! Invariant: all or nothing, as in the Worker. A request with several keys first peeks in every
//! key's partition and is charged only if all of them would allow it. When it loses a race and is
//! denied after all, the charges of the partitions that allowed it are refunded before the denial
//! is sent. The keys of one request are asked at the same time. A client that leaves meanwhile
//! changes nothing of that: charging runs to its end, and charges without a response to the client
//! are refunded. A partition without a response is a failure, and `on_failure` decides, except
//! where the store reports an overload.

use std::sync::Arc;

use futures_util::future::join_all;
use tollgate_core::Span;
use tollgate_policy::{Answer, Failure, Partition, Plan, Policy, waiting::Full};
use tollgate_service::metrics::Event;
use tollgate_storage::WireError;

use crate::check::charges::{Charge, Charges};
use crate::finish::to_its_end;
use crate::gate::Gate;
use crate::store::{Ask, NoReply};

/// The request to one partition, and its response; empty when there was none.
#[derive(Debug)]
struct Asked {
    partition: usize,
    charge: Charge,
}

/// How long a request has waited, and how long it may still wait, whatever its rules allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) waited: Span,
    pub(crate) left: Span,
}

/// A plan that was decided once.
#[derive(Debug)]
pub(crate) struct Charged {
    /// There is an overload.
    pub(crate) is_overload: bool,
    /// The charges that are not yet refunded.
    pub(crate) charges: Charges,
}

impl Gate {
    /// Decides the plan once, all or nothing; during an overload the request is denied whatever its
    /// rules decide. A plan with a report is decided to its end, even if the caller leaves
    /// meanwhile.
    pub(crate) async fn decide_once(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        plan: &mut Plan,
        spent: Spent,
    ) -> Charged {
        if !plan.reports() || self.store.engine().is_none() {
            return self.look_and_charge(policy, plan, spent).await;
        }
        let (gate, policy) = (Arc::clone(self), Arc::clone(policy));
        plan_to_its_end(plan, move |mut plan| async move {
            let charged = gate.look_and_charge(&policy, &mut plan, spent).await;
            (plan, charged)
        })
        .await
    }

    async fn look_and_charge(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        plan: &mut Plan,
        spent: Spent,
    ) -> Charged {
        if plan.partitions().nth(1).is_some() {
            let is_overload = self.look(policy, plan).await;
            let is_newer = plan.newer().is_some();
            if is_overload || is_newer || is_refused(policy, plan, spent) {
                if plan.reports() && !is_newer {
                    self.report(policy, plan).await;
                }
                return Charged { is_overload, charges: Charges::default() };
            }
        }
        self.charge(policy, plan, spent).await
    }

    /// The second half of `decide_once`.
    pub(crate) async fn charge(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        plan: &mut Plan,
        spent: Spent,
    ) -> Charged {
        if self.store.engine().is_none() {
            // Memory responds at once: no caller can leave meanwhile.
            return self.charge_all(policy, plan, spent).await;
        }
        let (gate, policy) = (Arc::clone(self), Arc::clone(policy));
        plan_to_its_end(plan, move |mut plan| async move {
            let charged = gate.charge_all(&policy, &mut plan, spent).await;
            (plan, charged)
        })
        .await
    }

    async fn charge_all(
        self: &Arc<Self>,
        policy: &Policy,
        plan: &mut Plan,
        spent: Spent,
    ) -> Charged {
        // A partition that did not respond to the peek is not asked again, unless to record a
        // report.
        let is_asked = |it: &Partition<'_>| !it.has_failed() || it.reports();
        let there = plan.partitions().filter(is_asked);
        let mut asked: Vec<Asked> =
            there.map(|partition| self.request(policy, partition)).collect();
        let is_overload = self.ask_each(policy, plan, &mut asked).await;
        if is_overload || plan.newer().is_some() || is_refused(policy, plan, spent) {
            self.refund(policy, plan, &asked).await;
            asked.clear();
        }
        asked.retain(|asked| is_charged(plan, asked));
        let charges = asked.into_iter().map(|asked| asked.charge).collect();
        Charged { is_overload, charges: Charges::of(self, charges) }
    }

    fn request(&self, policy: &Policy, partition: Partition<'_>) -> Asked {
        let mut request = Vec::new();
        partition.request(policy, &mut request);
        self.counting.add(Event::Check);
        self.asked(policy, partition, request)
    }

    fn asked(&self, policy: &Policy, partition: Partition<'_>, request: Vec<u8>) -> Asked {
        let name = self.name_of(policy, partition.key());
        Asked { partition: partition.index(), charge: Charge { name, request, reply: Vec::new() } }
    }

    /// Peeks in every partition, for a caller that only looks, or before any partition charges. So
    /// a request that one key denies never holds a place in the counts of its other keys, which a
    /// flood would fill. True during an overload.
    pub(crate) async fn look(&self, policy: &Policy, plan: &mut Plan) -> bool {
        let peek = |partition: Partition<'_>| {
            let mut request = Vec::new();
            partition.peek_request(policy, &mut request);
            self.counting.add(Event::Look);
            self.asked(policy, partition, request)
        };
        let mut asked: Vec<Asked> = plan.partitions().map(peek).collect();
        self.ask_each(policy, plan, &mut asked).await
    }

    /// Records the use that a denied request reports, even if the caller leaves meanwhile.
    async fn report(self: &Arc<Self>, policy: &Arc<Policy>, plan: &mut Plan) {
        let (gate, policy) = (Arc::clone(self), Arc::clone(policy));
        plan_to_its_end(plan, move |mut plan| async move {
            let report = |partition: Partition<'_>| {
                let mut request = Vec::new();
                partition.report_request(&policy, &mut request);
                gate.counting.add(Event::Check);
                gate.asked(&policy, partition, request)
            };
            let reported = plan.partitions().filter(Partition::reports);
            let mut asked: Vec<Asked> = reported.map(report).collect();
            gate.ask_each(&policy, &mut plan, &mut asked).await;
            (plan, ())
        })
        .await;
    }

    /// Applies the effects of a settled plan's response; true when something was charged or
    /// refunded.
    pub(crate) async fn settle(&self, policy: &Policy, plan: &mut Plan) -> bool {
        let settle = |partition: Partition<'_>| {
            let mut request = Vec::new();
            partition.settle_request(policy, &mut request);
            let event = if partition.gives_back() { Event::Settle } else { Event::Check };
            self.counting.add(event);
            self.asked(policy, partition, request)
        };
        let mut asked: Vec<Asked> = plan.partitions().map(settle).collect();
        self.ask_each(policy, plan, &mut asked).await;
        asked.iter().any(|asked| is_charged(plan, asked))
    }

    /// Asks all of them at the same time, and takes their replies; true during an overload.
    async fn ask_each(&self, policy: &Policy, plan: &mut Plan, asked: &mut [Asked]) -> bool {
        let replies = match &*asked {
            [] => return false,
            [one] => vec![self.ask_one(one).await],
            several => join_all(several.iter().map(|one| self.ask_one(one))).await,
        };
        let mut is_overload = false;
        for (asked, reply) in asked.iter_mut().zip(replies) {
            is_overload |= reply == Err(NoReply::Overloaded);
            let (bytes, failure) = self.accept(policy, plan, asked.partition, reply);
            asked.charge.reply = bytes;
            if let (Some(failure), Some(mut partition)) =
                (failure, plan.partition_mut(asked.partition))
            {
                partition.fail(failure);
            }
        }
        is_overload
    }

    async fn ask_one(&self, asked: &Asked) -> Result<Vec<u8>, NoReply> {
        self.store.ask(&asked.charge.name, Ask::Check(&asked.charge.request)).await
    }

    /// Takes the reply about partition `i`; returns its failure, if any.
    fn accept(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        i: usize,
        reply: Result<Vec<u8>, NoReply>,
    ) -> (Vec<u8>, Option<Failure>) {
        let reply = match reply {
            Ok(reply) => reply,
            Err(why) => {
                self.note_no_reply(&why);
                let is_corrupt = matches!(why, NoReply::Unreadable(_));
                let failure = if is_corrupt { Failure::Corrupt } else { Failure::Unreachable };
                return (Vec::new(), Some(failure));
            }
        };
        let failure = match accept(policy, plan, i, &reply) {
            Ok(()) => None,
            // The count has a newer policy: the request is planned again under that version.
            Err(WireError::Newer(version)) => Some(Failure::Newer(version)),
            // This store has no tenants' entries next to counts.
            Err(WireError::Malformed | WireError::OtherPolicy | WireError::OtherEntry) => {
                self.note(Event::Misread, "the store's reply cannot be read");
                Some(Failure::Unreachable)
            }
        };
        (reply, failure)
    }

    /// Refunds every charge of a denied request. The new replies contain the remaining quota
    /// without it.
    async fn refund(&self, policy: &Policy, plan: &mut Plan, asked: &[Asked]) {
        let charged: Vec<&Asked> = asked.iter().filter(|asked| is_charged(plan, asked)).collect();
        let replies = join_all(charged.iter().map(|asked| asked.charge.refund(self))).await;
        for (asked, reply) in charged.iter().zip(replies) {
            match reply {
                // An unreadable reply changes nothing: the request is denied in any case.
                Ok(reply) if accept(policy, plan, asked.partition, &reply).is_ok() => {}
                Ok(_) => self.note(Event::Misread, "the store's reply cannot be read"),
                Err(why) => self.note_no_reply(&why),
            }
        }
    }
}

/// Runs `work` on the plan to its end, even if the caller leaves meanwhile.
async fn plan_to_its_end<T, F>(plan: &mut Plan, work: impl FnOnce(Plan) -> F) -> T
where
    T: Send + 'static,
    F: Future<Output = (Plan, T)> + Send + 'static,
{
    let moved = std::mem::replace(plan, Plan::new());
    let done;
    (*plan, done) = to_its_end(work(moved)).await;
    done
}

fn is_charged(plan: &Plan, asked: &Asked) -> bool {
    plan.partition(asked.partition).is_some_and(|partition| partition.changed())
}

/// True when it is denied. A place beyond the time that the caller waits is denied, too, and is
/// given back like every charge of a denied request.
fn is_refused(policy: &Policy, plan: &mut Plan, spent: Spent) -> bool {
    match plan.outcome(policy).answer_after(spent.waited) {
        Answer::Refuse { .. } | Answer::Retry(_) => true,
        Answer::Delay(delay) if delay > spent.left => {
            plan.reject_waiting(policy, Full::Late(delay.saturating_sub(spent.left)));
            true
        }
        Answer::Pass | Answer::Delay(_) => false,
    }
}

fn accept(policy: &Policy, plan: &mut Plan, i: usize, reply: &[u8]) -> Result<(), WireError> {
    plan.partition_mut(i).map_or(Ok(()), |mut partition| partition.accept(policy, reply))
}
