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
//!
//! Deliberately absent: what follows which step; that is in the service ([`WaitCourse`]).

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::{Full, PlaceRequest, Queue, Ticket, Turn};
use tollgate_policy::{Plan, Policy};
use tollgate_service::drive::waiting::{self, REQUEST_BYTES, WaitCourse, WaitStep, WaitingLines};

use crate::counts::charging::Calls;
use crate::counts::lines::{Line, MOST_LOOKS};
use crate::counts::objects::Objects;
use crate::runtime::js;

/// Decides a request, letting it wait in this isolate as long as its rules allow. With `holds` it
/// is kept here until its place in a `leaky-queue` comes up; else its caller keeps it. Returns how
/// long it waited since it came.
pub(crate) async fn decide(
    objects: &Objects,
    policy: &Policy,
    plan: &mut Plan,
    holds: bool,
    since: Timestamp,
) -> Span {
    objects.lines.sweep(since);
    let lines = ObjectLines { objects, policy };
    let mut course = WaitCourse::new(since, Span::MAX, MOST_LOOKS);
    let mut calls: Option<Calls<'_>> = None;
    loop {
        match course.next(&lines, policy, plan, js::now) {
            WaitStep::Peek => calls = Some(objects.peek(policy, plan).await),
            WaitStep::Charge => {
                if let Some(calls) = &mut calls {
                    calls.charge(plan).await;
                }
            }
            WaitStep::Decide => {
                if let Some(ticket) = course.ticket() {
                    // At most three calls per key: decision, charge, refund.
                    let calls = Span::from_millis(u64::from(objects.timeout_ms)).saturating_mul(4);
                    objects.lines.expect(ticket, js::now().saturating_add(calls));
                }
                calls = Some(objects.decide_once(policy, plan, course.waited()).await);
            }
            WaitStep::Sleep(at) => {
                calls = None; // nothing of them is kept while it waits
                lines.sleep(&course, at).await;
            }
            WaitStep::Hold(wait) if holds => match lines.hold(plan, wait) {
                Ok(ticket) => course.hold(ticket),
                Err(full) => {
                    plan.waiting_mut(policy).reject(full);
                    if let Some(calls) = &mut calls {
                        calls.give_back(plan).await;
                    }
                    return course.waited();
                }
            },
            WaitStep::Hold(_) | WaitStep::Done => return course.waited(),
        }
    }
}

/// The lines of this isolate, for requests under one policy.
struct ObjectLines<'a> {
    objects: &'a Objects,
    policy: &'a Policy,
}

impl WaitingLines for ObjectLines<'_> {
    type Name = Line;
    type Waiter = Timestamp;

    fn with<R>(&self, step: impl FnOnce(&mut Queue<Line, Timestamp>) -> R) -> R {
        step(&mut self.objects.lines.queue.borrow_mut())
    }

    fn name(&self, plan: &Plan, turn: Turn) -> Line {
        (self.objects.name_of(self.policy, turn.key(plan)), turn.record)
    }

    fn waiter(&self, now: Timestamp) -> Timestamp {
        now
    }
}

impl ObjectLines<'_> {
    /// Sleeps until the waiter polls again, at `at` or earlier.
    async fn sleep(&self, course: &WaitCourse, at: Timestamp) {
        let (lines, now) = (&self.objects.lines, js::now());
        let ticket = course.ticket();
        let longest = ticket.and_then(|ticket| lines.longest_sleep(ticket)).unwrap_or(Span::MAX);
        let sleep = waiting::sleep(now, at).min(longest);
        if let Some(ticket) = ticket {
            lines.expect(ticket, now.saturating_add(sleep));
        }
        js::wait(sleep.as_millis_ceil()).await;
        lines.sweep(js::now());
    }

    /// Waits for its place in a `leaky-queue`.
    fn hold(&self, plan: &mut Plan, wait: Span) -> Result<Ticket, Full> {
        let now = js::now();
        let bytes = plan.memory().shrink();
        let place = plan.waiting(self.policy).place();
        // No request goes before others here, so no deadline is checked.
        let place_request = PlaceRequest {
            line: place.map(|place| (self.name(plan, place), place.cost)),
            deadline: Timestamp::MAX,
            rank: 0,
            bytes: bytes.saturating_add(REQUEST_BYTES),
        };
        let at = now.saturating_add(wait);
        let held = self.with(|queue| queue.hold(now, place_request, at, now));
        held.map_err(|(full, _)| full)
    }
}
