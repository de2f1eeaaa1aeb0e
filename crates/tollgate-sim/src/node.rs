//! One node: a policy, its store, and the requests that wait, in virtual time.
//!
//! Invariant: a request is planned, loaded, decided, committed and settled by the policy crate, in
//! the order of a surface; nothing here decides. Time is what the caller says it is. Nothing is
//! allocated for a request once the buffers have grown, but for those that wait. What waits is held
//! as a surface holds it, within the policy's limits.
//!
//! Deliberately absent: clients that leave while they wait, and responses that take different
//! times: the origin answers at once, or always after the same time.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Due, Full, Queue, Ticket, Turn};
use tollgate_policy::{Facts, LoneQuota, Partition, Plan, Policy};

use crate::decided::{Arrival, Decided, Fate};
use crate::store::{Known, Place, Store};
use crate::tenants::Tenants;

/// A policy in force, in virtual time.
#[derive(Debug)]
pub struct Node {
    pub(crate) policy: Arc<Policy>,
    pub(crate) lone: Option<LoneQuota>,
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) store: Store,
    pub(crate) plan: Plan,
    /// Where the partitions of `plan` lie.
    pub(crate) places: Vec<Place>,
    pub(crate) queue: Queue<Line, Waiter>,
    pub(crate) spare: Vec<Plan>,
    /// The request of `plan` went on and its response is still to be settled.
    pub(crate) unsettled: Option<Unsettled>,
    /// How long the origin takes for a response.
    latency: Span,
    /// Requests that went on earlier and whose responses have not come, the oldest first.
    responses: VecDeque<PendingResponse>,
    /// The request that was decided last waits: its plan is in the queue.
    pub(crate) seated: Option<Ticket>,
    pub(crate) asked: u64,
}

/// Whose line it is: the rule or tier with its quotas, and the hash of the key.
pub(crate) type Line = (u32, u128);

/// What is still to be done about the request that was decided last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsettled {
    pub(crate) status: u16,
    pub(crate) at: Timestamp,
}

/// A response that is on its way, and the plan that it settles.
#[derive(Debug)]
struct PendingResponse {
    plan: Plan,
    response: Unsettled,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) plan: Plan,
    pub(crate) arrival: Arrival,
    /// The line that it stands in; `None` when it has its place.
    pub(crate) turn: Option<Turn>,
}

impl Node {
    /// A node at which nobody has asked.
    #[must_use]
    pub fn new(policy: Arc<Policy>, store: Store) -> Self {
        let queue = Queue::new(policy.waiting());
        Self {
            lone: policy.lone_quota(),
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
            seated: None,
            asked: 0,
        }
    }

    /// The same before an origin that takes so long for each response.
    #[must_use]
    pub fn with_latency(mut self, latency: Span) -> Self {
        self.latency = latency;
        self
    }

    /// Knows these entries of tenants from now on, which are compiled under its policy.
    pub fn know_tenants(&mut self, tenants: Arc<Tenants>) {
        self.tenants = tenants;
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The store, with everything in it that was decided so far, and what the responses bring
    /// about.
    pub fn store(&mut self) -> &Store {
        self.settle(Timestamp::MAX);
        &self.store
    }

    /// The store, without what the response to the last request still brings about.
    pub(crate) const fn stored(&self) -> &Store {
        &self.store
    }

    /// Requests that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// When [`Node::resume`] has something to tell next.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        self.queue.next_at()
    }

    /// Decides a request that comes at `now`; the origin answers it with `status` if it goes on.
    ///
    /// Those who waited and whose turn came before `now` go first: ask [`Node::resume`] about them
    /// until there are none, or they go unheard.
    pub fn decide(&mut self, facts: &impl Facts, now: Timestamp, status: u16) -> Decided<'_> {
        while self.resume(now).is_some() {}
        self.settle(now);
        self.seated = None;
        let arrival = Arrival { number: self.asked, at: now, status };
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

    /// Where the count of the client lies whose request was decided last, for [`Node::admit`].
    /// `None` where more than the client decides about a request, or nothing was charged to it yet.
    #[must_use]
    pub fn known(&self) -> Option<Known> {
        let is_alone = self.lone.is_some() && self.plan.len() == 1;
        self.places.first().filter(|_| is_alone).and_then(|place| Store::known(*place))
    }

    /// Decides another request of a client that is [known](Node::known), in a tenth of the time:
    /// true when it goes on, as [`Node::decide`] would have said. False, with nothing done, when it
    /// may not, or when its count was forgotten: then ask that about it.
    #[inline]
    pub fn admit(&mut self, known: Known, now: Timestamp) -> bool {
        let Self { lone: Some(lone), store, asked, .. } = self else { return false };
        let value = store.value_mut(lone.group, known);
        let admits = value.is_some_and(|value| lone.admit(value, now));
        *asked = asked.saturating_add(u64::from(admits));
        admits
    }

    /// True when the count of this client lies where it was.
    #[inline]
    #[must_use]
    pub fn holds(&self, known: Known) -> bool {
        self.lone.as_ref().is_some_and(|lone| self.store.holds(lone.group, known))
    }

    /// The quota that alone decides, where there is one.
    #[must_use]
    pub const fn lone(&self) -> Option<&LoneQuota> {
        self.lone.as_ref()
    }

    /// The next request that waited and whose turn came until `until`: it went on, or was refused.
    pub fn resume(&mut self, until: Timestamp) -> Option<Decided<'_>> {
        loop {
            let now = self.queue.next_at().filter(|at| *at <= until)?;
            self.settle(now);
            self.seated = None;
            let told = match self.queue.pop(now)? {
                Due::Unused => None,
                Due::Go(waiter) => {
                    // It was told of when it got its place.
                    self.sit_down(waiter.plan);
                    self.unsettled = Some(Unsettled { status: waiter.arrival.status, at: now });
                    None
                }
                Due::Over(waiter, wait) => {
                    self.sit_down(waiter.plan);
                    self.locate();
                    Some((waiter.arrival, self.reject(Full::Late(wait), now)))
                }
                Due::Decide(ticket) => self.take_turn(ticket, now),
            };
            if let Some((arrival, fate)) = told {
                return Some(self.decided(arrival, fate, now));
            }
        }
    }

    /// Charges, or gives back, what the responses bring about that came until `now`.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        if let Some(response) = self.unsettled.take().filter(|_| self.plan.is_deferred()) {
            if self.latency == Span::ZERO {
                self.respond(response);
            } else {
                let at = response.at.saturating_add(self.latency);
                let response = Unsettled { at, ..response };
                let plan = mem::replace(&mut self.plan, self.spare.pop().unwrap_or_default());
                self.responses.push_back(PendingResponse { plan, response });
            }
        }
        while let Some(next) = self.responses.pop_front_if(|next| next.response.at <= now) {
            self.sit_down(next.plan);
            self.respond(next.response);
        }
    }

    fn respond(&mut self, Unsettled { status, at }: Unsettled) {
        if self.plan.settle(&self.policy, Some(status)) {
            self.commit(at);
        }
    }

    /// Loads, decides and stores.
    pub(crate) fn commit(&mut self, now: Timestamp) {
        self.load();
        let Self { policy, store, plan, places, .. } = self;
        plan.decide(policy, now);
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

    pub(crate) fn decided(&mut self, arrival: Arrival, fate: Fate, at: Timestamp) -> Decided<'_> {
        let Self { policy, plan, places, queue, seated, .. } = self;
        let waiting = seated.and_then(|ticket| queue.value_mut(ticket)).map(|waiter| &waiter.plan);
        Decided { policy, plan: waiting.unwrap_or(plan), places, fate, arrival, at }
    }
}
