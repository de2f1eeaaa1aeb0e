//! Waiting in the Worker: the requests that this isolate holds wait in lines, one line per key of a
//! rule.
//!
//! Invariant: while others wait for its key, a request goes behind them and charges nothing. Only
//! the first of a line calls the key's object again, when that may allow it. So a line costs about
//! one call per request that comes and one per request that goes. Isolates do not know of each
//! other: order is kept within each.
//!
//! Every request wakes itself by its own timer: in the runtime one request may not do I/O for
//! another. The platform may stop a request without notice when its client has left. So a waiter
//! that does not poll again in time is removed, and its turn passes to the next one.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, PlaceRequest, Poll, Ticket, Turn};
use tollgate_policy::{Disposition, Plan, Policy};
use tollgate_service::drive::waiting::{self, REQUEST_BYTES, Waiting};

use crate::counts::charging::Calls;
use crate::counts::lines::{Line, MOST_LOOKS};
use crate::counts::objects::Objects;
use crate::runtime::js;

/// Decides a request, letting it wait in this isolate as long as its rules allow. Returns how long
/// it waited since it came.
pub(crate) async fn decide(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    holds: bool,
    since: Timestamp,
) -> Span {
    let mut request = Waiter { objects, policy, since, holds, plan, waited: Span::ZERO };
    if let Some((turn, ticket)) = request.arrive().await {
        request.wait(turn, ticket).await;
    }
    request.waited
}

/// A request that is being decided, and may wait.
struct Waiter<'a> {
    objects: &'a Objects,
    policy: &'a Policy,
    /// When it came.
    since: Timestamp,
    /// The request is kept here until its place in a `leaky-queue` comes up; else its caller keeps
    /// it.
    holds: bool,
    plan: &'a mut Plan,
    /// How long it has waited already.
    waited: Span,
}

impl<'a> Waiter<'a> {
    /// The request comes: returns the line in which it waits, if it waits.
    async fn arrive(&mut self) -> Option<(Option<Turn>, Ticket)> {
        let (objects, policy) = (self.objects, self.policy);
        objects.lines.sweep(self.since);
        let waiting = self.waiting();
        let ahead = waiting.behind_others(&objects.lines.queue.borrow(), policy, self.plan);
        if let Some(turn) = ahead {
            let mut calls = objects.peek(policy, self.plan).await;
            if self.plan.outdated().is_some() {
                return None;
            }
            if self.plan.has_failed() {
                calls.charge(self.plan).await;
                return Some((None, self.take_place(calls).await?));
            }
            return match self.plan.outcome(policy).disposition() {
                Disposition::Deny { .. } => None,
                Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_) => {
                    Some((Some(turn), self.join(turn)?))
                }
            };
        }
        let calls = objects.decide_once(policy, self.plan, Span::ZERO).await;
        if self.plan.outdated().is_some() {
            return None;
        }
        if matches!(self.plan.outcome(policy).disposition(), Disposition::Retry(_)) {
            let turn = self.plan.outcome(policy).turn()?;
            return Some((Some(turn), self.join(turn)?));
        }
        Some((None, self.take_place(calls).await?))
    }

    /// If the request was just given a place in a `leaky-queue`, waits for that place; gives it
    /// back when the request may not wait.
    async fn take_place(&mut self, mut calls: Calls<'_>) -> Option<Ticket> {
        let disposition = self.plan.outcome(self.policy).disposition_after(self.waited);
        let Disposition::Delay(wait) = disposition else { return None };
        if !self.holds || self.plan.outdated().is_some() {
            return None;
        }
        match self.hold(wait) {
            Ok(ticket) => Some(ticket),
            Err(full) => {
                self.plan.waiting_mut(self.policy).reject(full);
                calls.give_back(self.plan).await;
                None
            }
        }
    }

    /// Waits until the request is decided.
    async fn wait(&mut self, mut turn: Option<Turn>, mut ticket: Ticket) {
        let (objects, policy) = (self.objects, self.policy);
        let mut looks = 0;
        loop {
            let now = js::now();
            self.waited = now.since(self.since);
            match (objects.lines.poll(ticket, now), turn) {
                (Poll::Wait(at), _) => self.sleep(ticket, now, at).await,
                (Poll::Go, _) | (Poll::Decide, None) => return,
                (Poll::Over(full), _) => return self.plan.waiting_mut(policy).reject(full),
                (Poll::Decide, Some(_)) if looks == MOST_LOOKS => {
                    objects.lines.leave(ticket, now);
                    return self.plan.waiting_mut(policy).reject(Full::NoPlace);
                }
                (Poll::Decide, Some(waited_in)) => {
                    if objects.lines.longest_sleep(ticket).is_some() {
                        looks = MOST_LOOKS.min(looks.saturating_add(1));
                    }
                    // At most three calls per key: decision, charge, refund.
                    let calls = Span::from_millis(u64::from(objects.timeout_ms)).saturating_mul(4);
                    objects.lines.expect(ticket, now.saturating_add(calls));
                    let waited = self.waited;
                    let calls = objects.decide_once(policy, self.plan, waited).await;
                    turn = self.decided_again(ticket, waited_in);
                    if turn.is_none() {
                        let Some(place) = self.take_place(calls).await else { return };
                        ticket = place;
                    }
                }
            }
        }
    }

    /// Where the request waits next after it was decided again; `None` if it has its response.
    fn decided_again(&mut self, ticket: Ticket, waited_in: Turn) -> Option<Turn> {
        let times = (self.waited, js::now());
        let mut queue = self.objects.lines.queue.borrow_mut();
        self.waiting().decided_again(&mut queue, self.policy, self.plan, (ticket, waited_in), times)
    }

    fn waiting(&self) -> Waiting<impl Fn(&Plan, Turn) -> Line + use<'a>> {
        let (objects, policy, since) = (self.objects, self.policy, self.since);
        let line = move |plan: &Plan, turn: Turn| line(objects, policy, plan, turn);
        Waiting { since, patience: Span::MAX, line }
    }

    async fn sleep(&self, ticket: Ticket, now: Timestamp, at: Timestamp) {
        let longest = self.objects.lines.longest_sleep(ticket).unwrap_or(Span::MAX);
        let sleep = waiting::sleep(now, at).min(longest);
        self.objects.lines.expect(ticket, now.saturating_add(sleep));
        js::wait(sleep.as_millis_ceil()).await;
    }

    /// Goes behind others, or is denied.
    fn join(&mut self, turn: Turn) -> Option<Ticket> {
        let now = js::now();
        let mut queue = self.objects.lines.queue.borrow_mut();
        self.waiting().join(&mut queue, self.policy, self.plan, (turn, now), now)
    }

    /// Waits for its place in a `leaky-queue`.
    fn hold(&mut self, wait: Span) -> Result<Ticket, Full> {
        let now = js::now();
        let plan = &mut *self.plan;
        let bytes = plan.memory().shrink();
        let place = plan.waiting(self.policy).place();
        // No request goes before others here, so no deadline is checked.
        let place_request = PlaceRequest {
            line: place.map(|place| (line(self.objects, self.policy, plan, place), place.cost)),
            deadline: Timestamp::MAX,
            rank: 0,
            bytes: bytes.saturating_add(REQUEST_BYTES),
        };
        let at = now.saturating_add(wait);
        let held = self.objects.lines.queue.borrow_mut().hold(now, place_request, at, now);
        held.map_err(|(full, _)| full)
    }
}

fn line(objects: &Objects, policy: &Policy, plan: &Plan, turn: Turn) -> Line {
    (objects.name_of(policy, turn.key(plan)), turn.record)
}
