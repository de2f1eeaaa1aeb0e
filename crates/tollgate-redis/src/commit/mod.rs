//! Decisions on a store that many servers share: compare-and-swap, and one commit for many
//! requests.
//!
//! The usage of one key is one value of the engine. A server decides on the bytes that it saw last
//! and sends one call: replace these bytes with those if they are still stored; otherwise return
//! the stored bytes. While a key's call is under way, the requests for that key wait, and are
//! decided together when it has returned: a hot key costs one call per batch. See [`Committer`].
//!
//! The one invariant: **no response leaves before the call it depends on is acknowledged**, whether
//! it allows or denies. So every acknowledged charge was decided on the bytes that its commit
//! replaced, in the order of the commits. A charge whose result is unknown is never returned, and
//! nothing is done twice where that would benefit a client.
//!
//! Deliberately absent: clocks, sockets, timers and randomness, which the driver supplies; and
//! arithmetic on quotas, which only [`Counts`](tollgate_storage::Counts) does, here as in an object
//! of the Worker.
//!
//! Modules are listed in import order: each imports only modules declared below it.
mod outcome;
mod node_facts;
mod committer;
mod key;
mod batch;
mod lane;
mod value_memory;
mod value;
mod call;
mod request;
mod breaker;
mod clock;
mod steady;
mod tally;
mod settings;
mod name;
mod mutation;

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]
mod model;

pub use call::{Call, CallId, Fault, Operation, Reply, SCRIPT, Write};
pub use committer::{Committer, Event};
pub(crate) use key::Answer;
pub use name::Name;
pub use request::{Failed, KeyRequest};
pub use settings::Settings;
pub use tally::Tally;
pub use value::TAG_LEN;
