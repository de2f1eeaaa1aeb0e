//! One node: a policy, its store, and the requests that wait, in virtual time.
//!
//! Invariant: a request is planned, loaded, decided, committed and settled by the policy crate, in
//! the order of a surface; nothing here decides. Time is what the caller says it is. Nothing is
//! allocated for a request once the buffers have grown, but for those that wait. What waits is held
//! as a surface holds it, within the policy's limits.
//!
//! Deliberately absent: clients that leave while they wait, and responses that take their time: the
//! origin answers at once.

use std::mem;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Due, Full, Queue, Seat, Ticket, Turn};
use tollgate_policy::{Answer, Facts, LoneQuota, Partition, Plan, Policy};

use crate::decided::{Arrival, Decided, Fate};
use crate::store::{Known, Place, Store};

/// Plans that are kept for other requests that wait.
const SPARE_PLANS: usize = 32;

/// A policy in force, in virtual time.
#[derive(Debug)]
pub struct Node {
    policy: Arc<Policy>,
    lone: Option<LoneQuota>,
    store: Store,
    plan: Plan,
    /// Where the partitions of `plan` lie.
    places: Vec<Place>,
    queue: Queue<Line, Waiter>,
    spare: Vec<Plan>,
    /// The request of `plan` went on and its response is still to be settled.
    unsettled: Option<Unsettled>,
    /// The request that was decided last waits: its plan is in the queue.
    seated: Option<Ticket>,
    asked: u64,
}

/// Whose line it is: the rule or tier with its quotas, and the hash of the key.
type Line = (u32, u128);

/// What is still to be done about the request that was decided last.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    status: u16,
    at: Timestamp,
}

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    plan: Plan,
    arrival: Arrival,
    /// The line that it stands in; `None` when it has its place.
    turn: Option<Turn>,
}

impl Node {
    /// A node at which nobody has asked.
    #[must_use]
    pub fn new(policy: Arc<Policy>, store: Store) -> Self {
        let queue = Queue::new(policy.waiting());
        Self {
            lone: policy.lone_quota(),
            policy,
            store,
            plan: Plan::new(),
            places: Vec::new(),
            queue,
            spare: Vec::new(),
            unsettled: None,
            seated: None,
            asked: 0,
        }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The store, with everything that was decided so far in it.
    pub fn store(&mut self) -> &Store {
        self.settle();
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
        self.settle();
        self.seated = None;
        let arrival = Arrival { number: self.asked, at: now, status };
        self.asked = self.asked.saturating_add(1);
        self.policy.plan(facts, &mut self.plan);
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

    /// The quota that alone decides, where there is one.
    #[must_use]
    pub const fn lone(&self) -> Option<&LoneQuota> {
        self.lone.as_ref()
    }

    /// The next request that waited and whose turn came until `until`: it went on, or was refused.
    pub fn resume(&mut self, until: Timestamp) -> Option<Decided<'_>> {
        loop {
            let now = self.queue.next_at().filter(|at| *at <= until)?;
            self.settle();
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

    /// What becomes of the request of `plan`, which was decided.
    fn after(&mut self, arrival: Arrival, now: Timestamp) -> Fate {
        let waited = now.since(arrival.at);
        let outcome = self.plan.outcome(&self.policy);
        match outcome.answer_after(waited) {
            Answer::Pass => {
                self.unsettled = Some(Unsettled { status: arrival.status, at: now });
                Fate::Admitted
            }
            Answer::Delay(wait) => self.hold(arrival, wait, now),
            Answer::Retry(wait) => match outcome.turn() {
                Some(turn) => self.stand(arrival, turn, now),
                None => self.reject(Full::Late(wait), now),
            },
            Answer::Refuse { status } => {
                Fate::Denied { status, retry_after: outcome.retry_after() }
            }
        }
    }

    /// The first line of others that the request of `plan` has to stand in.
    fn line_ahead(&self) -> Option<Turn> {
        let mut turns = self.plan.turns(&self.policy);
        turns.find(|turn| self.queue.has_line(&self.line(turn)))
    }

    /// Stands behind others, unless a rule refuses it.
    fn follow(&mut self, arrival: Arrival, turn: Turn) -> Fate {
        let now = arrival.at;
        self.load();
        self.plan.look(&self.policy, now);
        let outcome = self.plan.outcome(&self.policy);
        match outcome.answer() {
            Answer::Refuse { status } => {
                Fate::Denied { status, retry_after: outcome.retry_after() }
            }
            Answer::Pass | Answer::Delay(_) | Answer::Retry(_) => self.stand(arrival, turn, now),
        }
    }

    /// Stands in the line of `turn` until its turn comes, if it may.
    fn stand(&mut self, arrival: Arrival, turn: Turn, now: Timestamp) -> Fate {
        let pace = self.plan.pace(&self.policy, &turn, now);
        let waiter = self.stand_up(arrival, Some(turn));
        let seat = self.seat(&waiter, &turn);
        match self.queue.join(now, seat, pace, waiter) {
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
        let place = self.plan.place(&self.policy);
        let line = place.map(|place| (self.line(&place), place.cost));
        let waiter = self.stand_up(arrival, None);
        let bytes = waiter.bytes();
        match self.queue.hold(now, line, at, bytes, waiter) {
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

    /// The turn of a waiter has come: it goes on, is refused, or waits on.
    fn take_turn(&mut self, ticket: Ticket, now: Timestamp) -> Option<(Arrival, Fate)> {
        let waiter = self.queue.value_mut(ticket)?;
        let (arrival, turn) = (waiter.arrival, waiter.turn?);
        mem::swap(&mut self.plan, &mut waiter.plan);
        self.commit(now);
        let outcome = self.plan.outcome(&self.policy);
        let answer = outcome.answer_after(now.since(arrival.at));
        // It may be another rule that holds it up now: then it goes over to that line.
        if let (Answer::Retry(_), Some(next)) = (answer, outcome.turn())
            && let Some(pace) = self.plan.pace(&self.policy, &next, now)
        {
            let waiter = self.stand_up(arrival, Some(next));
            let seat = self.seat(&waiter, &next);
            if let Some(seated) = self.queue.value_mut(ticket) {
                let spare = mem::replace(seated, waiter).plan;
                self.keep(spare);
            }
            let (full, waiter) = self.queue.again(ticket, now, seat, pace).err()??;
            self.sit_down(waiter.plan);
            return Some((arrival, self.reject(full, now)));
        }
        let pace = self.plan.pace(&self.policy, &turn, now);
        if let Some(waiter) = self.queue.done(ticket, now, pace) {
            self.keep(waiter.plan);
        }
        Some((arrival, self.after(arrival, now)))
    }

    /// Refuses the request of `plan`, which may not wait, and gives back what it was charged.
    fn reject(&mut self, full: Full, now: Timestamp) -> Fate {
        let Self { policy, store, plan, places, .. } = self;
        plan.reject_waiting(policy, full);
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
        let status = match outcome.answer() {
            Answer::Refuse { status } => status,
            Answer::Pass | Answer::Delay(_) | Answer::Retry(_) => 503,
        };
        Fate::Denied { status, retry_after: outcome.retry_after() }
    }

    /// Charges, or gives back, what the response of the last request brings about.
    fn settle(&mut self) {
        let Some(Unsettled { status, at }) = self.unsettled.take() else { return };
        if self.plan.is_deferred() && self.plan.settle(&self.policy, Some(status)) {
            self.commit(at);
        }
    }

    /// Loads, decides and stores.
    fn commit(&mut self, now: Timestamp) {
        self.load();
        let Self { policy, store, plan, places, .. } = self;
        plan.decide(policy, now);
        for partition in plan.partitions().filter(Partition::changed) {
            if let Some(place) = places.get_mut(partition.index()) {
                store.put(policy, partition, place, now);
            }
        }
    }

    fn load(&mut self) {
        let Self { policy, store, plan, places, .. } = self;
        places.resize(plan.len(), Place::default());
        plan.each_partition(|partition| {
            if let Some(place) = places.get_mut(partition.view().index()) {
                *place = store.load(policy, partition);
            }
        });
    }

    /// Notes whose the partitions are, and loads nothing.
    fn locate(&mut self) {
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

    fn seat(&self, waiter: &Waiter, turn: &Turn) -> Seat<Line> {
        let deadline = waiter.arrival.at.saturating_add(turn.max);
        Seat { key: self.line(turn), cost: turn.cost, deadline, bytes: waiter.bytes() }
    }

    /// The request of `plan` as it waits; there is another plan for the next one.
    fn stand_up(&mut self, arrival: Arrival, turn: Option<Turn>) -> Waiter {
        let mut plan = mem::replace(&mut self.plan, self.spare.pop().unwrap_or_default());
        plan.shrink();
        Waiter { plan, arrival, turn }
    }

    /// The plan of a request that waits no longer is the one to go on with.
    fn sit_down(&mut self, plan: Plan) {
        let spare = mem::replace(&mut self.plan, plan);
        self.keep(spare);
    }

    fn keep(&mut self, plan: Plan) {
        if self.spare.len() < SPARE_PLANS {
            self.spare.push(plan);
        }
    }

    fn decided(&mut self, arrival: Arrival, fate: Fate, at: Timestamp) -> Decided<'_> {
        let Self { policy, plan, places, queue, seated, .. } = self;
        let waiting = seated.and_then(|ticket| queue.value_mut(ticket)).map(|waiter| &waiter.plan);
        Decided { policy, plan: waiting.unwrap_or(plan), places, fate, arrival, at }
    }
}

impl Waiter {
    /// What it is counted with.
    fn bytes(&self) -> usize {
        self.plan.held_bytes().saturating_add(size_of::<Self>())
    }
}
