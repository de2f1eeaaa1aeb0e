//! A request under rules of a fleet: paid from leases in hand, or held until the authority has
//! responded to it or to another request.
//!
//! Invariant: units that were taken for a request that does not continue are put back, once. A
//! request that may not wait is denied with 503, or counted by this node alone where its rules
//! configure that, and never allowed for that reason. Deliberately absent: holding and requesting
//! leases; that is `spending`'s; and how many may wait; that is `pauses`'s.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Answer, Paid, waiting::Full};
use tollgate_storage::{DirectAnswer, MAX_LEASE_SETS};

use crate::fleet::authority::Gate;
use crate::fleet::lease::Lease;
use crate::fleet::pauses::Stage;
use crate::fleet::question::{KeyAnswer, Unsent};
use crate::fleet::spending::{AskedKey, Leasing, Purse};
use crate::host::proxy::Proxy;
use crate::request::pending_response::PendingResponse;
use crate::request::retry::{Held, Pending};
use crate::watch::metrics::{Asked, Wait};

/// The wait when no better time is known.
const SOON: Span = Span::from_secs(1);

impl<H: Proxy> Held<H> {
    /// The rules of this node allow the request at `now`: it takes the costs under those of the
    /// fleet.
    pub fn lease(self, now: Timestamp) -> Pending<H> {
        let gate = self.authority.gate(now);
        let mut held = self;
        let spent = held.policy.spend(&mut held.plan, gate == Gate::Open);
        held.begin(gate, spent, now)
    }

    /// The same with the result of an earlier attempt to take them, made when the gate was `gate`.
    pub fn begin(mut self, gate: Gate, spent: (Leasing, Purse), now: Timestamp) -> Pending<H> {
        let patience = self.policy.patience();
        let deadline = now.saturating_add(patience).saturating_add(patience);
        self.lease = Some(Lease { paid: Vec::new(), stage: None, deadline });
        self.go_by(gate, spent, now)
    }

    /// Its turn has come in the line of requests that wait for the lease requests of others.
    pub fn look_again(mut self, now: Timestamp) -> Pending<H> {
        if !self.host.enter(self.id) {
            self.abandon(); // its client has left
            return Pending::NOTHING;
        }
        let gate = self.authority.gate(now);
        let spent = self.policy.spend(&mut self.plan, gate == Gate::Open);
        self.go_by(gate, spent, now)
    }

    fn go_by(
        mut self,
        gate: Gate,
        (leasing, purse): (Leasing, Purse),
        now: Timestamp,
    ) -> Pending<H> {
        match leasing {
            Leasing::Paid => {
                self.authority.ask_ahead(&self.policy, purse.ahead, Some(self.id), now);
                if let Some(lease) = &mut self.lease {
                    lease.paid = purse.paid;
                }
                self.conclude(now)
            }
            Leasing::Ask => self.ask(purse, now),
            Leasing::Refused => self.conclude(now),
            // The authority does not respond, or has not within the deadline.
            Leasing::Closed if gate != Gate::Busy => self.alone(None, now),
            Leasing::Wait(_) if self.is_late(now) => self.alone(None, now),
            Leasing::Closed if self.is_late(now) => self.overloaded(None, now),
            Leasing::Closed => self.pause(Stage::Unsent, now),
            Leasing::Wait(place) => self.pause(Stage::Line(place), now),
        }
    }

    fn is_late(&self, now: Timestamp) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.deadline <= now)
    }

    fn ask(mut self, purse: Purse, now: Timestamp) -> Pending<H> {
        if !fits(&purse.asked) {
            // A path that is read in several ways is under the rules of all of them.
            self.policy.put_back(&mut self.plan, purse);
            return self.overloaded(None, now);
        }
        let Purse { paid, asked, ahead } = purse;
        if let Some(lease) = &mut self.lease {
            lease.paid = paid;
        }
        self.authority.ask_ahead(&self.policy, ahead, Some(self.id), now);
        match self.authority.ask(&self.policy, asked, self.id, now) {
            Ok(call) => self.pause(Stage::Asked(call), now),
            Err(Unsent { keys, is_full }) => {
                self.authority.unask(&self.policy, keys);
                self.authority.settle(now, &self.policy);
                if !is_full {
                    return self.alone(None, now);
                }
                // The request takes its turn when there is room, and its costs then.
                let paid = self.lease.as_mut().map(|lease| core::mem::take(&mut lease.paid));
                self.put_back(paid.unwrap_or_default());
                self.go_by(Gate::Busy, (Leasing::Closed, Purse::default()), now)
            }
        }
    }

    /// Waits, if the request may.
    fn pause(mut self, stage: Stage, now: Timestamp) -> Pending<H> {
        let (id, held) = (self.id, self.shrink());
        let waited = self.lease.as_ref().and_then(|lease| lease.stage);
        let bytes = waited.map_or(held, |(_, bytes)| bytes);
        let is_in = match waited {
            Some(_) => {
                self.authority.go_on(stage, id);
                true
            }
            None => self.authority.begin(stage, id, bytes),
        };
        if !is_in {
            if let Stage::Asked(call) = stage {
                self.authority.forget(call);
            }
            return self.overloaded(None, now);
        }
        if let Some(lease) = &mut self.lease {
            lease.stage = Some((stage, bytes));
        }
        self.is_stopped = true;
        self.authority.settle(now, &self.policy);
        Pending::Waiting(Box::new(self))
    }

    /// The result of the lease request for this request.
    pub fn answered(mut self, keys: Vec<AskedKey>, answers: Vec<KeyAnswer>) -> Pending<H> {
        let now = self.host.now().unwrap_or_default();
        let policy = std::rc::Rc::clone(&self.policy);
        let (mut worst, mut unanswered, mut heard) = (None, Vec::new(), Vec::new());
        for (key, answer) in keys.into_iter().zip(answers) {
            let (mut leased, mut direct) = (None, Vec::new());
            let failure = match answer {
                KeyAnswer::Decided(granted, reply) => {
                    leased = Some(granted);
                    let taken = self.take(&key, &reply);
                    let failure = taken.is_none().then_some(Asked::Failed);
                    direct = taken.unwrap_or_default();
                    failure
                }
                KeyAnswer::Failed => Some(Asked::Failed),
                KeyAnswer::Overloaded => Some(Asked::Overloaded),
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
            let next = policy.hear(&key, leased.as_deref(), &direct);
            self.authority.look_at(next, &policy, key);
        }
        if !self.host.enter(self.id) {
            self.abandon();
            return Pending::NOTHING;
        }
        match worst {
            Some(Asked::Overloaded) => self.overloaded(Some(&unanswered), now),
            Some(_) => self.alone(Some(&unanswered), now),
            None => self.conclude(now),
        }
    }

    /// Uses the reply for the decision of a partition. Returns the reply's results, or `None` if it
    /// is malformed.
    fn take(&mut self, key: &AskedKey, reply: &[u8]) -> Option<Vec<DirectAnswer>> {
        let paid = self.lease.as_ref().map(|lease| &lease.paid[..]).unwrap_or_default();
        self.policy.take_reply(&mut self.plan, key, reply, paid)
    }

    /// The authority does not respond about these partitions, or about any: they are counted by
    /// this node alone, or `on_failure` decides.
    fn alone(mut self, unanswered: Option<&[usize]>, now: Timestamp) -> Pending<H> {
        self.policy.go_on_alone(&mut self.plan, unanswered, now);
        self.conclude(now)
    }

    /// Too many lease requests are in flight: the request is counted by this node alone, or denied.
    fn overloaded(mut self, unanswered: Option<&[usize]>, now: Timestamp) -> Pending<H> {
        self.policy.count_asked(Asked::Overloaded, 1);
        if !self.policy.go_on_alone(&mut self.plan, unanswered, now) {
            self.policy.waiting_mut(&mut self.plan).reject(Full::Worker(SOON));
        }
        self.conclude(now)
    }

    /// Every rule has decided.
    fn conclude(mut self, now: Timestamp) -> Pending<H> {
        let Some(lease) = self.lease.take() else { return self.go() };
        if let Some((stage, bytes)) = lease.stage {
            self.authority.end(stage, self.id, bytes);
        }
        let waited = now.since(self.since);
        match self.policy.outcome(&self.plan).answer_after(waited) {
            Answer::Pass => {
                self.let_through(waited);
                if self.is_stopped {
                    return self.go();
                }
                Pending::Response(PendingResponse::Fields(self.policy, self.plan))
            }
            Answer::Delay(wait) => {
                self.is_stopped = true;
                self.paid = lease.paid;
                self.wait_for(now.saturating_add(wait), now)
            }
            Answer::Retry(wait) => {
                self.give_back(lease.paid, now);
                self.reject_waiting(Full::Late(wait), now)
            }
            Answer::Refuse { .. } => {
                self.give_back(lease.paid, now);
                self.refuse(waited)
            }
        }
    }

    /// Takes back the request's charges.
    fn give_back(&mut self, paid: Vec<(usize, Paid)>, now: Timestamp) {
        self.put_back(paid);
        self.policy.take_back(&mut self.plan, now);
    }

    /// Puts units back into the leases that they were taken from.
    pub fn put_back(&mut self, paid: Vec<(usize, Paid)>) {
        self.policy.put_back(&mut self.plan, Purse { paid, ..Purse::default() });
    }

    /// Its client has left while the lease request was in flight.
    pub fn abandon_lease(mut self, lease: Lease) {
        let now = self.host.now().unwrap_or_default();
        if let Some((stage, bytes)) = lease.stage {
            self.authority.end(stage, self.id, bytes);
        }
        self.give_back(lease.paid, now);
        self.policy.count_wait(Wait::Left);
        self.authority.settle(now, &self.policy);
        self.policy.keep(self.plan);
    }
}

/// True where one message has room for the lease request, and for its response. Keys of one request
/// are not sent in parts, of which one might be charged and the other not.
fn fits(asked: &[AskedKey]) -> bool {
    let rules = asked.iter().map(|asked| asked.key.rules.len());
    rules.fold(0_usize, usize::saturating_add) <= MAX_LEASE_SETS
}
