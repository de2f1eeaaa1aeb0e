//! Waiting in the server: the requests that it holds wait in line, one line for each key of a rule.
//!
//! Invariant: as in the Worker: while others wait for its key, a request goes behind them and
//! charges nothing. Only the first of a line asks the store again, when the store may allow it. So
//! a line costs about one call per request that comes and one per request that goes. Servers do not
//! know each other's lines: order is kept within each server. The caller waits for a place in a
//! `leaky-queue`, and forwards the request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Poll, Turn};
use tollgate_policy::{Disposition, Plan, Policy};
use tollgate_service::drive::WaitBudget;
use tollgate_service::drive::waiting::{self, Waiting};

use crate::check::charges::Charges;
use crate::check::partitions::Charged;
use crate::gate::Gate;
use crate::gate::lines::{Line, WaitingSlot};

/// How a request was decided.
#[derive(Default)]
pub(crate) struct WaitResult {
    /// How long it waited since it came.
    pub(crate) waited: Span,
    /// The store reports an overload.
    pub(crate) is_overload: bool,
    /// The last charges.
    pub(crate) charges: Charges,
}

impl WaitResult {
    fn take(&mut self, charged: Charged) {
        (self.is_overload, self.charges) = (charged.is_overload, charged.charges);
    }
}

/// Decides a request, which waits here as long as its rules and its caller allow.
pub(crate) async fn decide(
    gate: &Arc<Gate>,
    policy: &Arc<Policy>,
    plan: &mut Plan,
    patience: Span,
) -> WaitResult {
    let since = gate.clock.now();
    // A report of use that has already happened waits for nothing.
    let is_decided_once = plan.waiting(policy).is_decided_once();
    let patience = if is_decided_once { Span::ZERO } else { patience };
    let done = WaitResult::default();
    let mut request = Waiter { gate, policy, since, patience, plan, done };
    if let Some((turn, place)) = request.arrive().await {
        request.wait(turn, place).await;
    }
    request.done
}

/// A request that may wait.
struct Waiter<'a> {
    gate: &'a Arc<Gate>,
    policy: &'a Arc<Policy>,
    /// When it came.
    since: Timestamp,
    /// How long it may wait, whatever its rules allow.
    patience: Span,
    plan: &'a mut Plan,
    done: WaitResult,
}

impl<'a> Waiter<'a> {
    /// Decides the request on arrival; returns its place in a line, if it waits.
    async fn arrive(&mut self) -> Option<(Turn, WaitingSlot<'a>)> {
        let (gate, policy) = (self.gate, self.policy);
        let waiting = self.waiting();
        let ahead = waiting.behind_others(&gate.lines.queue(), policy, self.plan);
        if let Some(turn) = ahead {
            self.done.is_overload = gate.peek(policy, self.plan).await;
            if self.done.is_overload || self.plan.outdated().is_some() {
                return None;
            }
            if self.plan.has_failed() {
                let budget = self.budget(Span::ZERO);
                let charged = gate.charge(policy, self.plan, budget).await;
                self.done.take(charged);
                return None;
            }
            return match self.plan.outcome(policy).disposition() {
                Disposition::Deny { .. } => None,
                Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_) => {
                    Some((turn, self.join(turn)?))
                }
            };
        }
        let budget = self.budget(Span::ZERO);
        let charged = gate.decide_once(policy, self.plan, budget).await;
        self.done.take(charged);
        if self.done.is_overload || self.plan.outdated().is_some() {
            return None;
        }
        if let Disposition::Retry(wait) = self.plan.outcome(policy).disposition() {
            if self.plan.waiting(policy).is_decided_once() {
                self.plan.waiting_mut(policy).reject(Full::Late(wait));
                return None;
            }
            let turn = self.plan.outcome(policy).turn()?;
            return Some((turn, self.join(turn)?));
        }
        None
    }

    /// Waits until the request has its decision.
    async fn wait(&mut self, mut turn: Turn, mut place: WaitingSlot<'a>) {
        let (gate, policy, ticket) = (self.gate, self.policy, place.ticket);
        loop {
            let now = gate.clock.now();
            self.done.waited = now.since(self.since);
            let poll = gate.lines.queue().poll(ticket, now);
            match poll {
                Poll::Wait(at) => {
                    let sleep = Duration::from_nanos(waiting::sleep(now, at).as_nanos());
                    // A place has ended, or the request ahead has gone: it polls at once.
                    let _ = tokio::time::timeout(sleep, place.wakes.notified()).await;
                }
                Poll::Go => return,
                Poll::Over(full) => return self.plan.waiting_mut(policy).reject(full),
                Poll::Decide => {
                    let budget = self.budget(self.done.waited);
                    let charged = gate.decide_once(policy, self.plan, budget).await;
                    self.done.take(charged);
                    match self.decided_again(&place, turn) {
                        Some(again) if !self.done.is_overload => {
                            turn = again;
                            place.moved(line(gate, policy, self.plan, turn));
                        }
                        _ => return,
                    }
                }
            }
        }
    }

    /// The place where the request continues to wait after it was decided again; `None` if it has
    /// its decision.
    fn decided_again(&mut self, place: &WaitingSlot<'_>, waited_in: Turn) -> Option<Turn> {
        let times = (self.done.waited, self.gate.clock.now());
        let mut queue = self.gate.lines.queue();
        let ticket = place.ticket;
        self.waiting().decided_again(&mut queue, self.policy, self.plan, (ticket, waited_in), times)
    }

    /// How long it has waited, and how long it may still wait.
    fn budget(&self, waited: Span) -> WaitBudget {
        WaitBudget { waited, left: self.patience.saturating_sub(waited) }
    }

    fn waiting(&self) -> Waiting<impl Fn(&Plan, Turn) -> Line + use<'a>> {
        let (gate, policy) = (self.gate, self.policy);
        let line = move |plan: &Plan, turn: Turn| line(gate, policy, plan, turn);
        Waiting { since: self.since, patience: self.patience, line }
    }

    /// Goes behind others, or is denied.
    fn join(&mut self, turn: Turn) -> Option<WaitingSlot<'a>> {
        let (gate, now) = (self.gate, self.gate.clock.now());
        let (waiting, wakes) = (self.waiting(), Arc::new(Notify::new()));
        let line = line(gate, self.policy, self.plan, turn);
        let (queue, own) = (&mut gate.lines.queue(), Arc::clone(&wakes));
        let joined = waiting.join(queue, self.policy, self.plan, (turn, now), own);
        joined.map(|ticket| gate.lines.hold(&gate.clock, (ticket, line), wakes))
    }
}

fn line(gate: &Gate, policy: &Policy, plan: &Plan, turn: Turn) -> Line {
    let partition = plan.partition(turn.partition);
    let name = partition.map(|it| gate.name_of(policy, (it.group(), it.key())));
    (name.unwrap_or_default(), turn.record)
}
