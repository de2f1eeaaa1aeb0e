//! Counts that a surface knows to be used up, so that it can deny later requests without asking.
//!
//! A remote store sends the states of a count in its response when it would deny the same request
//! next time ([`Counts::answer`](tollgate_storage::Counts::answer)). The sender keeps them and
//! decides on them first. Invariant: the memory only denies and never allows. Charges only add to
//! usage, so a request that an earlier state denies is denied by the present state too, with the
//! same numbers at the same time. Where units may come back, a state is trusted for [`FRESH`]. Then
//! one request is sent to the store. Meanwhile the state decides the other requests, for at most
//! the time in which the store may respond. Requests that the policy may not deny for good, such as
//! those that may wait, are not denied here.
//!
//! Deliberately absent: a clock, a store, and the transport to it. No keys are kept: a position is
//! found by a keyed hash.

mod memory;
mod stale;
mod table;
mod trust;

pub use memory::Denials;
pub use trust::FRESH;
