//! One request's charges in all its counts: which count is asked, charged and refunded, and when.
//!
//! Invariant: all or nothing. A request that ends as denied, or whose client left, gets each of its
//! charges refunded exactly once. The count that most clients share is charged last, when no other
//! count denies. When one denies, the count that was not asked is asked then, because its decision
//! is in the response, while the others are refunded. A count without a reply has failed, and is
//! not asked again, except to record a report; a charge that it may still carry out stays, on the
//! strict side. All requests of a round are sent at the same time, and the next round begins when
//! each has its reply or none. Deliberately absent: names of counts, time-outs, waiting, and
//! planning again.

use alloc::vec::Vec;

use tollgate_core::Span;
use tollgate_policy::waiting::Full;
use tollgate_policy::{Answer, ChargingOrder, Failure, Partition, Plan, Policy};
use tollgate_storage::WireError;

use crate::drive::asks::{AskId, Asks, Charge, Request, Use};
use crate::metrics::Event;

/// How long a request has waited, and how long it may still wait, whatever its rules allow.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Since it came.
    pub waited: Span,
    /// A place beyond this is denied.
    pub left: Span,
}

/// How the counts of a request with several keys are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All are asked before any is charged: for a store in memory, where asking is free, and where
    /// a charge of a new client takes a place in a bounded table even if it is refunded.
    AskAll,
    /// By [`Plan::charging_order`], where there is one: for a store whose calls cost.
    ChargeFirst,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send [this](Drive::request) now; several at the same time.
    Send(AskId),
    /// Replies are missing.
    Wait,
    /// The plan has its outcome.
    Done,
}

/// Why a count has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The store reports an overload: the request is denied, whatever its rules decide.
    Overloaded,
    /// It failed.
    Failed(Failure),
}

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reply that cannot be read is to be counted"]
pub enum Heard {
    /// It was used.
    Used,
    /// It cannot be read, and its count has failed.
    Misread,
    /// It was not asked for, or it came before.
    Unasked,
}

/// The round that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// All are asked, for a caller that only looks.
    Look,
    /// All are asked before any is charged.
    AskAll,
    /// One is charged, those in between are asked; the last is left out.
    ChargeOne(ChargingOrder),
    /// All that were not charged yet are charged.
    ChargeAll,
    /// The effects of a response.
    Settle,
    /// Nothing follows.
    Over,
}

/// See the module. The plan is the caller's, and is the same in every call.
#[derive(Debug)]
pub struct Drive {
    stage: Stage,
    spent: Spent,
    asks: Asks,
    is_overload: bool,
    is_left: bool,
}

impl Drive {
    fn new(stage: Stage, spent: Spent) -> Self {
        Self { stage, spent, asks: Asks::default(), is_overload: false, is_left: false }
    }

    /// Decides the plan once, all or nothing.
    #[must_use]
    pub fn decide(policy: &Policy, plan: &mut Plan, order: Order, spent: Spent) -> Self {
        let stage = match plan.charging_order(policy) {
            _ if plan.len() < 2 => Stage::ChargeAll,
            Some(ends) if order == Order::ChargeFirst && !plan.reports() => Stage::ChargeOne(ends),
            _ => Stage::AskAll,
        };
        let mut drive = Self::new(stage, spent);
        drive.begin(policy, plan);
        drive
    }

    /// Charges a plan whose counts were asked before.
    #[must_use]
    pub fn charge(policy: &Policy, plan: &mut Plan, spent: Spent) -> Self {
        let mut drive = Self::new(Stage::ChargeAll, spent);
        drive.begin(policy, plan);
        drive
    }

    /// Asks every count for its decision; charges none.
    #[must_use]
    pub fn look(policy: &Policy, plan: &mut Plan) -> Self {
        let mut drive = Self::new(Stage::Look, Spent { waited: Span::ZERO, left: Span::MAX });
        drive.begin(policy, plan);
        drive
    }

    /// Carries out the effects of a settled plan's response.
    #[must_use]
    pub fn settle(policy: &Policy, plan: &mut Plan) -> Self {
        let mut drive = Self::new(Stage::Settle, Spent { waited: Span::ZERO, left: Span::MAX });
        drive.begin(policy, plan);
        drive
    }

    /// The next step. Each request is returned once.
    pub fn next(&mut self, policy: &Policy, plan: &mut Plan) -> Next {
        loop {
            if let Some(id) = self.asks.take() {
                return Next::Send(id);
            }
            if self.asks.are_open() {
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
    pub fn request(&self, id: AskId) -> Option<Request<'_>> {
        self.asks.request(id)
    }

    /// Takes the reply to a request, or the reason why there is none.
    pub fn hear(
        &mut self,
        policy: &Policy,
        plan: &mut Plan,
        id: AskId,
        reply: Result<Vec<u8>, Lost>,
    ) -> Heard {
        let Some((i, is_refund)) = self.asks.close(id) else { return Heard::Unasked };
        let Some(mut partition) = plan.partition_mut(i) else { return Heard::Unasked };
        let (heard, failure) = match &reply {
            Ok(bytes) => match partition.accept(policy, bytes) {
                Ok(()) => (Heard::Used, None),
                Err(WireError::Newer(version)) => (Heard::Used, Some(Failure::Newer(version))),
                Err(WireError::Malformed | WireError::OtherPolicy | WireError::OtherEntry) => {
                    (Heard::Misread, Some(Failure::Unreachable))
                }
            },
            Err(Lost::Failed(failure)) => (Heard::Used, Some(*failure)),
            Err(Lost::Overloaded) => (Heard::Used, Some(Failure::Unreachable)),
        };
        if is_refund {
            // Without a readable reply nothing changes: the request is denied in any case.
            return if failure.is_some() && reply.is_ok() { Heard::Misread } else { heard };
        }
        self.is_overload |= reply == Err(Lost::Overloaded);
        if let Some(failure) = failure {
            partition.fail(failure);
        } else if let Ok(bytes) = reply
            && partition.view().changed()
        {
            self.asks.was_charged(id, bytes);
        }
        heard
    }

    /// The client left: what was charged is refunded, also what is being charged now, and nothing
    /// else is charged. A caller with a report must not leave: the report is recorded whatever
    /// happens.
    pub fn leave(&mut self) {
        self.is_left = true;
        self.asks.cancel_unsent();
        if self.stage == Stage::Over {
            self.asks.refund_charged();
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
        self.asks.have_charged()
    }

    /// The charges of an allowed request, to be refunded if its client never gets the decision.
    pub fn into_charges(self) -> impl Iterator<Item = Charge> {
        self.asks.into_charges()
    }
}

impl Drive {
    /// The requests of the first round.
    fn begin(&mut self, policy: &Policy, plan: &mut Plan) {
        match self.stage {
            Stage::Look | Stage::AskAll => self.look_at(policy, plan, |_| true),
            Stage::ChargeOne(ends) => {
                self.charge_those(policy, plan, |i| i == ends.first);
                self.look_at(policy, plan, |i| i != ends.first && i != ends.last);
                plan.set_aside(ends.last);
            }
            Stage::ChargeAll => self.charge_those(policy, plan, |_| true),
            Stage::Settle => self.settle_all(policy, plan),
            Stage::Over => {}
        }
    }

    /// The requests of the next round, after every request of this one was closed.
    fn advance(&mut self, policy: &Policy, plan: &mut Plan) {
        let stage = core::mem::replace(&mut self.stage, Stage::Over);
        // A look and a settlement decide nothing, and must not change the plan.
        if matches!(stage, Stage::Look | Stage::Settle | Stage::Over) {
            return;
        }
        let is_void = self.is_left || self.is_overload || plan.is_outdated();
        let is_refused = is_void || self.is_refused(policy, plan);
        if let Stage::ChargeOne(ends) = stage {
            plan.take_up(ends.last);
        }
        match stage {
            Stage::AskAll if is_refused => {
                if plan.reports() && !plan.is_outdated() {
                    self.report(policy, plan);
                }
            }
            Stage::ChargeOne(ends) if is_refused => {
                if !is_void {
                    self.look_at(policy, plan, |i| i == ends.last);
                }
                self.asks.refund_charged();
            }
            Stage::AskAll => {
                self.charge_those(policy, plan, |_| true);
                self.stage = Stage::ChargeAll;
            }
            Stage::ChargeOne(ends) => {
                self.charge_those(policy, plan, |i| i != ends.first);
                self.stage = Stage::ChargeAll;
            }
            Stage::ChargeAll if is_refused => self.asks.refund_charged(),
            Stage::ChargeAll | Stage::Look | Stage::Settle | Stage::Over => {}
        }
    }

    fn look_at(&mut self, policy: &Policy, plan: &Plan, is_asked: impl Fn(usize) -> bool) {
        for partition in plan.partitions().filter(|it| is_asked(it.index())) {
            let mut request = Vec::new();
            partition.peek_request(policy, &mut request);
            self.asks.add(partition.index(), (Use::Look, Event::Look), request);
        }
    }

    /// A count that did not reply is not asked again, except to record a report.
    fn charge_those(&mut self, policy: &Policy, plan: &Plan, is_asked: impl Fn(usize) -> bool) {
        let is_there = |it: &Partition<'_>| !it.has_failed() || it.reports();
        for partition in plan.partitions().filter(|it| is_asked(it.index()) && is_there(it)) {
            let mut request = Vec::new();
            partition.request(policy, &mut request);
            self.asks.add(partition.index(), (Use::Charge, Event::Check), request);
        }
    }

    /// Records the use that a denied request reports.
    fn report(&mut self, policy: &Policy, plan: &Plan) {
        for partition in plan.partitions().filter(Partition::reports) {
            let mut request = Vec::new();
            partition.report_request(policy, &mut request);
            self.asks.add(partition.index(), (Use::Record, Event::Check), request);
        }
    }

    fn settle_all(&mut self, policy: &Policy, plan: &Plan) {
        for partition in plan.partitions() {
            let mut request = Vec::new();
            partition.settle_request(policy, &mut request);
            let event = if partition.gives_back() { Event::Settle } else { Event::Check };
            self.asks.add(partition.index(), (Use::Record, event), request);
        }
    }

    /// True when it is denied. A place beyond the time that the caller waits is denied, too, and is
    /// refunded like every charge of a denied request.
    fn is_refused(&self, policy: &Policy, plan: &mut Plan) -> bool {
        match plan.outcome(policy).answer_after(self.spent.waited) {
            Answer::Refuse { .. } | Answer::Retry(_) => true,
            Answer::Delay(delay) if delay > self.spent.left => {
                let late = delay.saturating_sub(self.spent.left);
                plan.reject_waiting(policy, Full::Late(late));
                true
            }
            Answer::Pass | Answer::Delay(_) => false,
        }
    }
}
