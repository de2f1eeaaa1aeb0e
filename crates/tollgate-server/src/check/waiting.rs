//! Waiting in the server: the requests that it holds stand in line, one line for each key of a
//! rule.
//!
//! Invariant: as in the Worker: while others wait for its key a request goes behind them and
//! charges nothing; only the first of a line asks the store again, when that may admit it. So a
//! line costs about one call for every request that comes and one for every request that goes.
//! Servers do not know of each other: order is kept within each. A place in a `leaky-queue` is
//! waited for by whoever asks, who forwards the request.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Poll, Seat, Turn};
use tollgate_policy::{Answer, Plan, Policy};

use crate::check::charges::Charges;
use crate::check::partitions::{Charged, Spent};
use crate::gate::Gate;
use crate::gate::lines::{Line, Place};

/// A waiter asks again at least so often.
const LONGEST_SLEEP: Span = Span::from_secs(1);
/// Asking again and again for its turn while the first is being decided.
const SHORTEST_SLEEP: Span = Span::from_millis(5);
/// What is held for a request that waits, beside its plan: its connection's buffers.
const REQUEST_BYTES: usize = 16 * 1024;

/// How a request was decided.
#[derive(Default)]
pub(crate) struct Waited {
    /// How long it waited since it came.
    pub(crate) waited: Span,
    /// The store says that too many ask.
    pub(crate) is_overload: bool,
    /// What was charged last.
    pub(crate) charges: Charges,
}

impl Waited {
    fn take(&mut self, charged: Charged) {
        (self.is_overload, self.charges) = (charged.is_overload, charged.charges);
    }
}

/// Decides a request, letting it wait here as long as its rules and who asks allow.
pub(crate) async fn decide(
    gate: &Arc<Gate>,
    policy: &Arc<Policy>,
    plan: &mut Plan,
    patience: Span,
) -> Waited {
    let since = gate.clock.now();
    // What was used already waits for nothing.
    let patience = if plan.reports() { Span::ZERO } else { patience };
    let done = Waited::default();
    let mut request = Waiter { gate, policy, since, patience, plan, done };
    if let Some((turn, place)) = request.arrive().await {
        request.wait(turn, place).await;
    }
    request.done
}

/// A request on its way, which may wait.
struct Waiter<'a> {
    gate: &'a Arc<Gate>,
    policy: &'a Arc<Policy>,
    /// When it came.
    since: Timestamp,
    /// So long it may wait, whatever its rules allow.
    patience: Span,
    plan: &'a mut Plan,
    done: Waited,
}

impl<'a> Waiter<'a> {
    /// The request comes: the line that it stands in, if it waits.
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

    /// Waits until the request has its answer.
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

    /// Where the request waits on after it was decided again; nowhere, if it has its answer.
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

    /// How long it has waited, and how long it still may.
    fn spent(&self, waited: Span) -> Spent {
        Spent { waited, left: self.patience.saturating_sub(waited) }
    }

    /// The line of those who wait already for a key of this request.
    fn behind_others(&self) -> Option<Turn> {
        let queue = self.gate.lines.queue();
        let plan = &*self.plan;
        if queue.is_empty() || plan.reports() {
            return None;
        }
        plan.turns(self.policy).find(|turn| queue.has_line(&line(self.gate, plan, *turn)))
    }

    /// Goes behind them, or is refused.
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
    // Whoever is first sleeps until its time; whoever waits for the first's decision asks again.
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
