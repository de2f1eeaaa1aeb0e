//! The requests that a node holds: in queues, waiting for places, at their turn, or being denied.
//!
//! Invariant: the policy's queue determines the order and the limits. The node holds the plan, not
//! the request. As on a surface, a request that must wait joins a queue undecided, and is decided
//! again when its turn comes.

use std::mem;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, PlaceRequest, Ticket, Turn, TurnRequest};
use tollgate_policy::{Disposition, Plan};

use crate::simulator::node::{Line, Node, UnsettledResponse, Waiter};
use crate::simulator::node_decision::{Arrival, Fate};
use crate::simulator::store::Place;

/// Plans that are kept for other requests that wait.
const SPARE_PLANS: usize = 32;

impl Node {
    /// The fate of the decided request of `plan`.
    pub(crate) fn after(&mut self, arrival: Arrival, now: Timestamp) -> Fate {
        let waited = now.since(arrival.at);
        let outcome = self.plan.outcome(&self.policy);
        match outcome.disposition_after(waited) {
            Disposition::Allow => {
                self.unsettled = Some(UnsettledResponse { origin: arrival.response, at: now });
                Fate::Admitted
            }
            Disposition::Delay(wait) => self.hold(arrival, wait, now),
            Disposition::Retry(wait) => match outcome.turn() {
                Some(turn) => self.enqueue(arrival, turn, now),
                None => self.reject(Full::Late(wait), now),
            },
            Disposition::Deny { status } => {
                Fate::Denied { status, retry_after: outcome.retry_after() }
            }
        }
    }

    /// The first queue of other requests that the request of `plan` has to join.
    pub(crate) fn line_ahead(&self) -> Option<Turn> {
        let mut turns = self.plan.waiting(&self.policy).turns();
        turns.find(|turn| self.queue.has_line(&self.line(turn)))
    }

    /// Queues behind other requests, unless a rule denies it.
    pub(crate) fn follow(&mut self, arrival: Arrival, turn: Turn) -> Fate {
        let now = arrival.at;
        self.load();
        self.plan.waiting_mut(&self.policy).look(now);
        self.put_changed(now);
        let outcome = self.plan.outcome(&self.policy);
        match outcome.disposition() {
            Disposition::Deny { status } => {
                Fate::Denied { status, retry_after: outcome.retry_after() }
            }
            Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_) => {
                self.enqueue(arrival, turn, now)
            }
        }
    }

    /// Joins the queue of `turn` until its turn comes, if it may.
    fn enqueue(&mut self, arrival: Arrival, turn: Turn, now: Timestamp) -> Fate {
        let pace = self.plan.waiting(&self.policy).pace(&turn, now);
        let mut waiter = self.stand_up(arrival, Some(turn));
        let turn_request = self.turn_request(&mut waiter, &turn);
        match self.queue.join(now, turn_request, pace, waiter) {
            Ok(ticket) => {
                self.seated = Some(ticket);
                Fate::Waiting
            }
            Err((full, waiter)) => {
                self.sit_down(waiter.plan);
                self.reject(full, now)
            }
        }
    }

    /// Waits for the place that a `leaky-queue` has given it, if it may.
    fn hold(&mut self, arrival: Arrival, wait: Span, now: Timestamp) -> Fate {
        let at = now.saturating_add(wait);
        let place = self.plan.waiting(&self.policy).place();
        let line = place.map(|place| (self.line(&place), place.cost));
        let mut waiter = self.stand_up(arrival, None);
        let max = place.map_or(Span::MAX, |place| place.max);
        let place_request = PlaceRequest {
            line,
            deadline: arrival.at.saturating_add(max),
            rank: place.map_or(0, |place| place.rank),
            bytes: waiter.shrink(),
        };
        match self.queue.hold(now, place_request, at, waiter) {
            Ok(ticket) => {
                self.seated = Some(ticket);
                Fate::Delayed(at.since(arrival.at))
            }
            Err((full, waiter)) => {
                self.sit_down(waiter.plan);
                self.reject(full, now)
            }
        }
    }

    /// The turn of a waiting request has come: it is sent on, is denied, or keeps waiting.
    pub(crate) fn take_turn(&mut self, ticket: Ticket, now: Timestamp) -> Option<(Arrival, Fate)> {
        let waiter = self.queue.value_mut(ticket)?;
        let (arrival, turn) = (waiter.arrival, waiter.turn?);
        mem::swap(&mut self.plan, &mut waiter.plan);
        self.commit(now);
        let outcome = self.plan.outcome(&self.policy);
        let disposition = outcome.disposition_after(now.since(arrival.at));
        // Another rule may delay it now: then it moves to that queue.
        if let (Disposition::Retry(_), Some(next)) = (disposition, outcome.turn())
            && let Some(pace) = self.plan.waiting(&self.policy).pace(&next, now)
        {
            let mut waiter = self.stand_up(arrival, Some(next));
            let turn_request = self.turn_request(&mut waiter, &next);
            if let Some(seated) = self.queue.value_mut(ticket) {
                let spare = mem::replace(seated, waiter).plan;
                self.keep(spare);
            }
            let (full, waiter) = self.queue.again(ticket, now, turn_request, pace).err()??;
            self.sit_down(waiter.plan);
            return Some((arrival, self.reject(full, now)));
        }
        let pace = self.plan.waiting(&self.policy).pace(&turn, now);
        if let Some(waiter) = self.queue.done(ticket, now, pace) {
            self.keep(waiter.plan);
        }
        Some((arrival, self.after(arrival, now)))
    }

    /// Denies the request of `plan`, which may not wait, and refunds its charges.
    pub(crate) fn reject(&mut self, full: Full, now: Timestamp) -> Fate {
        let Self { policy, store, plan, places, .. } = self;
        plan.waiting_mut(policy).reject(full);
        plan.each_partition(|partition| {
            if !partition.view().changed() {
                return;
            }
            let mut place = store.load(policy, partition);
            partition.refund(policy, now);
            store.put(policy, partition.view(), &mut place, now);
            partition.refunded(policy, now);
            if let Some(known) = places.get_mut(partition.view().index()) {
                *known = place;
            }
        });
        let outcome = plan.outcome(policy);
        let status = match outcome.disposition() {
            Disposition::Deny { status } => status,
            Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_) => 503,
        };
        Fate::Denied { status, retry_after: outcome.retry_after() }
    }

    /// Determines the places of the partitions, and loads nothing.
    pub(crate) fn locate(&mut self) {
        let Self { store, plan, places, .. } = self;
        places.resize(plan.len(), Place::default());
        for partition in plan.partitions() {
            if let Some(place) = places.get_mut(partition.index()) {
                *place = store.place(partition.key());
            }
        }
    }

    fn line(&self, turn: &Turn) -> Line {
        (turn.record, self.places.get(turn.partition).map_or(0, |place| place.key))
    }

    fn turn_request(&self, waiter: &mut Waiter, turn: &Turn) -> TurnRequest<Line> {
        let deadline = waiter.arrival.at.saturating_add(turn.max);
        let Turn { cost, rank, .. } = *turn;
        TurnRequest { key: self.line(turn), cost, deadline, rank, bytes: waiter.shrink() }
    }

    /// The request of `plan` as a waiting one; another plan takes the next request.
    fn stand_up(&mut self, arrival: Arrival, turn: Option<Turn>) -> Waiter {
        let plan = mem::replace(&mut self.plan, self.spare.pop().unwrap_or_default());
        Waiter { plan, arrival, turn }
    }

    /// Makes the plan of a request that no longer waits the current one.
    pub(crate) fn sit_down(&mut self, plan: Plan) {
        let spare = mem::replace(&mut self.plan, plan);
        self.keep(spare);
    }

    fn keep(&mut self, plan: Plan) {
        if self.spare.len() < SPARE_PLANS {
            self.spare.push(plan);
        }
    }
}

impl Waiter {
    /// Makes it small; returns its size as counted against the limits.
    fn shrink(&mut self) -> usize {
        self.plan.memory().shrink().saturating_add(size_of::<Self>())
    }
}
