//! The first decision on a request: it continues, is denied, or waits.
//!
//! Invariant: a request that has to wait joins the line after those that came before it, without a
//! decision of its own. Deliberately absent: its handling while it waits; that is `held_request`'s.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Turn};
use tollgate_policy::{Disposition, Outcome, Plan};

use crate::active_policy::{ActivePolicy, grpc_type};
use crate::fleet::authority_client::AuthorityClient;
use crate::fleet::circuit_breaker::Availability;
use crate::fleet::spending::SpendStatus;
use crate::host::proxy::Proxy;
use crate::request::facts::RequestFacts;
use crate::request::held_request::{HeldRequest, Pending};
use crate::request::in_flight::InFlight;
use crate::request::pending_response::PendingResponse;
use crate::request::waiting::Waiting;

/// A request of the current context.
pub struct Arrival<'a, H: Proxy> {
    pub host: &'a H,
    pub id: u32,
    pub policy: Rc<ActivePolicy<H>>,
    pub waiting: &'a Rc<Waiting<H>>,
    pub authority: &'a Rc<AuthorityClient<H>>,
    pub in_flight: &'a Rc<InFlight<H>>,
    pub facts: &'a RequestFacts<H>,
}

impl<H: Proxy> Arrival<'_, H> {
    /// Decides the request.
    pub fn decide(self, mut plan: Box<Plan>) -> Pending<H> {
        if plan.is_denied() {
            return self.deny(plan);
        }
        let clock = self.host.now();
        let now = clock.unwrap_or_default();
        if clock.is_some() && self.waiting.with(|queue| queue.next_at().is_some()) == Some(true) {
            if let Some(turn) = self.line_ahead(&plan) {
                return self.join_line(plan, turn, now);
            }
            if let Some((place, at)) = self.spare(&plan, now)
                && self.policy.give_place(&mut plan, now, at)
            {
                return self.hold(plan, now).wait_for_spare(place, now);
            }
        }
        self.policy.decide_at(&mut plan, clock);
        let outcome = self.policy.outcome(&plan);
        match outcome.disposition() {
            Disposition::Allow | Disposition::Delay(_) if self.policy.has_fleet() => {
                self.lease(plan, now)
            }
            Disposition::Allow => {
                self.record_allowed(&outcome, now);
                Pending::Response(PendingResponse::Fields(self.policy, plan))
            }
            // Policies for which requests wait were refused; a charge stays on the strict side.
            Disposition::Delay(_) | Disposition::Retry(_) if !H::WAITS => self.deny(plan),
            Disposition::Delay(wait) => {
                let held = self.hold(plan, now);
                held.wait_until(now.saturating_add(wait), now)
            }
            Disposition::Retry(wait) => match outcome.turn() {
                Some(turn) => self.hold(plan, now).join_queue(turn, now),
                None => self.hold(plan, now).reject_waiting(Full::Late(wait), now),
            },
            Disposition::Deny { .. } => {
                let grpc = grpc_type(self.facts);
                PendingResponse::refuse(self.host, &self.policy, outcome, (grpc, Span::ZERO));
                Pending::Response(PendingResponse::of_refusal(self.policy, plan, grpc))
            }
        }
    }

    /// Takes the costs under the rules of a fleet, once the rules of this node allow the request.
    fn lease(self, mut plan: Box<Plan>, now: Timestamp) -> Pending<H> {
        let availability = self.authority.availability(now);
        let (status, spent) = self.policy.spend(&mut plan, availability == Availability::Available);
        if matches!(status, SpendStatus::Paid)
            && spent.prefetches.is_empty()
            && self.policy.outcome(&plan).disposition() == Disposition::Allow
        {
            self.record_allowed(&self.policy.outcome(&plan), now);
            return Pending::Response(PendingResponse::Fields(self.policy, plan));
        }
        self.hold(plan, now).begin_leasing(availability, (status, spent), now)
    }

    /// The first line of other requests that it has to join.
    fn line_ahead(&self, plan: &Plan) -> Option<Turn> {
        self.policy.waiting(plan).turns().find(|turn| {
            let line = self.policy.queue_key(plan, turn);
            self.waiting.with(|queue| queue.has_line(&line)) == Some(true)
        })
    }

    /// Joins the line after the others, unless a rule denies the request.
    fn join_line(self, mut plan: Box<Plan>, turn: Turn, now: Timestamp) -> Pending<H> {
        self.policy.look(&mut plan, now);
        match self.policy.outcome(&plan).disposition() {
            Disposition::Deny { .. } => self.deny(plan),
            Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_) => {
                self.hold(plan, now).join_queue(turn, now)
            }
        }
    }

    /// Takes a time of a `leaky-queue` that a client has left, if the request may have it.
    fn spare(&self, plan: &Plan, now: Timestamp) -> Option<(Turn, Timestamp)> {
        let place = self.policy.waiting(plan).spare_line()?;
        let line = (self.policy.queue_key(plan, &place), place.cost);
        let at = self.waiting.with(|queue| queue.spare(&line)).flatten()?;
        (at > now && at.since(now) <= place.max).then_some((place, at))
    }

    fn record_allowed(&self, outcome: &Outcome<'_>, now: Timestamp) {
        self.policy.count(outcome, Span::ZERO);
        self.policy.mark(outcome);
        self.in_flight.begin(self.id, &self.policy, outcome.plan(), now);
    }

    fn deny(self, plan: Box<Plan>) -> Pending<H> {
        let how = (grpc_type(self.facts), Span::ZERO);
        Pending::Response(PendingResponse::refusal(self.host, self.policy, plan, how))
    }

    fn hold(self, plan: Box<Plan>, now: Timestamp) -> HeldRequest<H> {
        HeldRequest {
            host: self.host.clone(),
            id: self.id,
            policy: self.policy,
            waiting: Rc::clone(self.waiting),
            plan,
            arrived_at: now,
            header_bytes: self.host.request_bytes(),
            grpc: grpc_type(self.facts),
            position: None,
            authority: Rc::clone(self.authority),
            in_flight: Rc::clone(self.in_flight),
            lease: None,
            paid: Vec::new(),
            is_stopped: false,
        }
    }
}
