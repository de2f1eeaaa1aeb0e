//! One request's charges in all its counts: which count is asked, charged and refunded, and when.
//!
//! Invariant: all or nothing. A request that ends as denied, or whose client left, gets each of its
//! charges refunded exactly once. The count that most clients share is charged last, when no other
//! count denies. When one denies, the count that was not asked is asked then, because its decision
//! is in the response, while the others are refunded. A count without a reply has failed, and is
//! not asked again, except to record a report; a charge that it may still carry out stays, on the
//! strict side. All requests of a round are sent at the same time, and the next round begins when
//! each has its reply or none. Deliberately absent: names of counts, clocks, waiting, and planning
//! again.
//!
//! A cached denial may have to be confirmed: then the count that denied is asked before any is
//! charged. If it still denies, nothing is charged. If it does not reply, and the denial was valid
//! when the request came, the request is denied by it.
//!
//! The caller may report that half of the time has passed ([`Drive::skip_late`]). If the request
//! would pass without the late counts, the others are charged meanwhile: a count that all clients
//! share must not miss requests because the count of one client is slow.

use alloc::vec::Vec;

use tollgate_policy::waiting::Full;
use tollgate_policy::{ChargingOrder, Disposition, Failure, Partition, Plan, Policy};
use tollgate_storage::WireError;

use crate::drive::requests::{
    ConfirmedCharge, MissingReply, Next, Purpose, ReplyOutcome, Request, RequestId, Requests,
};
use crate::drive::waiting::WaitBudget;
use crate::metrics::Event;

/// How the counts of a request with several keys are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All are asked before any is charged: for a store in memory, where asking is free, and where
    /// a charge of a new client takes a place in a bounded table even if it is refunded.
    PeekAll,
    /// By its [`ChargingOrder`], where there is one: for a store whose calls cost.
    ChargeFirst,
}

impl Order {
    fn ends(self, policy: &Policy, plan: &Plan) -> Option<ChargingOrder> {
        (self == Self::ChargeFirst).then(|| ChargingOrder::of(policy, plan)).flatten()
    }
}

/// The round that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// All are asked, for a caller that only peeks.
    Peek,
    /// All are asked before any is charged.
    PeekAll,
    /// The count that denied last is asked; all others are left out.
    PeekSuspect(usize, ChargingOrder),
    /// One is charged, those in between are asked; the last is left out.
    ChargeOne(ChargingOrder),
    /// All that were not late are charged; the late ones have not replied yet.
    ChargeRest,
    /// All that were not charged yet are charged.
    ChargeAll,
    /// The effects of a response.
    Settle,
    /// Nothing follows.
    #[default]
    Over,
}

/// Charges one request in all its counts: send what [`Drive::next`] returns and pass each reply to
/// [`Drive::receive`], until it is done. The plan is the caller's, and is the same in every call.
#[derive(Debug, Default)]
pub struct Drive {
    stage: Stage,
    budget: WaitBudget,
    requests: Requests,
    /// Replies to peeks contain what [`Denials`](tollgate_policy::Denials) remember.
    wants_counts: bool,
    only_looks: bool,
    /// Half of the time of this round has passed.
    is_late: bool,
    /// The cached denial of the suspect decides if its count does not reply.
    trusts_denial: bool,
    is_overload: bool,
    is_withdrawn: bool,
}

impl Drive {
    fn begin(mut self, stage: Stage, policy: &Policy, plan: &mut Plan) -> Self {
        self.enter(stage, policy, plan);
        self
    }

    /// Decides the plan once, all or nothing.
    #[must_use]
    pub fn decide(policy: &Policy, plan: &mut Plan, order: Order, budget: WaitBudget) -> Self {
        let ends = order.ends(policy, plan).filter(|_| !plan.waiting(policy).is_decided_once());
        let stage = match (ends, ends.and_then(|ends| ends.suspect)) {
            _ if plan.len() < 2 => Stage::ChargeAll,
            (Some(ends), Some(suspect)) => Stage::PeekSuspect(suspect, ends),
            (Some(ends), None) => Stage::ChargeOne(ends),
            (None, _) => Stage::PeekAll,
        };
        Self { budget, wants_counts: ends.is_some(), ..Self::default() }.begin(stage, policy, plan)
    }

    /// Charges a plan whose counts were asked before.
    #[must_use]
    pub fn charge(policy: &Policy, plan: &mut Plan, budget: WaitBudget) -> Self {
        Self { budget, ..Self::default() }.begin(Stage::ChargeAll, policy, plan)
    }

    /// Requests every count for its decision; charges none.
    #[must_use]
    pub fn peek(policy: &Policy, plan: &mut Plan, order: Order) -> Self {
        let wants_counts = order.ends(policy, plan).is_some();
        Self { wants_counts, ..Self::default() }.begin(Stage::Peek, policy, plan)
    }

    /// The same for an operator: a denial starts no penalty.
    #[must_use]
    pub fn look(policy: &Policy, plan: &mut Plan) -> Self {
        Self { only_looks: true, ..Self::default() }.begin(Stage::Peek, policy, plan)
    }

    /// Carries out the effects of a settled plan's response.
    #[must_use]
    pub fn settle(policy: &Policy, plan: &mut Plan) -> Self {
        Self::default().begin(Stage::Settle, policy, plan)
    }

    /// The next step. Each request is returned once.
    pub fn next(&mut self, policy: &Policy, plan: &mut Plan) -> Next {
        loop {
            if let Some(id) = self.requests.take() {
                return Next::Send(id);
            }
            if self.requests.are_open() {
                return Next::Wait;
            }
            if self.stage == Stage::Over {
                return Next::Done;
            }
            self.advance(policy, plan);
        }
    }

    /// The bytes of a request that [`Drive::next`] returned.
    #[must_use]
    pub fn request(&self, id: RequestId) -> Option<Request<'_>> {
        self.requests.request(id)
    }

    /// Takes the reply to a request, or the reason why there is none.
    pub fn receive(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        id: RequestId,
        reply: Result<Vec<u8>, MissingReply>,
    ) -> ReplyOutcome {
        let Some((i, is_refund)) = self.requests.close(id) else { return ReplyOutcome::Unexpected };
        let Some(mut partition) = plan.partition_mut(i) else { return ReplyOutcome::Unexpected };
        let newer = |version| (ReplyOutcome::Used, Some(Failure::Newer(version)));
        let (outcome, failure) = match &reply {
            Ok(bytes) => match partition.accept(policy, bytes) {
                Ok(()) => (ReplyOutcome::Used, None),
                Err(WireError::Newer(version)) => newer(version),
                Err(WireError::OtherEntry) => (ReplyOutcome::Used, Some(Failure::OtherEntry)),
                Err(WireError::Malformed | WireError::OtherPolicy) => {
                    (ReplyOutcome::Misread, Some(Failure::Unreachable))
                }
            },
            Err(MissingReply::Failed(failure)) => (ReplyOutcome::Used, Some(*failure)),
            Err(MissingReply::Overloaded) => (ReplyOutcome::Used, Some(Failure::Unreachable)),
        };
        if is_refund {
            // Without a readable reply nothing changes: the request is denied in any case.
            return if failure.is_some() { ReplyOutcome::LostRefund } else { outcome };
        }
        self.is_overload |= reply == Err(MissingReply::Overloaded);
        if let Some(failure) = failure {
            partition.fail(failure);
        } else if let Ok(bytes) = reply
            && partition.view().changed()
        {
            self.requests.was_charged(id, bytes);
        }
        outcome
    }

    /// True while [`Drive::skip_late`] may have an effect.
    #[must_use]
    pub const fn may_skip_late(&self) -> bool {
        !self.is_late && matches!(self.stage, Stage::PeekSuspect(..) | Stage::ChargeOne(_))
    }

    /// Half of the time has passed, and replies are missing: what can be done without them is done
    /// meanwhile. The caller still waits for those that are [awaited](Drive::awaits).
    pub fn skip_late(&mut self, policy: &Policy, plan: &mut Plan) {
        if !self.may_skip_late() {
            return;
        }
        self.is_late = true;
        match self.stage {
            Stage::PeekSuspect(_, ends) if !self.trusts_denial => {
                self.requests.give_up();
                plan.each_partition(|it| it.take_up());
                self.enter(Stage::ChargeOne(ends), policy, plan);
            }
            // An undecided count is treated as failed: it will have failed if it stays silent.
            Stage::ChargeOne(_) if !self.is_void(plan) && !self.is_refused(policy, plan) => {
                plan.each_partition(|it| it.take_up());
                self.enter(Stage::ChargeRest, policy, plan);
            }
            _ => {}
        }
    }

    /// False when a reply to this request would not be used.
    #[must_use]
    pub fn awaits(&self, id: RequestId) -> bool {
        self.requests.is_open(id)
    }

    /// The partition whose denial is being confirmed, before any count is charged.
    #[must_use]
    pub const fn suspect(&self) -> Option<usize> {
        if let Stage::PeekSuspect(suspect, _) = self.stage { Some(suspect) } else { None }
    }

    /// Whether the cached denial of [`Drive::suspect`] decides if its count does not reply.
    pub const fn trust_denial(&mut self, trusts_denial: bool) {
        self.trusts_denial = trusts_denial;
    }

    /// The client left, or a cached denial decides: what was charged is refunded, also what is
    /// being charged now, and nothing else is charged. A caller with a report must not withdraw:
    /// the report is recorded whatever happens.
    pub fn withdraw(&mut self) {
        self.is_withdrawn = true;
        self.requests.cancel_unsent();
        if self.stage == Stage::Over {
            self.requests.refund_charged();
        }
    }

    /// True when a store reported an overload.
    #[must_use]
    pub const fn is_overload(&self) -> bool {
        self.is_overload
    }

    /// True when something is charged that was not refunded, or was settled.
    #[must_use]
    pub fn has_charged(&self) -> bool {
        self.requests.have_charged()
    }

    /// The charges of an allowed request, to be refunded if its client never gets the decision.
    pub fn into_charges(self) -> impl Iterator<Item = ConfirmedCharge> {
        self.requests.into_charges()
    }
}

impl Drive {
    /// The requests of a round.
    fn enter(&mut self, stage: Stage, policy: &Policy, plan: &mut Plan) {
        (self.stage, self.is_late) = (stage, false);
        match stage {
            Stage::Peek | Stage::PeekAll => self.peek_at(policy, plan, |_| true),
            Stage::PeekSuspect(suspect, _) => {
                set_aside(plan, |i| i != suspect);
                self.peek_at(policy, plan, |i| i == suspect);
            }
            Stage::ChargeOne(ends) => {
                self.charge_those(policy, plan, |i| i == ends.first);
                self.peek_at(policy, plan, |i| i != ends.first && i != ends.last);
                set_aside(plan, |i| i == ends.last);
            }
            Stage::ChargeRest | Stage::ChargeAll => self.charge_those(policy, plan, |_| true),
            Stage::Settle => self.settle_all(policy, plan),
            Stage::Over => {}
        }
    }

    /// The requests of the next round, after every request of this one was closed.
    fn advance(&mut self, policy: &Policy, plan: &mut Plan) {
        let stage = core::mem::replace(&mut self.stage, Stage::Over);
        // A peek and a settlement decide nothing, and must not change the plan.
        if matches!(stage, Stage::Peek | Stage::Settle | Stage::Over) {
            return;
        }
        let is_void = self.is_void(plan);
        let is_refused = is_void || self.is_refused(policy, plan);
        match stage {
            Stage::PeekSuspect(suspect, ends) => {
                plan.each_partition(|it| it.take_up());
                let has_failed = plan.has_failed();
                let is_silent = plan.partition(suspect).is_some_and(|it| it.is_silent());
                let stands = if has_failed { is_silent && self.trusts_denial } else { is_refused };
                if !stands && !is_void {
                    self.enter(Stage::ChargeOne(ends), policy, plan);
                } else if !has_failed && !is_void {
                    self.peek_at(policy, plan, |i| i != suspect);
                }
            }
            Stage::PeekAll if is_refused && plan.outdated().is_some() => {}
            Stage::PeekAll if is_refused => self.report(policy, plan),
            Stage::ChargeOne(ends) => {
                plan.each_partition(|it| it.take_up());
                if !is_refused {
                    return self.enter(Stage::ChargeAll, policy, plan);
                }
                if !is_void {
                    self.peek_at(policy, plan, |i| i == ends.last);
                }
                self.requests.refund_charged();
            }
            Stage::ChargeRest | Stage::ChargeAll if is_refused => self.requests.refund_charged(),
            Stage::PeekAll | Stage::ChargeRest => self.enter(Stage::ChargeAll, policy, plan),
            Stage::ChargeAll | Stage::Peek | Stage::Settle | Stage::Over => {}
        }
    }

    /// Requests counts for their decisions, except those that already failed in this drive.
    fn peek_at(&mut self, policy: &Policy, plan: &Plan, is_asked: impl Fn(usize) -> bool) {
        for partition in plan.partitions().filter(|it| is_asked(it.index())) {
            if partition.has_failed() && self.requests.has_sent(partition.index()) {
                continue;
            }
            let mut request = Vec::new();
            if self.only_looks {
                partition.look_request(policy, &mut request);
            } else if self.wants_counts {
                partition.peek_request_with_states(policy, &mut request);
            } else {
                partition.peek_request(policy, &mut request);
            }
            self.requests.add(partition.index(), (Purpose::Peek, Event::Look), request);
        }
    }

    /// Charges counts that were not charged yet. A count that did not reply is not asked again,
    /// except to record a report.
    fn charge_those(&mut self, policy: &Policy, plan: &Plan, is_asked: impl Fn(usize) -> bool) {
        let is_there = |it: &Partition<'_>| !it.has_failed() || it.reports();
        for partition in plan.partitions().filter(|it| is_asked(it.index()) && is_there(it)) {
            if !self.requests.charge_or_await(partition.index()) {
                let mut request = Vec::new();
                partition.request(policy, &mut request);
                self.requests.add(partition.index(), (Purpose::Charge, Event::Check), request);
            }
        }
    }

    /// Records the use that a denied request reports, if it reports any.
    fn report(&mut self, policy: &Policy, plan: &Plan) {
        for partition in plan.partitions().filter(Partition::reports) {
            let mut request = Vec::new();
            partition.report_request(policy, &mut request);
            self.requests.add(partition.index(), (Purpose::Record, Event::Check), request);
        }
    }

    fn settle_all(&mut self, policy: &Policy, plan: &Plan) {
        for partition in plan.partitions() {
            let mut request = Vec::new();
            partition.settle_request(policy, &mut request);
            let event = if partition.gives_back() { Event::Settle } else { Event::Check };
            self.requests.add(partition.index(), (Purpose::Record, event), request);
        }
    }

    /// True when nothing is to be decided any more.
    fn is_void(&self, plan: &Plan) -> bool {
        self.is_withdrawn || self.is_overload || plan.outdated().is_some()
    }

    /// True when it is denied. A place beyond the time that the caller waits is denied, too, and is
    /// refunded like every charge of a denied request.
    fn is_refused(&self, policy: &Policy, plan: &mut Plan) -> bool {
        match plan.outcome(policy).disposition_after(self.budget.waited) {
            Disposition::Deny { .. } | Disposition::Retry(_) => true,
            Disposition::Delay(delay) if delay > self.budget.left => {
                let late = delay.saturating_sub(self.budget.left);
                plan.waiting_mut(policy).reject(Full::Late(late));
                true
            }
            Disposition::Allow | Disposition::Delay(_) => false,
        }
    }
}

/// Sets aside the partitions that are neither asked nor charged before they are taken up again.
fn set_aside(plan: &mut Plan, is_aside: impl Fn(usize) -> bool) {
    for i in (0..plan.len()).filter(|i| is_aside(*i)) {
        plan.partition_mut(i).iter_mut().for_each(|it| it.set_aside());
    }
}
