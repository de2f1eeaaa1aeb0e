//! Requests to the store about the partitions of a plan, as the service's [`Drive`] wants them:
//! charge, peek, and refund the charges of a denied request.
//!
//! Invariant: a decision that has begun runs to its end. When its client leaves meanwhile, it
//! charges nothing more, and charges without a response to the client are refunded. A partition
//! without a response is a failure, and `on_failure` decides, except where the store reports an
//! overload, and except where a remembered denial was in force when the request came. Deliberately
//! absent: which partition is asked, charged and refunded, and when; that is in the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use tollgate_core::Timestamp;
use tollgate_policy::{Failure, Plan, Policy};
use tollgate_service as service;
use tollgate_service::drive::{
    DenialCache, Drive, MissingReply, Next, Order, Request, RequestId, WaitBudget,
};
use tollgate_service::metrics::Event;

use crate::check::charges::{Charge, Charges};
use crate::finish::to_its_end;
use crate::gate::Gate;
use crate::store::{Name, NoReply};

/// A plan that was decided once.
#[derive(Debug)]
pub(crate) struct Charged {
    /// There is an overload.
    pub(crate) is_overload: bool,
    /// The charges that are not yet refunded.
    pub(crate) charges: Charges,
}

/// The caller of a decision, who may leave before it is made.
#[derive(Debug)]
struct Caller {
    came_at: Timestamp,
    has_left: AtomicBool,
}

/// Dropped with the caller's future.
struct RefundOnDrop(Arc<Caller>);

impl Drop for RefundOnDrop {
    fn drop(&mut self) {
        self.0.has_left.store(true, Ordering::Relaxed);
    }
}

impl Gate {
    /// Decides the plan once, all or nothing; during an overload the request is denied whatever its
    /// rules decide.
    pub(crate) async fn decide_once(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        plan: &mut Plan,
        budget: WaitBudget,
    ) -> Charged {
        let drive = Drive::decide(policy, plan, self.order(), budget);
        self.run_to_its_end(policy, plan, drive).await
    }

    /// Charges a plan whose partitions were peeked in before.
    pub(crate) async fn charge(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        plan: &mut Plan,
        budget: WaitBudget,
    ) -> Charged {
        let drive = Drive::charge(policy, plan, budget);
        self.run_to_its_end(policy, plan, drive).await
    }

    /// Peeks in every partition, for a request that waits behind others. True during an overload.
    pub(crate) async fn peek(&self, policy: &Policy, plan: &mut Plan) -> bool {
        let drive = Drive::peek(policy, plan, self.order());
        self.run_peek(policy, plan, drive).await
    }

    /// The decisions of every partition, for an operator: nothing changes.
    pub(crate) async fn look(&self, policy: &Policy, plan: &mut Plan) {
        let drive = Drive::look(policy, plan);
        self.run_peek(policy, plan, drive).await;
    }

    async fn run_peek(&self, policy: &Policy, plan: &mut Plan, mut drive: Drive) -> bool {
        self.run(policy, plan, &mut drive, (&self.caller(), &self.names(policy, plan))).await;
        drive.is_overload()
    }

    /// Applies the effects of a settled plan's response; true when something was charged or
    /// refunded.
    pub(crate) async fn settle(&self, policy: &Policy, plan: &mut Plan) -> bool {
        let mut drive = Drive::settle(policy, plan);
        self.run(policy, plan, &mut drive, (&self.caller(), &self.names(policy, plan))).await;
        self.denials.with(|denials| denials.close(policy, plan));
        drive.has_charged()
    }

    /// Runs a drive to its end, even if the caller leaves meanwhile.
    async fn run_to_its_end(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        plan: &mut Plan,
        drive: Drive,
    ) -> Charged {
        if self.store.engine().is_none() {
            // Memory responds at once: no caller can leave meanwhile.
            return self.charged(policy, plan, drive, &self.caller()).await;
        }
        let (gate, policy) = (Arc::clone(self), Arc::clone(policy));
        let caller = Arc::new(self.caller());
        // A report is recorded whatever happens.
        let is_report = plan.waiting(&policy).is_decided_once();
        let _guard = (!is_report).then(|| RefundOnDrop(Arc::clone(&caller)));
        let mut moved = std::mem::replace(plan, Plan::new());
        let done;
        (*plan, done) = to_its_end(async move {
            let charged = gate.charged(&policy, &mut moved, drive, &caller).await;
            (moved, charged)
        })
        .await;
        done
    }

    async fn charged(
        self: &Arc<Self>,
        policy: &Policy,
        plan: &mut Plan,
        mut drive: Drive,
        caller: &Caller,
    ) -> Charged {
        let names = self.names(policy, plan);
        self.run(policy, plan, &mut drive, (caller, &names)).await;
        let is_overload = drive.is_overload();
        let times = || (caller.came_at, self.clock.now());
        if drive.conclude((policy, plan), &self.denials, times) {
            self.counting.add(Event::RememberedDenial);
            self.run(policy, plan, &mut drive, (caller, &names)).await;
        }
        let charge = |service::drive::ConfirmedCharge { partition, request, reply }| {
            let places = self.denials.places(policy, plan, partition);
            Some(Charge { name: *names.get(partition)?, request, reply, places })
        };
        let charges = drive.into_charges().filter_map(charge).collect();
        Charged { is_overload, charges: Charges::of(self, charges) }
    }

    /// Calls to an engine cost; asking memory is free.
    const fn order(&self) -> Order {
        if self.store.engine().is_some() { Order::ChargeFirst } else { Order::PeekAll }
    }

    /// A caller that comes now.
    fn caller(&self) -> Caller {
        Caller { came_at: self.clock.now(), has_left: AtomicBool::new(false) }
    }

    /// The names of the counts of all partitions by their indexes, also of those in which a settled
    /// plan has nothing to do.
    fn names(&self, policy: &Policy, plan: &Plan) -> Vec<Name> {
        let each = (0..plan.len()).filter_map(|i| plan.partition(i));
        each.map(|partition| self.name_of(policy, (partition.group(), partition.key()))).collect()
    }

    /// Sends what `drive` wants to the counts of these names until it is done.
    async fn run(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        drive: &mut Drive,
        (caller, names): (&Caller, &[Name]),
    ) {
        let mut round: Vec<RequestId> = Vec::new();
        loop {
            if round.is_empty() && caller.has_left.load(Ordering::Relaxed) {
                drive.withdraw();
            }
            match drive.next(policy, plan) {
                Next::Done => return,
                Next::Send(id) => round.push(id),
                Next::Wait => {
                    let asked_at = self.clock.now();
                    let requests = round.iter().map(|id| drive.request(*id));
                    let replies = match &*round {
                        [one] => vec![self.ask(names, drive.request(*one)).await],
                        _ => join_all(requests.map(|it| self.ask(names, it))).await,
                    };
                    for (id, reply) in round.drain(..).zip(replies) {
                        // Dated to when the store was asked: so by the remembered counts the time
                        // is never earlier than in the engine, and none of them denies for longer
                        // than the engine would.
                        let (plan, denials) = ((policy, &mut *plan), &self.denials);
                        if drive.receive_and_remember(plan, id, reply, denials, || asked_at) {
                            self.note(Event::Misread, "the store's reply cannot be read");
                        }
                    }
                    let times = || (caller.came_at, self.clock.now());
                    drive.recall_denial((policy, plan), &self.denials, times);
                }
            }
        }
    }

    /// Sends a request to its count; a failure is counted.
    async fn ask(
        &self,
        names: &[Name],
        request: Option<Request<'_>>,
    ) -> Result<Vec<u8>, MissingReply> {
        let unreachable = MissingReply::Failed(Failure::Unreachable);
        let Request { partition, event, ask } = request.ok_or(unreachable)?;
        self.counting.add(event);
        let reply = self.store.ask(names.get(partition).ok_or(unreachable)?, ask.into()).await;
        reply.map_err(|why| {
            self.note_no_reply(&why);
            match why {
                NoReply::Overloaded => MissingReply::Overloaded,
                NoReply::Unreadable(_) => MissingReply::Failed(Failure::Corrupt),
                NoReply::Late | NoReply::Failed(_) => unreachable,
            }
        })
    }
}
