//! Decisions on a store that many servers share: compare-and-swap, and one commit for many
//! requests.
//!
//! What one key has used is one value of the engine. A server decides on the bytes that it saw
//! last and sends one call: replace these bytes by those, if they are still there; else tell me
//! what is. While a key's call is under way the requests for that key wait, and are decided
//! together when it has returned: a hot key costs a call for each batch. See [`Committer`].
//!
//! The one invariant: **no answer leaves before the call it rests on is acknowledged**, a denial's
//! as little as an admission's. So every acknowledged admission was decided on the bytes that its
//! commit replaced, in the order of the commits. What is not known to have happened is never given
//! back and never done twice where that would be to a client's advantage.
//!
//! Deliberately absent: clocks, sockets, timers and randomness, which whoever drives this brings;
//! and arithmetic on quotas, which is [`Counts`](tollgate_policy::Counts)' alone, here as in an
//! object of the Worker.
//!
//! The modules stand in the order in which they import: each only what is declared below it.
mod outcome;
mod hearing;
mod committer;
mod key;
mod batch;
mod lane;
mod remembered;
mod value;
mod call;
mod ask;
mod breaker;
mod window;
mod clock;
mod steady;
mod reading;
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

pub use ask::{Ask, Failed};
pub use call::{Call, CallId, Fault, Reply, SCRIPT, What, Write};
pub use committer::{Committer, Event};
pub use name::Name;
pub use settings::Settings;
pub use tally::Tally;
pub use value::TAG_LEN;
