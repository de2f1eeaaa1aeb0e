//! How a request waits for its turn: behind whom, for how long, and what follows when it was
//! decided again.
//!
//! Invariant: while others wait for its key, a request goes behind them. A request that finds no
//! room, or would wait too long, is denied in its plan. Deliberately absent: the queue itself
//! (`tollgate-policy`), which the caller holds, the clock, and sleeping.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Queue, Ticket, Turn, TurnRequest};
use tollgate_policy::{Disposition, Plan, Policy};

/// A waiting request polls again at least this often, because those ahead of it may have left.
pub const LONGEST_SLEEP: Span = Span::from_secs(1);
/// How often it polls while the first of its line is being decided.
const SHORTEST_SLEEP: Span = Span::from_millis(5);
/// The memory that a surface holds for a waiting request, in addition to its plan: the buffers of a
/// connection, or about the size of the headers of most requests.
pub const REQUEST_BYTES: usize = 16 * 1024;

/// How long to sleep, for a request that is to poll again at `at`.
#[must_use]
pub fn sleep(now: Timestamp, at: Timestamp) -> Span {
    // The first sleeps until its time; one that needs the first's decision polls again soon.
    if at > now { at.since(now).min(LONGEST_SLEEP) } else { SHORTEST_SLEEP }
}

/// How long a request has waited, and how long it may still wait, whatever its rules allow.
#[derive(Clone, Copy, Debug)]
pub struct WaitBudget {
    /// Since it came.
    pub waited: Span,
    /// A place beyond this is denied.
    pub left: Span,
}

impl Default for WaitBudget {
    /// It has not waited, and may wait for as long as its rules allow.
    fn default() -> Self {
        Self { waited: Span::ZERO, left: Span::MAX }
    }
}

/// A request that may wait, and the lines of a surface.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<F> {
    /// When it came.
    pub since: Timestamp,
    /// How long it may wait, whatever its rules allow.
    pub patience: Span,
    /// The line of a turn's key.
    pub line: F,
}

impl<L: Ord + Clone, F: Fn(&Plan, Turn) -> L> Waiting<F> {
    /// The line of the requests that already wait for a key of this one.
    pub fn behind_others<T>(
        &self,
        queue: &Queue<L, T>,
        policy: &Policy,
        plan: &Plan,
    ) -> Option<Turn> {
        let waiting = plan.waiting(policy);
        if queue.is_empty() || waiting.is_decided_once() {
            return None;
        }
        waiting.turns().find(|turn| queue.has_line(&(self.line)(plan, *turn)))
    }

    /// Goes behind them, or is denied.
    pub fn join<T>(
        &self,
        queue: &mut Queue<L, T>,
        policy: &Policy,
        plan: &mut Plan,
        (turn, now): (Turn, Timestamp),
        value: T,
    ) -> Option<Ticket> {
        let bytes = plan.memory().shrink();
        let pace = plan.waiting(policy).pace(&turn, now);
        let joined = queue.join(now, self.turn_request(plan, turn, bytes), pace, value);
        joined.map_err(|(full, _)| plan.waiting_mut(policy).reject(full)).ok()
    }

    /// Where the request waits next after it was decided again; `None` if it has its decision.
    pub fn decided_again<T>(
        &self,
        queue: &mut Queue<L, T>,
        policy: &Policy,
        plan: &mut Plan,
        (ticket, waited_in): (Ticket, Turn),
        (waited, now): (Span, Timestamp),
    ) -> Option<Turn> {
        let outcome = plan.outcome(policy);
        let is_turned_down = matches!(outcome.disposition_after(waited), Disposition::Retry(_));
        let again = (is_turned_down && plan.outdated().is_none())
            .then(|| outcome.turn())
            .flatten()
            .and_then(|turn| Some((turn, plan.waiting(policy).pace(&turn, now)?)));
        let Some((turn, pace)) = again else {
            let _ = queue.done(ticket, now, plan.waiting(policy).pace(&waited_in, now));
            return None;
        };
        let bytes = plan.memory().shrink();
        match queue.again(ticket, now, self.turn_request(plan, turn, bytes), pace) {
            Ok(()) => Some(turn),
            Err(full) => {
                let full = full.map_or(Full::Late(Span::ZERO), |(full, _)| full);
                plan.waiting_mut(policy).reject(full);
                None
            }
        }
    }

    fn turn_request(&self, plan: &Plan, turn: Turn, bytes: usize) -> TurnRequest<L> {
        TurnRequest {
            key: (self.line)(plan, turn),
            cost: turn.cost,
            deadline: self.since.saturating_add(turn.max.min(self.patience)),
            rank: turn.rank,
            bytes: bytes.saturating_add(REQUEST_BYTES),
        }
    }
}
