//! One node: a policy, its store, and the requests that wait, in virtual time.
//!
//! Invariant: the policy crate plans, loads, decides, commits and settles a request, in the order
//! of a surface; nothing here decides. The caller supplies the time. Once the buffers have grown,
//! nothing is allocated per request, except for requests that wait. Waiting requests are held as on
//! a surface, within the policy's limits.
//!
//! Deliberately absent: clients that leave while they wait, and varying response times: the origin
//! responds at once, or always after the same time.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Due, Queue, Ticket, Turn};
use tollgate_policy::{Facts, LoneQuota, Partition, Plan, Policy, RequestInFlight, Rule};

use crate::simulator::node_decision::{Arrival, Fate, NodeDecision, OriginResponse};
use crate::simulator::store::{CountPlace, Place, Store};
use crate::simulator::tenants::Tenants;

/// A policy in force, in virtual time.
#[derive(Debug)]
pub struct Node {
    pub(crate) policy: Arc<Policy>,
    pub(crate) lone: Option<LoneQuota>,
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) store: Store,
    pub(crate) plan: Plan,
    /// The places of the partitions of `plan`.
    pub(crate) places: Vec<Place>,
    pub(crate) queue: Queue<Line, Waiter>,
    pub(crate) spare: Vec<Plan>,
    /// The request of `plan` was sent on and its response is still to be settled.
    pub(crate) unsettled: Option<UnsettledResponse>,
    /// How long the origin takes for a response.
    latency: Span,
    /// Requests that were sent on and whose responses have not come, the oldest first.
    responses: VecDeque<PendingResponse>,
    /// A rule limits requests in flight.
    limits_in_flight: bool,
    /// Requests in flight that rules count, by the time at which each is confirmed or ends, and a
    /// number.
    in_flight: BTreeMap<(Timestamp, u64), InFlight>,
    /// How many of them there were.
    sent_on: u64,
    /// The request that was decided last, when it waits: its plan is in the queue.
    pub(crate) seated: Option<Ticket>,
    pub(crate) asked: u64,
}

/// Identifies a queue: the rule or tier with its quotas, and the hash of the key.
pub(crate) type Line = (u32, u128);

/// The remaining work for the request that was decided last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsettledResponse {
    pub(crate) origin: OriginResponse,
    pub(crate) at: Timestamp,
}

/// A response that is on its way, and the plan that it settles.
#[derive(Debug)]
struct PendingResponse {
    plan: Plan,
    response: UnsettledResponse,
}

/// A request in flight, and when it ends.
#[derive(Debug)]
struct InFlight {
    request: RequestInFlight,
    ends_at: Timestamp,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) plan: Plan,
    pub(crate) arrival: Arrival,
    /// The queue that it waits in; `None` when it has its place.
    pub(crate) turn: Option<Turn>,
}

impl Node {
    /// A node that has received no request.
    #[must_use]
    pub fn new(policy: Arc<Policy>, store: Store) -> Self {
        let queue = Queue::new(policy.waiting());
        Self {
            lone: LoneQuota::of(&policy),
            limits_in_flight: policy.rules().iter().any(Rule::limits_requests_in_flight),
            tenants: Arc::default(),
            policy,
            store,
            plan: Plan::new(),
            places: Vec::new(),
            queue,
            spare: Vec::new(),
            unsettled: None,
            latency: Span::ZERO,
            responses: VecDeque::new(),
            in_flight: BTreeMap::new(),
            sent_on: 0,
            seated: None,
            asked: 0,
        }
    }

    /// The same, with an origin that takes this time for each response.
    #[must_use]
    pub fn with_latency(mut self, latency: Span) -> Self {
        self.latency = latency;
        self
    }

    /// From now on decides with these tenant entries, which are compiled under its policy.
    pub fn set_tenants(&mut self, tenants: Arc<Tenants>) {
        self.tenants = tenants;
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The store, with everything that was decided so far and the effects of the responses.
    pub fn store(&mut self) -> &Store {
        self.settle(Timestamp::MAX);
        &self.store
    }

    /// The store, without the effects of the response to the last request.
    pub(crate) const fn stored(&self) -> &Store {
        &self.store
    }

    /// Requests that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// When [`Node::resume`] may next return a request.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        let turn_at = self.queue.next_at()?;
        if !self.limits_in_flight {
            return Some(turn_at);
        }
        // The end of a request in flight may free a place that another one waits for.
        let counted = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let sent_on = self.unsettled.as_ref().map(|response| self.ends_at(response));
        [turn_at].into_iter().chain(counted).chain(sent_on).min()
    }

    /// When a request that is sent on ends.
    fn ends_at(&self, UnsettledResponse { origin, at }: &UnsettledResponse) -> Timestamp {
        at.saturating_add(origin.duration.unwrap_or(self.latency))
    }

    /// Decides a request that comes at `now`; if it is sent on, the origin sends `response`.
    ///
    /// Waiting requests whose turn came before `now` go first: call [`Node::resume`] until it
    /// returns none, or their decisions are not reported.
    pub fn decide(
        &mut self,
        facts: &impl Facts,
        now: Timestamp,
        response: impl Into<OriginResponse>,
    ) -> NodeDecision<'_> {
        while self.resume(now).is_some() {}
        self.settle(now);
        self.seated = None;
        let arrival = Arrival { number: self.asked, at: now, response: response.into() };
        self.asked = self.asked.saturating_add(1);
        self.tenants.plan(&self.policy, facts, now, &mut self.plan);
        if self.queue.next_at().is_some() {
            self.locate();
            if let Some(turn) = self.line_ahead() {
                let fate = self.follow(arrival, turn);
                return self.decided(arrival, fate, now);
            }
        }
        self.commit(now);
        let fate = self.after(arrival, now);
        self.decided(arrival, fate, now)
    }

    /// Where the count is whose client's request was decided last, for [`Node::admit`]. `None`
    /// where more than the client decides about a request, or nothing was charged to it yet.
    #[must_use]
    pub fn known(&self) -> Option<CountPlace> {
        let is_alone = self.lone.is_some() && self.plan.len() == 1;
        self.places.first().filter(|_| is_alone).and_then(|place| Store::known(*place))
    }

    /// Decides another request of a client that is [known](Node::known), in a tenth of the time:
    /// true when it is sent on, as [`Node::decide`] would decide. False, with nothing done, when it
    /// may not be, or when its count was removed: then call [`Node::decide`] instead.
    #[inline]
    pub fn admit(&mut self, known: CountPlace, now: Timestamp) -> bool {
        let Self { lone: Some(lone), store, asked, .. } = self else { return false };
        let value = store.value_mut(lone.group, known);
        let admits = value.is_some_and(|value| lone.admit(value, now));
        *asked = asked.saturating_add(u64::from(admits));
        admits
    }

    /// True when the count of this client is still in the same place.
    #[inline]
    #[must_use]
    pub fn holds(&self, known: CountPlace) -> bool {
        self.lone.as_ref().is_some_and(|lone| self.store.holds(lone.group, known))
    }

    /// The quota that decides alone, where there is one.
    #[must_use]
    pub const fn lone(&self) -> Option<&LoneQuota> {
        self.lone.as_ref()
    }

    /// The next waiting request whose turn came until `until`: it was sent on, or denied.
    pub fn resume(&mut self, until: Timestamp) -> Option<NodeDecision<'_>> {
        loop {
            let now = self.next_at().filter(|at| *at <= until)?;
            self.settle(now);
            self.seated = None;
            let Some(due) = self.queue.pop(now) else { continue };
            let popped = match due {
                Due::Unused => None,
                Due::Go(waiter) => {
                    // It was reported when it got its place.
                    self.sit_down(waiter.plan);
                    self.unsettled =
                        Some(UnsettledResponse { origin: waiter.arrival.response, at: now });
                    None
                }
                Due::Over(waiter, full) => {
                    self.sit_down(waiter.plan);
                    self.locate();
                    Some((waiter.arrival, self.reject(full, now)))
                }
                Due::Decide(ticket) => self.take_turn(ticket, now),
            };
            if let Some((arrival, fate)) = popped {
                return Some(self.decided(arrival, fate, now));
            }
        }
    }

    /// Charges or refunds according to the responses that came until `now`.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        let sent_on = self.unsettled.take();
        if let Some(response) = &sent_on {
            self.begin_in_flight(response);
        }
        let is_deferred = self.plan.settlement(&self.policy).is_deferred();
        if let Some(response) = sent_on.filter(|_| is_deferred) {
            if self.latency == Span::ZERO {
                self.respond(response);
            } else {
                let at = response.at.saturating_add(self.latency);
                let response = UnsettledResponse { at, ..response };
                let plan = mem::replace(&mut self.plan, self.spare.pop().unwrap_or_default());
                self.responses.push_back(PendingResponse { plan, response });
            }
        }
        while let Some(next) = self.responses.pop_front_if(|next| next.response.at <= now) {
            self.sit_down(next.plan);
            self.respond(next.response);
        }
        while let Some(next) = self.in_flight.first_entry().filter(|next| next.key().0 <= now) {
            let ((at, number), next) = next.remove_entry();
            self.follow_in_flight(at, number, next);
        }
    }

    /// The request of `plan` is sent on, and counts until its end.
    fn begin_in_flight(&mut self, response: &UnsettledResponse) {
        let Some(request) = self.plan.in_flight(&self.policy) else { return };
        let ends_at = self.ends_at(response);
        self.sent_on = self.sent_on.saturating_add(1);
        self.keep_in_flight(InFlight { request, ends_at }, self.sent_on, response.at);
    }

    /// The time of a request in flight has come: it ends, or is confirmed.
    fn follow_in_flight(&mut self, at: Timestamp, number: u64, mut next: InFlight) {
        let has_ended = next.ends_at <= at;
        let counts = if has_ended { next.request.release() } else { next.request.confirm() };
        if counts {
            mem::swap(&mut self.plan, next.request.plan_mut());
            self.commit(at);
            mem::swap(&mut self.plan, next.request.plan_mut());
        }
        if has_ended && counts {
            for turn in Turn::freed_by(&self.policy, &next.request) {
                let line = (turn.record, self.places.get(turn.partition).map_or(0, |it| it.key));
                let _ = self.queue.place_freed(&line, at);
            }
        }
        if !has_ended {
            next.request.confirmed(&self.policy);
            self.keep_in_flight(next, number, at);
        }
    }

    fn keep_in_flight(&mut self, next: InFlight, number: u64, at: Timestamp) {
        if let Some(after) = next.request.confirm_after(&self.policy) {
            let due_at = at.saturating_add(after).min(next.ends_at);
            self.in_flight.insert((due_at, number), next);
        }
    }

    fn respond(&mut self, UnsettledResponse { origin, at }: UnsettledResponse) {
        if self.plan.settle(&self.policy, origin.ending(), &origin) {
            self.commit(at);
        }
    }

    /// Loads, decides and stores.
    pub(crate) fn commit(&mut self, now: Timestamp) {
        self.load();
        self.plan.decide(&self.policy, now);
        self.put_changed(now);
    }

    /// Stores the values that a decision changed.
    pub(crate) fn put_changed(&mut self, now: Timestamp) {
        let Self { policy, store, plan, places, .. } = self;
        for partition in plan.partitions().filter(Partition::changed) {
            if let Some(place) = places.get_mut(partition.index()) {
                store.put(policy, partition, place, now);
            }
        }
    }

    pub(crate) fn load(&mut self) {
        let Self { policy, store, plan, places, .. } = self;
        places.resize(plan.len(), Place::default());
        plan.each_partition(|partition| {
            if let Some(place) = places.get_mut(partition.view().index()) {
                *place = store.load(policy, partition);
            }
        });
    }

    pub(crate) fn decided(
        &mut self,
        arrival: Arrival,
        fate: Fate,
        at: Timestamp,
    ) -> NodeDecision<'_> {
        let Self { policy, plan, places, queue, seated, .. } = self;
        let waiting = seated.and_then(|ticket| queue.value_mut(ticket)).map(|waiter| &waiter.plan);
        NodeDecision { policy, plan: waiting.unwrap_or(plan), places, fate, arrival, at }
    }
}
