//! The calls of a request to its objects, as the service's [`Drive`] wants them: which object is
//! asked, charged and refunded, and when, is decided there.
//!
//! Invariant: an object that does not reply in time is a failure, which is counted and logged, and
//! `on_failure` decides. The object may still carry out the call; such a charge stays, on the
//! strict side. If an object does not reply and a cached denial was valid when the request came,
//! the request is denied by it.
//!
//! All objects of a request share one time-out. An object that is silent for half of it is waited
//! for until its end, while the drive goes on without it. The calls of a request are bounded:
//! `MAX_CALLS` and its neighbours in `host.mjs`.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Failure, Plan, Policy};
use tollgate_service::CountRequest;
use tollgate_service::drive::{
    DenialCache, Drive, MissingReply, Next, Order, Request, RequestId, WaitBudget,
};
use tollgate_service::metrics::Event;

use crate::counts::objects::{Keys, Objects};
use crate::operate::tally::FailureKind;
use crate::runtime::js::{self, Call, KeyObject, NoReply};

/// The calls of one request, and its objects.
pub(crate) struct Calls<'a> {
    objects: &'a Objects,
    policy: &'a Policy,
    keys: Keys,
    came_at: Timestamp,
    drive: Drive,
}

/// A call that is under way.
struct PendingCall {
    id: RequestId,
    call: Call,
    at: Timestamp,
}

impl Objects {
    /// Decides the plan once, all or nothing.
    pub(crate) async fn decide_once<'a>(
        &'a self,
        policy: &'a Policy,
        plan: &mut Plan,
        waited: Span,
    ) -> Calls<'a> {
        let spent = WaitBudget { waited, ..WaitBudget::default() };
        let drive = Drive::decide(policy, plan, Order::ChargeFirst, spent);
        let mut calls = self.run(policy, plan, drive).await;
        let times = || (calls.came_at, js::now());
        if calls.drive.conclude((policy, plan), &self.denials, times) {
            self.counters.add(Event::RememberedDenial);
            calls.carry_out(plan).await;
        }
        calls
    }

    /// Asks every object for its decision; charges none.
    pub(crate) async fn peek<'a>(&'a self, policy: &'a Policy, plan: &mut Plan) -> Calls<'a> {
        let drive = Drive::peek(policy, plan, Order::ChargeFirst);
        self.run(policy, plan, drive).await
    }

    /// The decisions of every object, for an operator: nothing changes.
    pub(crate) async fn look(&self, policy: &Policy, plan: &mut Plan) {
        let drive = Drive::look(policy, plan);
        self.run(policy, plan, drive).await;
    }

    /// Carries out the effects of a settled plan's response; true when something was charged or
    /// refunded.
    pub(crate) async fn settle(&self, policy: &Policy, plan: &mut Plan) -> bool {
        let drive = Drive::settle(policy, plan);
        let calls = self.run(policy, plan, drive).await;
        self.denials.with(|denials| denials.close(policy, plan));
        calls.drive.has_charged()
    }

    async fn run<'a>(&'a self, policy: &'a Policy, plan: &mut Plan, drive: Drive) -> Calls<'a> {
        let keys = self.of_all(policy, plan);
        let mut calls = Calls { objects: self, policy, keys, came_at: js::now(), drive };
        calls.carry_out(plan).await;
        calls
    }
}

impl Calls<'_> {
    /// Charges the objects, which were asked for their decisions before.
    pub(crate) async fn charge(&mut self, plan: &mut Plan) {
        self.drive = Drive::charge(self.policy, plan, WaitBudget::default());
        self.carry_out(plan).await;
    }

    /// Refunds every charge. The new replies contain the values without it.
    pub(crate) async fn give_back(&mut self, plan: &mut Plan) {
        self.drive.withdraw();
        self.carry_out(plan).await;
    }

    async fn carry_out(&mut self, plan: &mut Plan) {
        let mut round = Vec::new();
        loop {
            match self.drive.next(self.policy, plan) {
                Next::Done => return,
                Next::Wait => round = self.receive(plan, round).await,
                Next::Send(id) => match self.send(id) {
                    Some(sent) => round.push(sent),
                    None => self.accept(plan, (id, js::now()), Err(NoReply::Late)),
                },
            }
        }
    }

    fn send(&self, id: RequestId) -> Option<PendingCall> {
        let Request { partition, event, ask } = self.drive.request(id)?;
        let object = self.object(partition)?;
        self.objects.counters.add(event);
        let call = match ask {
            CountRequest::Refund(request, reply) => Call::refund(object, request, reply),
            CountRequest::Charge(request) if event == Event::Settle => {
                Call::settle(object, request)
            }
            CountRequest::Peek(request) | CountRequest::Charge(request)
                if self.drive.may_skip_late() =>
            {
                Call::check_soon(object, request)
            }
            CountRequest::Peek(request) | CountRequest::Charge(request) => {
                Call::check(object, request)
            }
        };
        Some(PendingCall { id, call, at: js::now() })
    }

    fn object(&self, partition: usize) -> Option<&KeyObject> {
        let mut keys = self.keys.iter();
        keys.find(|(of, _)| *of == partition).map(|(_, object)| object)
    }

    /// Waits for the calls under way, or for half of the time if the drive may go on then. Returns
    /// the calls that are still awaited.
    async fn receive(&mut self, plan: &mut Plan, round: Vec<PendingCall>) -> Vec<PendingCall> {
        let may_skip_late = self.drive.may_skip_late();
        let mut silent = Vec::new();
        for PendingCall { id, call, at } in round {
            match call.reply().await {
                Err(NoReply::Late) if may_skip_late => silent.push((id, at)),
                reply => self.accept(plan, (id, at), reply),
            }
        }
        let times = || (self.came_at, js::now());
        self.drive.recall_denial((self.policy, plan), &self.objects.denials, times);
        if !silent.is_empty() {
            self.drive.skip_late(self.policy, plan);
        }
        let rest = |(id, at)| {
            let Request { partition, .. } = self.drive.request(id)?;
            let call = Call::rest(self.object(partition)?);
            self.drive.awaits(id).then_some(PendingCall { id, call, at })
        };
        silent.into_iter().filter_map(rest).collect()
    }

    /// Takes the reply to a call that was made at `at`.
    fn accept(
        &mut self,
        plan: &mut Plan,
        (id, at): (RequestId, Timestamp),
        reply: Result<Vec<u8>, NoReply>,
    ) {
        let Some(Request { event, .. }) = self.drive.request(id) else { return };
        let objects = self.objects;
        let lost = |kind, word: &str, failure| {
            objects.note(kind, word);
            Err(MissingReply::Failed(failure))
        };
        let reply = match reply {
            Ok(reply) if reply.is_empty() && event != Event::Refund => {
                lost(FailureKind::Corrupt, "", Failure::Corrupt)
            }
            Ok(reply) => Ok(reply),
            Err(NoReply::Late) => lost(FailureKind::Late, "", Failure::Unreachable),
            Err(NoReply::Failed(word)) => lost(FailureKind::Failed, &word, Failure::Unreachable),
        };
        // A reply to one of several parallel calls may have arrived long before it is read.
        let is_alone = plan.len() == 1;
        let received_at = || if is_alone { js::now() } else { at };
        let (plan, denials) = ((self.policy, plan), &objects.denials);
        if self.drive.receive_and_remember(plan, id, reply, denials, received_at) {
            objects.note(FailureKind::Misread, "");
        }
    }
}
