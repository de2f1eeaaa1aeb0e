//! The requests that a surface holds: who stands behind whom, and who is to be looked at when.
//!
//! Invariant: the waiters of one key stand in line in the order in which they came, and only the
//! first is decided again, when its quota admits it at the soonest. So a line costs about one
//! decision per request that goes, however long it is. Nobody is let go before its time, nobody is
//! kept beyond its deadline, and no more is held than [`Limits`] allow. Everything here is done in
//! O(log n), but that who comes goes past those of a lower priority one by one.
//!
//! Times belong to the line, and who takes the next one is who stands first: whoever comes goes
//! past those at the end that have a lower priority and can still be let go in time behind it. So a
//! priority changes who goes, never how many go or when, and nobody waits in vain for it.
//!
//! Places that `leaky-queue` has given out are held here too: they have a time and are not decided
//! again. When a waiter leaves, those behind it move up, and the last time of the line is the one
//! that is free.
//!
//! Deliberately absent: decisions, host calls and clocks. One queue is for one policy in one Envoy
//! worker or one isolate of the Worker; neither knows of the others, so order is kept within each.

mod agenda;
mod kept;
mod lines;
mod order;
mod pace;
mod places;
mod poll;
mod queue;
mod slab_map;
mod turn;

pub use crate::pipeline::plan::Full;
pub use crate::policy::limits::Limits;
pub use pace::Pace;
pub use poll::Poll;
pub use queue::{Due, Queue, Seat, Spot, Ticket};
pub use slab_map::SlabMap;
pub use turn::Turn;
