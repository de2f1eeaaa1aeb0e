//! A request under rules of a fleet: paid from leases in hand, or held until the authority has
//! responded to it or to another request.
//!
//! Invariant: units that were taken for a request that does not continue are put back, once. A
//! request that may not wait is denied with 503, or counted by this node alone where its rules
//! configure that, and never allowed for that reason. Deliberately absent: holding and requesting
//! leases; that is `spending`'s; and how many may wait; that is `lease_waiters`'s.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Disposition, Paid, waiting::Full};
use tollgate_storage::{DirectAnswer, MAX_LEASE_SETS};

use crate::fleet::circuit_breaker::Availability;
use crate::fleet::lease_request::{KeyResult, UnsentLeaseRequest};
use crate::fleet::lease_waiters::{LeaseWait, WaitStage};
use crate::fleet::spending::{RequestedKey, SpendStatus, SpentLeases};
use crate::host::proxy::Proxy;
use crate::observability::metrics::{LeaseEvent, Wait};
use crate::request::held_request::{HeldRequest, Pending};
use crate::request::pending_response::PendingResponse;

/// The wait when no better time is known.
const DEFAULT_WAIT: Span = Span::from_secs(1);

impl<H: Proxy> HeldRequest<H> {
    /// The rules of this node allow the request at `now`: it takes the costs under those of the
    /// fleet.
    pub fn take_leases(self, now: Timestamp) -> Pending<H> {
        let availability = self.authority.availability(now);
        let mut held = self;
        let spent = held.policy.spend(&mut held.plan, availability == Availability::Available);
        held.begin_leasing(availability, spent, now)
    }

    /// The same with the result of an earlier attempt to take them, made at this `availability`.
    pub fn begin_leasing(
        mut self,
        availability: Availability,
        spent: (SpendStatus, SpentLeases),
        now: Timestamp,
    ) -> Pending<H> {
        let timeout = self.policy.lease_timeout();
        let deadline = now.saturating_add(timeout).saturating_add(timeout);
        self.lease = Some(LeaseWait { paid: Vec::new(), stage: None, deadline });
        self.apply_spending(availability, spent, now)
    }

    /// Its turn has come in the line of requests that wait for the lease requests of others.
    pub fn retry_leases(mut self, now: Timestamp) -> Pending<H> {
        if !self.host.enter(self.id) {
            self.abandon(); // its client has left
            return Pending::NOTHING;
        }
        let availability = self.authority.availability(now);
        let spent = self.policy.spend(&mut self.plan, availability == Availability::Available);
        self.apply_spending(availability, spent, now)
    }

    fn apply_spending(
        mut self,
        availability: Availability,
        (status, spent): (SpendStatus, SpentLeases),
        now: Timestamp,
    ) -> Pending<H> {
        match status {
            SpendStatus::Paid => {
                self.authority.prefetch(&self.policy, spent.prefetches, Some(self.id), now);
                if let Some(lease) = &mut self.lease {
                    lease.paid = spent.paid;
                }
                self.conclude(now)
            }
            SpendStatus::Request => self.request_leases(spent, now),
            SpendStatus::Denied => self.conclude(now),
            // The authority does not respond, or has not within the deadline.
            SpendStatus::Blocked if availability != Availability::Busy => {
                self.decide_locally(None, now)
            }
            SpendStatus::Wait(_) if self.is_late(now) => self.decide_locally(None, now),
            SpendStatus::Blocked if self.is_late(now) => self.deny_overloaded(None, now),
            SpendStatus::Blocked => self.wait_for_lease(WaitStage::SendSlot, now),
            SpendStatus::Wait(place) => self.wait_for_lease(WaitStage::KeyQueue(place), now),
        }
    }

    fn is_late(&self, now: Timestamp) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.deadline <= now)
    }

    fn request_leases(mut self, spent: SpentLeases, now: Timestamp) -> Pending<H> {
        if !fits(&spent.requests) {
            // A path that is read in several ways is under the rules of all of them.
            self.policy.put_back(&mut self.plan, spent);
            return self.deny_overloaded(None, now);
        }
        let SpentLeases { paid, requests, prefetches } = spent;
        if let Some(lease) = &mut self.lease {
            lease.paid = paid;
        }
        self.authority.prefetch(&self.policy, prefetches, Some(self.id), now);
        match self.authority.request(&self.policy, requests, self.id, now) {
            Ok(call) => self.wait_for_lease(WaitStage::Response(call), now),
            Err(UnsentLeaseRequest { keys, is_overloaded: true }) => self.wait_for_room(keys, now),
            Err(UnsentLeaseRequest { keys, is_overloaded: false }) => {
                self.authority.cancel(&self.policy, keys);
                self.authority.settle(now, &self.policy);
                self.decide_locally(None, now)
            }
        }
    }

    /// The cluster took no more: the request takes its turn when there is room, and its costs then.
    pub fn wait_for_room(mut self, keys: Vec<RequestedKey>, now: Timestamp) -> Pending<H> {
        self.authority.cancel(&self.policy, keys);
        self.authority.settle(now, &self.policy);
        if !self.host.enter(self.id) {
            self.abandon(); // its client has left
            return Pending::NOTHING;
        }
        let paid = self.lease.as_mut().map(|lease| core::mem::take(&mut lease.paid));
        self.return_units(paid.unwrap_or_default());
        let nothing = (SpendStatus::Blocked, SpentLeases::default());
        self.apply_spending(Availability::Busy, nothing, now)
    }

    /// Waits, if the request may.
    fn wait_for_lease(mut self, stage: WaitStage, now: Timestamp) -> Pending<H> {
        let (id, held) = (self.id, self.shrink());
        let waited = self.lease.as_ref().and_then(|lease| lease.stage);
        let bytes = waited.map_or(held, |(_, bytes)| bytes);
        let is_in = match waited {
            Some(_) => {
                self.authority.rejoin(stage, id);
                true
            }
            None => self.authority.begin(stage, id, bytes),
        };
        if !is_in {
            if let WaitStage::Response(call) = stage {
                self.authority.detach(call);
            }
            return self.deny_overloaded(None, now);
        }
        if let Some(lease) = &mut self.lease {
            lease.stage = Some((stage, bytes));
        }
        self.is_stopped = true;
        self.authority.settle(now, &self.policy);
        Pending::Waiting(Box::new(self))
    }

    /// The result of the lease request for this request.
    pub fn receive_results(
        mut self,
        keys: Vec<RequestedKey>,
        answers: Vec<KeyResult>,
    ) -> Pending<H> {
        let now = self.host.now().unwrap_or_default();
        let policy = std::rc::Rc::clone(&self.policy);
        let (mut worst, mut unanswered, mut heard) = (None, Vec::new(), Vec::new());
        for (key, answer) in keys.into_iter().zip(answers) {
            let (mut leased, mut direct) = (None, Vec::new());
            let failure = match answer {
                KeyResult::Decided(granted, reply) => {
                    leased = Some(granted);
                    let taken = self.apply_reply(&key, &reply);
                    let failure = taken.is_none().then_some(LeaseEvent::Failed);
                    direct = taken.unwrap_or_default();
                    failure
                }
                KeyResult::Failed => Some(LeaseEvent::Failed),
                KeyResult::Overloaded => Some(LeaseEvent::Overloaded),
            };
            if failure.is_some() {
                worst = worst.max(failure);
                unanswered.extend(key.partition);
            }
            heard.push((key, leased, direct));
        }
        // A denial is repeated with the numbers of every key.
        let is_denied = heard.iter().any(|(.., direct)| direct.iter().any(DirectAnswer::is_denial));
        for (key, leased, mut direct) in heard {
            direct.iter_mut().for_each(|answer| answer.is_of_denied = is_denied);
            let next = policy.record_results(&key, leased.as_deref(), &direct);
            self.authority.schedule_check(next, &policy, key);
        }
        if !self.host.enter(self.id) {
            self.abandon();
            return Pending::NOTHING;
        }
        match worst {
            Some(LeaseEvent::Overloaded) => self.deny_overloaded(Some(&unanswered), now),
            Some(_) => self.decide_locally(Some(&unanswered), now),
            None => self.conclude(now),
        }
    }

    /// Uses the reply for the decision of a partition. Returns the reply's results, or `None` if it
    /// is malformed.
    fn apply_reply(&mut self, key: &RequestedKey, reply: &[u8]) -> Option<Vec<DirectAnswer>> {
        let paid = self.lease.as_ref().map(|lease| &lease.paid[..]).unwrap_or_default();
        self.policy.take_reply(&mut self.plan, key, reply, paid)
    }

    /// The authority does not respond about these partitions, or about any: they are counted by
    /// this node alone, or `on_failure` decides.
    fn decide_locally(mut self, unanswered: Option<&[usize]>, now: Timestamp) -> Pending<H> {
        self.policy.count_locally(&mut self.plan, unanswered, now);
        self.conclude(now)
    }

    /// Too many lease requests are in flight: the request is counted by this node alone, or denied.
    fn deny_overloaded(mut self, unanswered: Option<&[usize]>, now: Timestamp) -> Pending<H> {
        self.policy.count_lease_event(LeaseEvent::Overloaded, 1);
        if !self.policy.count_locally(&mut self.plan, unanswered, now) {
            self.policy.waiting_mut(&mut self.plan).reject(Full::Worker(DEFAULT_WAIT));
        }
        self.conclude(now)
    }

    /// Every rule has decided.
    fn conclude(mut self, now: Timestamp) -> Pending<H> {
        let Some(lease) = self.lease.take() else { return self.resume() };
        if let Some((stage, bytes)) = lease.stage {
            self.authority.end(stage, self.id, bytes);
        }
        let waited = now.since(self.arrived_at);
        match self.policy.outcome(&self.plan).disposition_after(waited) {
            Disposition::Allow => {
                self.record_allowed(waited);
                if self.is_stopped {
                    return self.resume();
                }
                self.in_flight.begin(self.id, &self.policy, &self.plan, now);
                Pending::Response(PendingResponse::Fields(self.policy, self.plan))
            }
            Disposition::Delay(wait) => {
                self.is_stopped = true;
                self.paid = lease.paid;
                self.wait_until(now.saturating_add(wait), now)
            }
            Disposition::Retry(wait) => {
                self.refund(lease.paid, now);
                self.reject_waiting(Full::Late(wait), now)
            }
            Disposition::Deny { .. } => {
                self.refund(lease.paid, now);
                self.deny(waited)
            }
        }
    }

    /// Takes back the request's charges.
    fn refund(&mut self, paid: Vec<(usize, Paid)>, now: Timestamp) {
        self.return_units(paid);
        self.policy.take_back(&mut self.plan, now);
    }

    /// Puts units back into the leases that they were taken from.
    pub fn return_units(&mut self, paid: Vec<(usize, Paid)>) {
        self.policy.put_back(&mut self.plan, SpentLeases { paid, ..SpentLeases::default() });
    }

    /// Its client has left while the lease request was in flight.
    pub fn abandon_lease(mut self, lease: LeaseWait) {
        let now = self.host.now().unwrap_or_default();
        if let Some((stage, bytes)) = lease.stage {
            self.authority.end(stage, self.id, bytes);
        }
        self.refund(lease.paid, now);
        self.policy.count_wait(Wait::Left);
        self.authority.settle(now, &self.policy);
        self.policy.keep(self.plan);
    }
}

/// True where one message has room for the lease request, and for its response. Keys of one request
/// are not sent in parts, of which one might be charged and the other not.
fn fits(requests: &[RequestedKey]) -> bool {
    let rules = requests.iter().map(|request| request.key.rules.len());
    rules.fold(0_usize, usize::saturating_add) <= MAX_LEASE_SETS
}
