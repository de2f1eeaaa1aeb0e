//! A request that waits: held at its headers, given its turn by the timer, or dropped when its
//! client leaves.
//!
//! Invariant: the filter holds the plan, not the request; a request that ends while it waits leaves
//! its line and gives its charge back at once. Deliberately absent: the order of turns; that is the
//! queue's.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Pace, Seat, Spot, Ticket, Turn};
use tollgate_policy::{Answer, Paid, Plan};

use crate::active_policy::ActivePolicy;
use crate::fleet::authority_client::AuthorityClient;
use crate::fleet::lease_waiters::LeaseWait;
use crate::host::proxy::Proxy;
use crate::request::pending_response::PendingResponse;
use crate::request::waiting::Waiting;
use crate::watch::metrics::Wait;

/// The wait when no better time is known.
const SOON: Span = Span::from_secs(1);

/// The remaining work for a stream.
pub enum Pending<H> {
    /// It waits.
    Waiting(Box<Held<H>>),
    /// It is decided; its response still needs these additions.
    Response(PendingResponse<H>),
}

impl<H: Proxy> Pending<H> {
    /// Nothing.
    pub const NOTHING: Self = Self::Response(PendingResponse::Nothing);

    /// The response to the request comes.
    pub fn put_on_response(self, host: &H) {
        match self {
            // Another filter or the host has responded, for example after a timeout: the request
            // will not reach the origin.
            Self::Waiting(held) => held.abandon(),
            Self::Response(pending) => pending.put_on_response(host),
        }
    }

    /// The stream ends, and no response was seen.
    pub fn end(self) {
        match self {
            Self::Waiting(held) => held.abandon(),
            Self::Response(pending) => pending.end(),
        }
    }
}

/// A request that waits, or is about to.
pub struct Held<H> {
    pub host: H,
    pub id: u32,
    pub policy: Rc<ActivePolicy<H>>,
    pub waiting: Rc<Waiting<H>>,
    pub plan: Box<Plan>,
    /// When it came.
    pub since: Timestamp,
    /// Bytes of its headers, which the host holds meanwhile.
    pub header_bytes: usize,
    /// The content type of its denial, if it is a gRPC request.
    pub grpc: Option<&'static str>,
    pub seat: Option<Seated>,
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
pub struct Seated {
    ticket: Ticket,
    /// The line that it waits in; `None` when it has a place: when its time comes it continues,
    /// without another decision.
    turn: Option<Turn>,
}

impl<H: Proxy> Held<H> {
    /// Waits in the line of `turn` until its turn comes; denies the request when it may not.
    pub fn stand(mut self, turn: Turn, now: Timestamp) -> Pending<H> {
        let pace = self.policy.pace(&self.plan, &turn, now);
        self.plan.shrink();
        let (seat, id) = (self.seat_in(&turn), self.id);
        let joined = self.waiting.with(|queue| queue.join(now, seat, pace, id));
        match joined {
            Some(Ok(ticket)) => self.seated(ticket, Some(turn), now),
            Some(Err((full, _))) => self.reject_waiting(full, now),
            None => self.reject_waiting(Full::Worker(SOON), now),
        }
    }

    /// Waits for the time `at` that a `leaky-queue` has given it; gives the time back when it may
    /// not wait.
    pub fn wait_for(mut self, at: Timestamp, now: Timestamp) -> Pending<H> {
        let place = self.policy.place(&self.plan);
        self.plan.shrink();
        let (spot, id) = (self.spot(place.as_ref()), self.id);
        match self.waiting.with(|queue| queue.hold(now, spot, at, id)) {
            Some(Ok(ticket)) => {
                self.let_through(now.since(self.since));
                self.seated(ticket, None, now)
            }
            Some(Err((full, _))) => self.reject_waiting(full, now),
            None => self.reject_waiting(Full::Worker(SOON), now),
        }
    }

    /// Waits for the earlier time that a client left; its plan has that time already.
    pub fn wait_for_spare(mut self, place: Turn, now: Timestamp) -> Pending<H> {
        self.plan.shrink();
        let (spot, id) = (self.spot(Some(&place)), self.id);
        match self.waiting.with(|queue| queue.hold_spare(now, spot, id)) {
            Some(Ok(ticket)) => {
                self.let_through(now.since(self.since));
                self.seated(ticket, None, now)
            }
            Some(Err((full, _))) => self.reject_waiting_uncharged(full, now),
            None => self.reject_waiting_uncharged(Full::Worker(SOON), now),
        }
    }

    fn seated(mut self, ticket: Ticket, turn: Option<Turn>, now: Timestamp) -> Pending<H> {
        self.seat = Some(Seated { ticket, turn });
        self.is_stopped = true;
        self.policy.settle_waiting(&self.waiting, now);
        Pending::Waiting(Box::new(self))
    }

    fn line_of(&self, turn: &Turn) -> crate::request::waiting::Line {
        self.policy.line(&self.plan, turn)
    }

    pub fn bytes(&self) -> usize {
        self.plan.held_bytes().saturating_add(size_of::<Self>()).saturating_add(self.header_bytes)
    }

    fn seat_in(&self, turn: &Turn) -> Seat<crate::request::waiting::Line> {
        let deadline = self.since.saturating_add(turn.max);
        let Turn { cost, rank, .. } = *turn;
        Seat { key: self.line_of(turn), cost, deadline, rank, bytes: self.bytes() }
    }

    /// Where it waits for its time: outside all lines, if it only has a place.
    fn spot(&self, place: Option<&Turn>) -> Spot<crate::request::waiting::Line> {
        let max = place.map_or(Span::MAX, |place| place.max);
        Spot {
            line: place.map(|place| (self.line_of(place), place.cost)),
            deadline: self.since.saturating_add(max),
            rank: place.map_or(0, |place| place.rank),
            bytes: self.bytes(),
        }
    }

    /// Its turn comes at `now`: it continues, is denied, or waits on.
    pub fn take_turn(mut self, now: Timestamp) -> Pending<H> {
        let Some(Seated { ticket, turn: Some(turn) }) = self.seat else {
            return self.go_after_wait();
        };
        if !self.host.enter(self.id) {
            self.abandon(); // its client has left
            return Pending::NOTHING;
        }
        self.policy.decide_at(&mut self.plan, Some(now));
        let waited = now.since(self.since);
        let answer = self.policy.outcome(&self.plan).answer_after(waited);
        // Another rule may delay it now: then it moves to that rule's line, at that rule's pace.
        let next = self.policy.outcome(&self.plan).turn();
        let next = next.and_then(|next| Some((next, self.policy.pace(&self.plan, &next, now)?)));
        if let (Answer::Retry(_), Some((next, pace))) = (answer, next) {
            return self.wait_on(ticket, next, pace, now);
        }
        let pace = self.policy.pace(&self.plan, &turn, now);
        self.seat = None;
        self.waiting.with(|queue| queue.done(ticket, now, pace));
        match answer {
            Answer::Pass | Answer::Delay(_) if self.policy.has_fleet() => self.take_leases(now),
            Answer::Pass => {
                self.let_through(waited);
                self.go_after_wait()
            }
            Answer::Delay(wait) => self.wait_for(now.saturating_add(wait), now),
            Answer::Retry(wait) => self.reject_waiting(Full::Late(wait), now),
            Answer::Refuse { .. } => self.refuse(waited),
        }
    }

    fn wait_on(mut self, ticket: Ticket, turn: Turn, pace: Pace, now: Timestamp) -> Pending<H> {
        self.plan.shrink();
        let seat = self.seat_in(&turn);
        let again = self.waiting.with(|queue| queue.again(ticket, now, seat, pace));
        match again {
            Some(Ok(())) => {
                self.seat = Some(Seated { ticket, turn: Some(turn) });
                Pending::Waiting(Box::new(self))
            }
            Some(Err(Some((full, _)))) => {
                self.seat = None;
                self.reject_waiting(full, now)
            }
            _ => {
                self.seat = None;
                self.waiting.with(|queue| queue.done(ticket, now, None));
                self.reject_waiting(Full::Late(SOON), now)
            }
        }
    }

    /// The time it waited for has come.
    pub fn go_after_wait(self) -> Pending<H> {
        if let Some(now) = self.host.now() {
            self.policy.observer.count_waited(now.since(self.since));
        }
        self.go()
    }

    /// It continues.
    pub fn go(self) -> Pending<H> {
        self.host.resume(self.id);
        Pending::Response(PendingResponse::Fields(self.policy, self.plan))
    }

    /// It has waited for as long as its rule allows; its client may try again after `wait`.
    pub fn give_up(mut self, wait: Span, now: Timestamp) -> Pending<H> {
        self.seat = None;
        if self.host.enter(self.id) {
            self.reject_waiting(Full::Late(wait), now)
        } else {
            Pending::NOTHING
        }
    }

    /// Counts and marks a request that is allowed, once its place is certain.
    pub fn let_through(&self, waited: Span) {
        self.policy.count(&self.plan, waited);
        self.policy.mark(&self.plan);
    }

    /// Denies it because it may not wait, and gives its charges back.
    pub fn reject_waiting(mut self, full: Full, now: Timestamp) -> Pending<H> {
        self.put_back_paid();
        self.policy.reject_waiting(&mut self.plan, full);
        self.policy.take_back(&mut self.plan, now);
        self.refuse_full(full, now)
    }

    /// The same when other requests were charged for it.
    fn reject_waiting_uncharged(mut self, full: Full, now: Timestamp) -> Pending<H> {
        self.policy.reject_waiting(&mut self.plan, full);
        self.refuse_full(full, now)
    }

    /// Puts units back into the leases that it took them from, if it did.
    fn put_back_paid(&mut self) {
        if !self.paid.is_empty() {
            let paid = core::mem::take(&mut self.paid);
            self.put_back(paid);
        }
    }

    /// Denies it once its plan records that it may not wait.
    fn refuse_full(self, full: Full, now: Timestamp) -> Pending<H> {
        if matches!(full, Full::Key(_) | Full::Worker(_)) {
            self.policy.count_wait(Wait::Full);
        }
        let waited = now.since(self.since);
        self.refuse(waited)
    }

    /// Responds to it in the origin's place.
    pub fn refuse(self, waited: Span) -> Pending<H> {
        self.policy.count(&self.plan, waited);
        let (plan, grpc) = (self.plan, self.grpc);
        Pending::Response(PendingResponse::refusal(&self.host, self.policy, plan, grpc))
    }

    /// It will not continue: it leaves its line, those behind it move up, and its charges are taken
    /// back.
    pub fn abandon(mut self) {
        if let Some(lease) = self.lease.take() {
            return self.abandon_lease(lease);
        }
        let Some(Seated { ticket, turn }) = self.seat else { return self.policy.keep(self.plan) };
        let now = self.host.now().unwrap_or_default();
        let freed = self.waiting.with(|queue| queue.leave(ticket, now)).flatten();
        let freed = freed.and_then(|(_, freed)| freed);
        self.policy.count_wait(Wait::Left);
        self.put_back_paid();
        if turn.is_none() {
            if let Some(freed) = &freed {
                self.policy.move_place(&mut self.plan, freed.at);
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
