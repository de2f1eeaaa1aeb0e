//! Waiting in the server: the requests that it holds wait in line, one line for each key of a rule.
//!
//! Invariant: as in the Worker: while others wait for its key, a request goes behind them and
//! charges nothing. Only the first of a line asks the store again, when the store may allow it. So
//! a line costs about one call per request that comes and one per request that goes. Servers do not
//! know each other's lines: order is kept within each server. The caller waits for a place in a
//! `leaky-queue`, and forwards the request.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Poll, Seat, Turn};
use tollgate_policy::{Answer, Plan, Policy};
use tollgate_service::drive::Spent;

use crate::check::charges::Charges;
use crate::check::partitions::Charged;
use crate::gate::Gate;
use crate::gate::lines::{Line, Place};

/// A waiting request asks again at least this often.
const LONGEST_SLEEP: Span = Span::from_secs(1);
/// How often a waiting request checks for its turn while the first one is being decided.
const SHORTEST_SLEEP: Span = Span::from_millis(5);
/// The memory of a waiting request in addition to its plan: its connection's buffers.
const REQUEST_BYTES: usize = 16 * 1024;

/// How a request was decided.
#[derive(Default)]
pub(crate) struct Waited {
    /// How long it waited since it came.
    pub(crate) waited: Span,
    /// The store reports an overload.
    pub(crate) is_overload: bool,
    /// The last charges.
    pub(crate) charges: Charges,
}

impl Waited {
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
) -> Waited {
    let since = gate.clock.now();
    // A report of use that has already happened waits for nothing.
    let patience = if plan.reports() { Span::ZERO } else { patience };
    let done = Waited::default();
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
    done: Waited,
}

impl<'a> Waiter<'a> {
    /// Decides the request on arrival; returns its place in a line, if it waits.
    async fn arrive(&mut self) -> Option<(Turn, Place<'a>)> {
        let (gate, policy) = (self.gate, self.policy);
        if let Some(turn) = self.behind_others() {
            self.done.is_overload = gate.look(policy, self.plan).await;
            if self.done.is_overload || self.plan.newer().is_some() {
                return None;
            }
            if self.plan.has_failed() {
                let spent = self.spent(Span::ZERO);
                let charged = gate.charge(policy, self.plan, spent).await;
                self.done.take(charged);
                return None;
            }
            let answer = self.plan.outcome(policy).answer();
            return match answer {
                Answer::Refuse { .. } => None,
                Answer::Pass | Answer::Delay(_) | Answer::Retry(_) => {
                    Some((turn, self.join(turn)?))
                }
            };
        }
        let spent = self.spent(Span::ZERO);
        let charged = gate.decide_once(policy, self.plan, spent).await;
        self.done.take(charged);
        if self.done.is_overload || self.plan.newer().is_some() {
            return None;
        }
        if let Answer::Retry(wait) = self.plan.outcome(policy).answer() {
            if self.plan.reports() {
                self.plan.reject_waiting(policy, Full::Late(wait));
                return None;
            }
            let turn = self.plan.outcome(policy).turn()?;
            return Some((turn, self.join(turn)?));
        }
        None
    }

    /// Waits until the request has its decision.
    async fn wait(&mut self, mut turn: Turn, place: Place<'a>) {
        let (gate, policy, ticket) = (self.gate, self.policy, place.ticket);
        loop {
            let now = gate.clock.now();
            self.done.waited = now.since(self.since);
            let poll = gate.lines.queue().poll(ticket, now);
            match poll {
                Poll::Wait(at) => sleep(now, at).await,
                Poll::Go => return,
                Poll::Over(wait) => return self.plan.reject_waiting(policy, Full::Late(wait)),
                Poll::Decide => {
                    let spent = self.spent(self.done.waited);
                    let charged = gate.decide_once(policy, self.plan, spent).await;
                    self.done.take(charged);
                    match self.decided_again(&place, turn) {
                        Some(again) if !self.done.is_overload => turn = again,
                        _ => return,
                    }
                }
            }
        }
    }

    /// The place where the request continues to wait after it was decided again; `None` if it has
    /// its decision.
    fn decided_again(&mut self, place: &Place<'_>, stood_in: Turn) -> Option<Turn> {
        let (policy, now) = (self.policy, self.gate.clock.now());
        let wait = (self.since, self.patience);
        let plan = &mut *self.plan;
        let mut queue = self.gate.lines.queue();
        let answer = plan.outcome(policy).answer_after(self.done.waited);
        let is_turned_down = matches!(answer, Answer::Retry(_));
        let again = (is_turned_down && plan.newer().is_none())
            .then(|| plan.outcome(policy).turn())
            .flatten()
            .and_then(|turn| Some((turn, plan.pace(policy, &turn, now)?)));
        let Some((turn, pace)) = again else {
            let _ = queue.done(place.ticket, now, plan.pace(policy, &stood_in, now));
            return None;
        };
        match queue.again(place.ticket, now, seat(self.gate, plan, turn, wait), pace) {
            Ok(()) => Some(turn),
            Err(full) => {
                let full = full.map_or(Full::Late(Span::ZERO), |(full, ())| full);
                plan.reject_waiting(policy, full);
                None
            }
        }
    }

    /// How long it has waited, and how long it may still wait.
    fn spent(&self, waited: Span) -> Spent {
        Spent { waited, left: self.patience.saturating_sub(waited) }
    }

    /// The line of the requests that already wait for a key of this one.
    fn behind_others(&self) -> Option<Turn> {
        let queue = self.gate.lines.queue();
        let plan = &*self.plan;
        if queue.is_empty() || plan.reports() {
            return None;
        }
        plan.turns(self.policy).find(|turn| queue.has_line(&line(self.gate, plan, *turn)))
    }

    /// Goes behind them, or is denied.
    fn join(&mut self, turn: Turn) -> Option<Place<'a>> {
        let (gate, policy, now) = (self.gate, self.policy, self.gate.clock.now());
        let plan = &mut *self.plan;
        plan.shrink();
        let seat = seat(gate, plan, turn, (self.since, self.patience));
        let pace = plan.pace(policy, &turn, now);
        let joined = gate.lines.queue().join(now, seat, pace, ());
        match joined {
            Ok(ticket) => Some(gate.lines.hold(&gate.clock, ticket)),
            Err((full, ())) => {
                plan.reject_waiting(policy, full);
                None
            }
        }
    }
}

async fn sleep(now: Timestamp, at: Timestamp) {
    // The first in line sleeps until its time; a request that waits for the first's decision asks
    // again.
    let sleep = if at > now { at.since(now).min(LONGEST_SLEEP) } else { SHORTEST_SLEEP };
    tokio::time::sleep(Duration::from_nanos(sleep.as_nanos())).await;
}

fn line(gate: &Gate, plan: &Plan, turn: Turn) -> Line {
    let mut hasher = SipHasher13::new_with_key(&gate.seed);
    hasher.write(turn.key(plan));
    (hasher.finish128().as_u128(), turn.record)
}

fn seat(gate: &Gate, plan: &Plan, turn: Turn, wait: (Timestamp, Span)) -> Seat<Line> {
    let (since, patience) = wait;
    Seat {
        key: line(gate, plan, turn),
        cost: turn.cost,
        deadline: since.saturating_add(turn.max.min(patience)),
        rank: turn.rank,
        bytes: plan.held_bytes().saturating_add(REQUEST_BYTES),
    }
}
