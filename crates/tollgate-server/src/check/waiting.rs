//! Waiting in the server: the requests that it holds wait in line, one line for each key of a rule.
//!
//! Invariant: as in the Worker: while others wait for its key, a request goes behind them and
//! charges nothing. Only the first of a line asks the store again, when the store may allow it. So
//! a line costs about one call per request that comes and one per request that goes. Servers do not
//! know each other's lines: order is kept within each server. The caller waits for a place in a
//! `leaky-queue`, and forwards the request. Deliberately absent: what follows which step; that is
//! in the service ([`WaitCourse`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Queue, Turn};
use tollgate_policy::{Plan, Policy};
use tollgate_service::drive::waiting::{self, WaitCourse, WaitStep, WaitingLines};

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
    // A report of use that has already happened waits for nothing.
    let is_decided_once = plan.waiting(policy).is_decided_once();
    let patience = if is_decided_once { Span::ZERO } else { patience };
    let mut course = WaitCourse::new(gate.clock.now(), patience, u32::MAX);
    let (lines, mut slot) = (GateLines { gate, policy }, None);
    let mut done = WaitResult::default();
    loop {
        let step = course.next(&lines, policy, plan, || gate.clock.now());
        lines.follow(&course, plan, &mut slot);
        match step {
            WaitStep::Peek => done.is_overload = gate.peek(policy, plan).await,
            WaitStep::Charge => done.take(gate.charge(policy, plan, course.budget()).await),
            WaitStep::Decide => done.take(gate.decide_once(policy, plan, course.budget()).await),
            WaitStep::Sleep(at) => {
                let sleep = waiting::sleep(gate.clock.now(), at);
                let sleep = Duration::from_nanos(sleep.as_nanos());
                match &slot {
                    // A place has ended, or the request ahead has gone: it polls at once.
                    Some((_, slot)) => {
                        let _ = tokio::time::timeout(sleep, slot.wakes.notified()).await;
                    }
                    None => tokio::time::sleep(sleep).await,
                }
            }
            WaitStep::Hold(_) | WaitStep::Done => {
                done.waited = course.waited();
                return done;
            }
        }
        if done.is_overload {
            course.overloaded();
        }
    }
}

/// The lines of this server, for requests under one policy.
struct GateLines<'a> {
    gate: &'a Gate,
    policy: &'a Policy,
}

impl WaitingLines for GateLines<'_> {
    type Name = Line;
    type Waiter = Arc<Notify>;

    fn with<R>(&self, step: impl FnOnce(&mut Queue<Line, Arc<Notify>>) -> R) -> R {
        step(&mut self.gate.lines.queue())
    }

    fn name(&self, plan: &Plan, turn: Turn) -> Line {
        let partition = plan.partition(turn.partition);
        let name = partition.map(|it| self.gate.name_of(self.policy, (it.group(), it.key())));
        (name.unwrap_or_default(), turn.record)
    }

    fn waiter(&self, _: Timestamp) -> Arc<Notify> {
        Arc::new(Notify::new())
    }
}

impl<'a> GateLines<'a> {
    /// Takes a slot in the line in which the request waits now: from then on it leaves the line
    /// when it has its decision, or its client leaves.
    fn follow(&self, course: &WaitCourse, plan: &Plan, slot: &mut Option<(Turn, WaitingSlot<'a>)>) {
        let (Some(ticket), Some(turn)) = (course.ticket(), course.turn()) else { return };
        if let Some((waited_in, slot)) = slot {
            if *waited_in != turn {
                *waited_in = turn;
                slot.moved(self.name(plan, turn));
            }
            return;
        }
        let (lines, line) = (&self.gate.lines, self.name(plan, turn));
        let wakes = lines.queue().value_mut(ticket).map(|wakes| Arc::clone(wakes));
        let hold = |wakes| (turn, lines.hold(&self.gate.clock, (ticket, line), wakes));
        *slot = wakes.map(hold);
    }
}
