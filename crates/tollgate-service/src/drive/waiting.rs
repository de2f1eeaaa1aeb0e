//! How a request waits for its turn: behind whom, for how long, and what follows when it was
//! decided again.
//!
//! Invariant: while others wait for its key, a request goes behind them, and charges nothing. Only
//! the first of a line is decided again, when its counts may allow it. A request that finds no
//! room, or would wait too long, is denied in its plan. Deliberately absent: the queue itself
//! (`tollgate-policy`), which the caller holds, the clock, and sleeping.

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, Poll, Queue, Ticket, Turn, TurnRequest};
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

/// The lines of a surface.
pub trait WaitingLines {
    /// The name of a line: one key, and one rule with its quotas.
    type Name: Ord + Clone;
    /// The surface's value for a waiter.
    type Waiter;

    /// Calls `step` with the queue, which is not used elsewhere meanwhile.
    fn with<R>(&self, step: impl FnOnce(&mut Queue<Self::Name, Self::Waiter>) -> R) -> R;

    /// The line of a turn's key.
    fn name(&self, plan: &Plan, turn: Turn) -> Self::Name;

    /// The value for a request that begins to wait at `now`.
    fn waiter(&self, now: Timestamp) -> Self::Waiter;
}

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStep {
    /// Ask every count for its decision, and charge none ([`Drive::peek`](super::Drive::peek)).
    Peek,
    /// Charge a plan whose counts were asked ([`Drive::charge`](super::Drive::charge)).
    Charge,
    /// Decide the plan ([`Drive::decide`](super::Drive::decide)).
    Decide,
    /// Poll again at this time, or earlier; [`sleep`] says for how long.
    Sleep(Timestamp),
    /// The request got a place in a `leaky-queue` that comes after this time. A surface that holds
    /// requests until then adds it to its queue, and [continues](WaitCourse::hold).
    Hold(Span),
    /// The plan has its decision.
    Done,
}

/// The course of one request that may wait: carry out what [`WaitCourse::next`] returns, until it
/// is done. The plan is the caller's, and is the same in every call.
#[derive(Debug)]
pub struct WaitCourse {
    /// When it came.
    since: Timestamp,
    /// How long it may wait, whatever its rules allow.
    patience: Span,
    waited: Span,
    /// It may still be decided again this often while it waits for a place in flight.
    looks: u32,
    is_overload: bool,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Arrives,
    /// It came while others wait for this turn.
    Peeks(Turn),
    /// It is decided for the first time.
    Decides,
    /// It is charged although a count did not reply to the peek.
    Charges,
    Waits(Ticket, Turn),
    DecidesAgain(Ticket, Turn),
    /// Its place is offered to the surface, which may hold it.
    Offers,
    Holds(Ticket),
    Over,
}

impl WaitCourse {
    /// The course of a request that came at `since`, and waits for at most `patience`. While it
    /// waits for a place among the requests in flight it is decided at most `most_looks` times
    /// again.
    #[must_use]
    pub const fn new(since: Timestamp, patience: Span, most_looks: u32) -> Self {
        let (waited, is_overload, stage) = (Span::ZERO, false, Stage::Arrives);
        Self { since, patience, waited, looks: most_looks, is_overload, stage }
    }

    /// How long it has waited since it came, at its last poll.
    #[must_use]
    pub const fn waited(&self) -> Span {
        self.waited
    }

    /// The same, and how long it may still wait: for [`Drive::decide`](super::Drive::decide).
    #[must_use]
    pub const fn budget(&self) -> WaitBudget {
        WaitBudget { waited: self.waited, left: self.patience.saturating_sub(self.waited) }
    }

    /// Its ticket while it waits, also while it is decided again.
    #[must_use]
    pub const fn ticket(&self) -> Option<Ticket> {
        match self.stage {
            Stage::Waits(ticket, _) | Stage::DecidesAgain(ticket, _) | Stage::Holds(ticket) => {
                Some(ticket)
            }
            Stage::Arrives
            | Stage::Peeks(_)
            | Stage::Decides
            | Stage::Charges
            | Stage::Offers
            | Stage::Over => None,
        }
    }

    /// The turn that it waits for.
    #[must_use]
    pub const fn turn(&self) -> Option<Turn> {
        match self.stage {
            Stage::Waits(_, turn) | Stage::DecidesAgain(_, turn) => Some(turn),
            Stage::Arrives
            | Stage::Peeks(_)
            | Stage::Decides
            | Stage::Charges
            | Stage::Offers
            | Stage::Holds(_)
            | Stage::Over => None,
        }
    }

    /// The store reports an overload: the request waits no longer.
    pub const fn overloaded(&mut self) {
        self.is_overload = true;
    }

    /// The surface holds the request with this ticket until its place in a `leaky-queue` comes up.
    pub const fn hold(&mut self, ticket: Ticket) {
        self.stage = Stage::Holds(ticket);
    }

    /// The next step, after the last one was carried out. `now` is read where it is needed.
    pub fn next(
        &mut self,
        lines: &impl WaitingLines,
        policy: &Policy,
        plan: &mut Plan,
        now: impl Fn() -> Timestamp,
    ) -> WaitStep {
        match self.stage {
            Stage::Arrives => match behind_others(lines, policy, plan) {
                Some(turn) => self.enter(Stage::Peeks(turn), WaitStep::Peek),
                None => self.enter(Stage::Decides, WaitStep::Decide),
            },
            Stage::Peeks(_) | Stage::Decides | Stage::Charges if self.is_void(plan) => self.end(),
            Stage::Peeks(_) if plan.has_failed() => self.enter(Stage::Charges, WaitStep::Charge),
            Stage::Peeks(turn) => match plan.outcome(policy).disposition() {
                Disposition::Deny { .. } => self.end(),
                Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_) => {
                    self.join(lines, policy, plan, (turn, now))
                }
            },
            Stage::Decides => match plan.outcome(policy).disposition() {
                Disposition::Retry(wait) if plan.waiting(policy).is_decided_once() => {
                    plan.waiting_mut(policy).reject(Full::Late(wait));
                    self.end()
                }
                Disposition::Retry(_) => match plan.outcome(policy).turn() {
                    Some(turn) => self.join(lines, policy, plan, (turn, now)),
                    None => self.end(),
                },
                Disposition::Delay(wait) => self.enter(Stage::Offers, WaitStep::Hold(wait)),
                Disposition::Allow | Disposition::Deny { .. } => self.end(),
            },
            Stage::Charges => self.offer(policy, plan),
            Stage::Waits(ticket, turn) => {
                let now = now();
                self.poll(lines, policy, plan, (ticket, Some(turn)), now)
            }
            Stage::Holds(ticket) => {
                let now = now();
                self.poll(lines, policy, plan, (ticket, None), now)
            }
            Stage::DecidesAgain(ticket, turn) => {
                let again = self.decided_again(lines, policy, plan, (ticket, turn), now());
                match again {
                    Some(turn) if !self.is_overload => {
                        let now = now();
                        self.poll(lines, policy, plan, (ticket, Some(turn)), now)
                    }
                    Some(_) => self.end(),
                    None => self.offer(policy, plan),
                }
            }
            Stage::Offers | Stage::Over => self.end(),
        }
    }

    const fn enter(&mut self, stage: Stage, step: WaitStep) -> WaitStep {
        self.stage = stage;
        step
    }

    const fn end(&mut self) -> WaitStep {
        self.enter(Stage::Over, WaitStep::Done)
    }

    /// True when nothing is to be decided any more under this policy.
    fn is_void(&self, plan: &Plan) -> bool {
        self.is_overload || plan.outdated().is_some()
    }

    /// The request has its decision: it may have a place in a `leaky-queue`.
    fn offer(&mut self, policy: &Policy, plan: &Plan) -> WaitStep {
        match plan.outcome(policy).disposition_after(self.waited) {
            Disposition::Delay(wait) if !self.is_void(plan) => {
                self.enter(Stage::Offers, WaitStep::Hold(wait))
            }
            Disposition::Delay(_)
            | Disposition::Allow
            | Disposition::Deny { .. }
            | Disposition::Retry(_) => self.end(),
        }
    }

    /// Goes behind others, or is denied.
    fn join(
        &mut self,
        lines: &impl WaitingLines,
        policy: &Policy,
        plan: &mut Plan,
        (turn, now): (Turn, impl Fn() -> Timestamp),
    ) -> WaitStep {
        let joins_at = now();
        let bytes = plan.memory().shrink();
        let pace = plan.waiting(policy).pace(&turn, joins_at);
        let request = self.turn_request(lines, plan, turn, bytes);
        let waiter = lines.waiter(joins_at);
        match lines.with(|queue| queue.join(joins_at, request, pace, waiter)) {
            Ok(ticket) => self.poll(lines, policy, plan, (ticket, Some(turn)), now()),
            Err((full, _)) => {
                plan.waiting_mut(policy).reject(full);
                self.end()
            }
        }
    }

    /// Looks whether its turn, or its time, has come.
    fn poll(
        &mut self,
        lines: &impl WaitingLines,
        policy: &Policy,
        plan: &mut Plan,
        (ticket, turn): (Ticket, Option<Turn>),
        now: Timestamp,
    ) -> WaitStep {
        self.waited = now.since(self.since);
        let (poll, is_look) = lines.with(|queue| {
            let poll = queue.poll(ticket, now);
            let is_look = poll == Poll::Decide && queue.ahead_for_place(ticket, 0).is_some();
            (poll, is_look)
        });
        match (poll, turn) {
            (Poll::Wait(at), Some(turn)) => {
                self.enter(Stage::Waits(ticket, turn), WaitStep::Sleep(at))
            }
            (Poll::Wait(at), None) => self.enter(Stage::Holds(ticket), WaitStep::Sleep(at)),
            (Poll::Go, _) | (Poll::Decide, None) => self.end(),
            (Poll::Over(full), _) => {
                plan.waiting_mut(policy).reject(full);
                self.end()
            }
            (Poll::Decide, Some(_)) if self.looks == 0 => {
                let _ = lines.with(|queue| queue.leave(ticket, now));
                plan.waiting_mut(policy).reject(Full::NoPlace);
                self.end()
            }
            (Poll::Decide, Some(turn)) => {
                self.looks = self.looks.saturating_sub(u32::from(is_look));
                self.enter(Stage::DecidesAgain(ticket, turn), WaitStep::Decide)
            }
        }
    }

    /// Where the request waits next after it was decided again; `None` if it has its decision.
    fn decided_again(
        &self,
        lines: &impl WaitingLines,
        policy: &Policy,
        plan: &mut Plan,
        (ticket, waited_in): (Ticket, Turn),
        now: Timestamp,
    ) -> Option<Turn> {
        let outcome = plan.outcome(policy);
        let is_turned_down =
            matches!(outcome.disposition_after(self.waited), Disposition::Retry(_));
        let again = (is_turned_down && plan.outdated().is_none())
            .then(|| outcome.turn())
            .flatten()
            .and_then(|turn| Some((turn, plan.waiting(policy).pace(&turn, now)?)));
        let Some((turn, pace)) = again else {
            let pace = plan.waiting(policy).pace(&waited_in, now);
            let _ = lines.with(|queue| queue.done(ticket, now, pace));
            return None;
        };
        let bytes = plan.memory().shrink();
        let request = self.turn_request(lines, plan, turn, bytes);
        match lines.with(|queue| queue.again(ticket, now, request, pace)) {
            Ok(()) => Some(turn),
            Err(full) => {
                let full = full.map_or(Full::Late(Span::ZERO), |(full, _)| full);
                plan.waiting_mut(policy).reject(full);
                None
            }
        }
    }

    fn turn_request<L: WaitingLines>(
        &self,
        lines: &L,
        plan: &Plan,
        turn: Turn,
        bytes: usize,
    ) -> TurnRequest<L::Name> {
        TurnRequest {
            key: lines.name(plan, turn),
            cost: turn.cost,
            deadline: self.since.saturating_add(turn.max.min(self.patience)),
            rank: turn.rank,
            bytes: bytes.saturating_add(REQUEST_BYTES),
        }
    }
}

/// The line of the requests that already wait for a key of this one.
fn behind_others(lines: &impl WaitingLines, policy: &Policy, plan: &Plan) -> Option<Turn> {
    if lines.with(|queue| queue.is_empty()) || plan.waiting(policy).is_decided_once() {
        return None;
    }
    let is_line = |turn: &Turn| {
        let name = lines.name(plan, *turn);
        lines.with(|queue| queue.has_line(&name))
    };
    plan.waiting(policy).turns().find(is_line)
}
