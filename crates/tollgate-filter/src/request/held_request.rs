//! A request that waits: held at its headers, given its turn by the timer, or dropped when its
//! client leaves.
//!
//! Invariant: the filter holds the plan, not the request; a request that ends while it waits leaves
//! its line and gives its charge back at once. Deliberately absent: the order of turns; that is the
//! queue's.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Pace, PlaceRequest, Ticket, Turn, TurnRequest};
use tollgate_policy::{Disposition, Paid, Plan};

use crate::active_policy::ActivePolicy;
use crate::fleet::authority_client::AuthorityClient;
use crate::fleet::lease_waiters::LeaseWait;
use crate::host::proxy::Proxy;
use crate::observability::metrics::Wait;
use crate::request::in_flight::InFlight;
use crate::request::pending_response::PendingResponse;
use crate::request::waiting::{QueueKey, Waiting};

/// The wait when no better time is known.
const SOON: Span = Span::from_secs(1);

/// The remaining work for a stream.
pub enum Pending<H> {
    /// It waits.
    Waiting(Box<HeldRequest<H>>),
    /// It is decided; its response still needs these additions.
    Response(PendingResponse<H>),
}

impl<H: Proxy> Pending<H> {
    /// Nothing.
    pub const NOTHING: Self = Self::Response(PendingResponse::Nothing);

    /// True when nothing remains.
    pub const fn is_nothing(&self) -> bool {
        matches!(self, Self::Response(PendingResponse::Nothing))
    }

    /// The response to the request comes; returns what its end needs.
    pub fn put_on_response(self, host: &H) -> Self {
        match self {
            // Another filter or the host has responded, for example after a timeout: the request
            // will not reach the origin.
            Self::Waiting(held) if H::HOLDS => {
                held.abandon();
                Self::NOTHING
            }
            Self::Waiting(_) => Self::NOTHING,
            Self::Response(pending) => Self::Response(pending.put_on_response(host)),
        }
    }

    /// True when it needs the body or the trailers of its response.
    pub const fn reads_body(&self) -> bool {
        matches!(self, Self::Response(pending) if pending.reads_body())
    }

    /// A piece of `len` bytes of the response's body passes, perhaps the last one.
    pub fn read_body(self, host: &H, len: usize, is_last: bool) -> Self {
        match self {
            Self::Response(pending) => Self::Response(pending.read_body(host, len, is_last)),
            waiting @ Self::Waiting(_) => waiting,
        }
    }

    /// The response's trailers pass.
    pub fn read_trailers(self) -> Self {
        match self {
            Self::Response(pending) => Self::Response(pending.read_trailers()),
            waiting @ Self::Waiting(_) => waiting,
        }
    }

    /// The stream ends.
    pub fn end(self) {
        match self {
            Self::Waiting(held) if H::HOLDS => held.abandon(),
            Self::Waiting(_) => {}
            Self::Response(pending) => pending.end(),
        }
    }
}

/// A request that waits, or is about to.
pub struct HeldRequest<H> {
    pub host: H,
    pub id: u32,
    pub policy: Rc<ActivePolicy<H>>,
    pub waiting: Rc<Waiting<H>>,
    pub plan: Box<Plan>,
    /// Where it is counted once it continues.
    pub in_flight: Rc<InFlight<H>>,
    /// When it came.
    pub arrived_at: Timestamp,
    /// Bytes of its headers, which the host holds meanwhile.
    pub header_bytes: usize,
    /// The content type of its denial, if it is a gRPC request.
    pub grpc: Option<&'static str>,
    pub position: Option<QueuePosition>,
    pub authority: Rc<AuthorityClient<H>>,
    /// Its progress with the authority of a fleet.
    pub lease: Option<LeaseWait>,
    /// The units it took from leases, with the partition, while it waits for a place.
    pub paid: Vec<(usize, Paid)>,
    /// The host holds it.
    pub is_stopped: bool,
}

/// Where it waits.
#[derive(Clone, Copy)]
pub struct QueuePosition {
    ticket: Ticket,
    /// The line that it waits in; `None` when it has a place: when its time comes it continues,
    /// without another decision.
    turn: Option<Turn>,
}

impl<H: Proxy> HeldRequest<H> {
    /// Waits in the line of `turn` until its turn comes; denies the request when it may not.
    pub fn join_queue(mut self, turn: Turn, now: Timestamp) -> Pending<H> {
        let pace = self.policy.waiting(&self.plan).pace(&turn, now);
        let (place, id) = (self.queue_request(&turn), self.id);
        let joined = self.waiting.with(|queue| queue.join(now, place, pace, id));
        match joined {
            Some(Ok(ticket)) => self.wait_with(ticket, Some(turn), now),
            Some(Err((full, _))) => self.reject_waiting(full, now),
            None => self.reject_waiting(Full::Worker(SOON), now),
        }
    }

    /// Waits for the time `at` that a `leaky-queue` has given it; gives the time back when it may
    /// not wait.
    pub fn wait_until(mut self, at: Timestamp, now: Timestamp) -> Pending<H> {
        let place = self.policy.waiting(&self.plan).place();
        let (place_request, id) = (self.hold_request(place.as_ref()), self.id);
        match self.waiting.with(|queue| queue.hold(now, place_request, at, id)) {
            Some(Ok(ticket)) => {
                self.record_allowed(now.since(self.arrived_at));
                self.wait_with(ticket, None, now)
            }
            Some(Err((full, _))) => self.reject_waiting(full, now),
            None => self.reject_waiting(Full::Worker(SOON), now),
        }
    }

    /// Waits for the earlier time that a client left; its plan has that time already.
    pub fn wait_for_spare(mut self, place: Turn, now: Timestamp) -> Pending<H> {
        let (place_request, id) = (self.hold_request(Some(&place)), self.id);
        match self.waiting.with(|queue| queue.hold_spare(now, place_request, id)) {
            Some(Ok(ticket)) => {
                self.record_allowed(now.since(self.arrived_at));
                self.wait_with(ticket, None, now)
            }
            Some(Err((full, _))) => self.reject_waiting_uncharged(full, now),
            None => self.reject_waiting_uncharged(Full::Worker(SOON), now),
        }
    }

    fn wait_with(mut self, ticket: Ticket, turn: Option<Turn>, now: Timestamp) -> Pending<H> {
        self.position = Some(QueuePosition { ticket, turn });
        self.is_stopped = true;
        self.policy.settle_waiting(&self.waiting, now);
        Pending::Waiting(Box::new(self))
    }

    fn queue_key(&self, turn: &Turn) -> QueueKey {
        self.policy.queue_key(&self.plan, turn)
    }

    /// Makes it small, because it waits; returns the bytes that it uses.
    pub fn shrink(&mut self) -> usize {
        let plan = self.plan.memory().shrink();
        plan.saturating_add(size_of::<Self>()).saturating_add(self.header_bytes)
    }

    fn queue_request(&mut self, turn: &Turn) -> TurnRequest<QueueKey> {
        let deadline = self.arrived_at.saturating_add(turn.max);
        let Turn { cost, rank, .. } = *turn;
        TurnRequest { key: self.queue_key(turn), cost, deadline, rank, bytes: self.shrink() }
    }

    /// Where it waits for its time: outside all lines, if it only has a place.
    fn hold_request(&mut self, place: Option<&Turn>) -> PlaceRequest<QueueKey> {
        let max = place.map_or(Span::MAX, |place| place.max);
        PlaceRequest {
            line: place.map(|place| (self.queue_key(place), place.cost)),
            deadline: self.arrived_at.saturating_add(max),
            rank: place.map_or(0, |place| place.rank),
            bytes: self.shrink(),
        }
    }

    /// Its turn comes at `now`: it continues, is denied, or waits on.
    pub fn take_turn(mut self, now: Timestamp) -> Pending<H> {
        let Some(QueuePosition { ticket, turn: Some(turn) }) = self.position else {
            return self.resume_after_wait();
        };
        if !self.host.enter(self.id) {
            self.abandon(); // its client has left
            return Pending::NOTHING;
        }
        self.policy.decide_at(&mut self.plan, Some(now));
        let waited = now.since(self.arrived_at);
        let disposition = self.policy.outcome(&self.plan).disposition_after(waited);
        // Another rule may delay it now: then it moves to that rule's line, at that rule's pace.
        let next = self.policy.outcome(&self.plan).turn();
        let pace = |turn: &Turn| self.policy.waiting(&self.plan).pace(turn, now);
        let next = next.and_then(|next| Some((next, pace(&next)?)));
        if let (Disposition::Retry(_), Some((next, pace))) = (disposition, next) {
            return self.move_to_queue(ticket, next, pace, now);
        }
        let pace = self.policy.waiting(&self.plan).pace(&turn, now);
        self.position = None;
        self.waiting.with(|queue| queue.done(ticket, now, pace));
        match disposition {
            Disposition::Allow | Disposition::Delay(_) if self.policy.has_fleet() => {
                self.take_leases(now)
            }
            Disposition::Allow => {
                self.record_allowed(waited);
                self.resume_after_wait()
            }
            Disposition::Delay(wait) => self.wait_until(now.saturating_add(wait), now),
            Disposition::Retry(wait) => self.reject_waiting(Full::Late(wait), now),
            Disposition::Deny { .. } => self.deny(waited),
        }
    }

    fn move_to_queue(
        mut self,
        ticket: Ticket,
        turn: Turn,
        pace: Pace,
        now: Timestamp,
    ) -> Pending<H> {
        let place = self.queue_request(&turn);
        let again = self.waiting.with(|queue| queue.again(ticket, now, place, pace));
        match again {
            Some(Ok(())) => {
                self.position = Some(QueuePosition { ticket, turn: Some(turn) });
                Pending::Waiting(Box::new(self))
            }
            Some(Err(Some((full, _)))) => {
                self.position = None;
                self.reject_waiting(full, now)
            }
            _ => {
                self.position = None;
                self.waiting.with(|queue| queue.done(ticket, now, None));
                self.reject_waiting(Full::Late(SOON), now)
            }
        }
    }

    /// The time it waited for has come.
    pub fn resume_after_wait(self) -> Pending<H> {
        if let Some(now) = self.host.now() {
            self.policy.observer.count_waited(now.since(self.arrived_at));
        }
        self.resume()
    }

    /// It continues.
    pub fn resume(self) -> Pending<H> {
        // The host may end the stream in this call.
        self.in_flight.begin(self.id, &self.policy, &self.plan, self.arrived_at);
        self.host.resume(self.id);
        Pending::Response(PendingResponse::Fields(self.policy, self.plan))
    }

    /// It has waited for as long as its rule allows.
    pub fn time_out(mut self, full: Full, now: Timestamp) -> Pending<H> {
        self.position = None;
        if self.host.enter(self.id) { self.reject_waiting(full, now) } else { Pending::NOTHING }
    }

    /// Counts and marks a request that is allowed, once its place is certain.
    pub fn record_allowed(&self, waited: Span) {
        let outcome = self.policy.outcome(&self.plan);
        self.policy.count(&outcome, waited);
        self.policy.mark(&outcome);
    }

    /// Denies it because it may not wait, and gives its charges back.
    pub fn reject_waiting(mut self, full: Full, now: Timestamp) -> Pending<H> {
        self.return_leased_units();
        self.policy.waiting_mut(&mut self.plan).reject(full);
        self.policy.take_back(&mut self.plan, now);
        self.deny_full(full, now)
    }

    /// The same when other requests were charged for it.
    fn reject_waiting_uncharged(mut self, full: Full, now: Timestamp) -> Pending<H> {
        self.policy.waiting_mut(&mut self.plan).reject(full);
        self.deny_full(full, now)
    }

    /// Puts units back into the leases that it took them from, if it did.
    fn return_leased_units(&mut self) {
        if !self.paid.is_empty() {
            let paid = core::mem::take(&mut self.paid);
            self.return_units(paid);
        }
    }

    /// Denies it once its plan records that it may not wait.
    fn deny_full(self, full: Full, now: Timestamp) -> Pending<H> {
        if matches!(full, Full::Key(_) | Full::Worker(_)) {
            self.policy.count_wait(Wait::Full);
        }
        let waited = now.since(self.arrived_at);
        self.deny(waited)
    }

    /// Responds to it in the origin's place.
    pub fn deny(self, waited: Span) -> Pending<H> {
        let (plan, how) = (self.plan, (self.grpc, waited));
        Pending::Response(PendingResponse::refusal(&self.host, self.policy, plan, how))
    }

    /// It will not continue: it leaves its line, those behind it move up, and its charges are taken
    /// back.
    pub fn abandon(mut self) {
        if let Some(lease) = self.lease.take() {
            return self.abandon_lease(lease);
        }
        let Some(QueuePosition { ticket, turn }) = self.position else {
            return self.policy.keep(self.plan);
        };
        let now = self.host.now().unwrap_or_default();
        let freed = self.waiting.with(|queue| queue.leave(ticket, now)).flatten();
        let freed = freed.and_then(|(_, freed)| freed);
        self.policy.count_wait(Wait::Left);
        self.return_leased_units();
        if turn.is_none() {
            if let Some(freed) = &freed {
                self.policy.waiting_mut(&mut self.plan).move_place(freed.at);
            }
            let is_back = self.policy.take_back(&mut self.plan, now);
            if let (Some(freed), false) = (freed, is_back)
                && self.waiting.with(|queue| queue.keep(now, freed)) != Some(true)
            {
                self.policy.count_wait(Wait::Unused);
            }
        }
        self.policy.settle_waiting(&self.waiting, now);
        self.policy.keep(self.plan);
    }
}
