//! Asking the store about the partitions of a plan: charging them, looking at them, and giving back
//! what a refusal took.
//!
//! Invariant: all or nothing, as in the Worker. A request of several keys is first looked at in
//! every key's partition and charged only if all of them would admit it; when a race was lost and
//! the request is refused after all, the charges of those that admitted it are taken back before
//! the refusal is answered. Keys of one request are asked at the same time. Who leaves meanwhile
//! changes nothing of that: charging goes on to its end, and what nobody is told is given back.
//! What a store did not answer is a failure, and `on_failure` decides, but where the store says
//! that too many ask.

use std::sync::Arc;

use futures_util::future::join_all;
use tollgate_core::Span;
use tollgate_policy::waiting::Full;
use tollgate_policy::{Answer, Failure, Partition, Plan, Policy};
use tollgate_service::metrics::Event;
use tollgate_storage::WireError;

use crate::check::charges::{Charge, Charges};
use crate::finish::to_its_end;
use crate::gate::Gate;
use crate::store::{Ask, NoReply};

/// What one partition was asked, and what it answered; nothing when it did not.
#[derive(Debug)]
struct Asked {
    partition: usize,
    charge: Charge,
}

/// How long a request has waited, and how long it still may, whatever its rules allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) waited: Span,
    pub(crate) left: Span,
}

/// A plan that was decided once.
#[derive(Debug)]
pub(crate) struct Charged {
    /// Too many ask.
    pub(crate) is_overload: bool,
    /// What was charged, and not taken back already.
    pub(crate) charges: Charges,
}

impl Gate {
    /// Decides the plan once, all or nothing; when too many ask it is refused whatever its rules
    /// say. A plan that reports is decided to its end, whoever leaves meanwhile.
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

    /// The second half of it.
    pub(crate) async fn charge(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        plan: &mut Plan,
        spent: Spent,
    ) -> Charged {
        if self.store.engine().is_none() {
            // Memory answers at once: nobody can leave meanwhile.
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
        // What did not answer when it was only asked is not waited for once more, unless it is to
        // record a report.
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

    /// Asks what every partition would decide, for somebody who only looks, or before any of them
    /// charges: what one key refuses never holds a place in the counts of the others, which a flood
    /// would fill. True when too many ask.
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

    /// Records what a refused request reports that was used already, whoever leaves meanwhile.
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

    /// Does what a settled plan's response brought about; true when something was charged or given
    /// back.
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

    /// Asks all of them at the same time, and takes their replies; true when too many ask.
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

    /// Takes the reply about partition `i`; what that fails with, if it does.
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
            // Not one that is counted here: it is planned anew under that version.
            Err(WireError::Newer(version)) => Some(Failure::Newer(version)),
            // Entries of tenants do not lie beside counts here.
            Err(WireError::Malformed | WireError::OtherPolicy | WireError::OtherEntry) => {
                self.note(Event::Misread, "the store's reply cannot be read");
                Some(Failure::Unreachable)
            }
        };
        (reply, failure)
    }

    /// Takes back every charge of a refused request. The new replies say what is left without it.
    async fn refund(&self, policy: &Policy, plan: &mut Plan, asked: &[Asked]) {
        let charged: Vec<&Asked> = asked.iter().filter(|asked| is_charged(plan, asked)).collect();
        let replies = join_all(charged.iter().map(|asked| asked.charge.refund(self))).await;
        for (asked, reply) in charged.iter().zip(replies) {
            match reply {
                // What cannot be read changes nothing: the request is refused in any case.
                Ok(reply) if accept(policy, plan, asked.partition, &reply).is_ok() => {}
                Ok(_) => self.note(Event::Misread, "the store's reply cannot be read"),
                Err(why) => self.note_no_reply(&why),
            }
        }
    }
}

/// Does `work` with the plan to its end, even if the caller leaves meanwhile.
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

/// True when it is refused; a place that is too far behind for who asks is one that it may not
/// have, and is given back like every charge of a refused request.
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
