//! The waiting requests of a surface: their order, and the time at which each must be checked.
//!
//! A *line* is the waiting requests of one key at one rule. A *turn* is the next decision of a
//! request in a line. A *place* is a time of a `leaky-queue`, which is charged already. A *ticket*
//! identifies one waiting request.
//!
//! Invariant: the waiters of one key are in a line in the order in which they came, and only the
//! first is decided again, at the soonest time at which its quota can allow it. So a line costs
//! about one decision per request, however long it is. No waiter goes before its time, none is kept
//! beyond its deadline, and no more are kept than [`Limits`] allow. Everything here takes O(log n)
//! comparisons, except that a new waiter passes those of a lower priority one by one.
//!
//! Times belong to the line, and the first waiter takes the next time. A new waiter passes those at
//! the end that have a lower priority and still go in time after it. So a priority changes which
//! waiters go, never how many go or when, and it makes no waiter wait in vain.
//!
//! A rule with a limit on requests in flight has one line for that limit and its quotas: a request
//! waits until all of them allow it, and is charged by all of them at once. When a limit is full,
//! no time is known: the first of the line is decided again when a request of the key ends in this
//! process, and else after [`PLACE_LOOK`], then twice, then four times that.
//!
//! Places that `leaky-queue` has assigned are kept here too: they have a time and are not decided
//! again. When a waiter leaves, those after it move up, and the last time of the line becomes free.
//!
//! Deliberately absent: decisions, host calls and clocks. A queue serves one policy in one Envoy
//! worker or one isolate of the Worker. Queues do not know of each other, so order is kept within
//! each one.

mod agenda;
mod lines;
mod order;
mod pace;
mod places;
mod poll;
mod queue;
mod turn;
mod waiting_plan;

pub use crate::pipeline::in_flight::PLACE_LOOK;
pub use crate::pipeline::plan::Full;
pub use crate::spec::limits::Limits;
pub use pace::Pace;
pub use poll::Poll;
pub use queue::{Due, PlaceRequest, Queue, Ticket, TurnRequest};
pub use turn::Turn;
pub use waiting_plan::{WaitingPlan, WaitingPlanMut};
