//! What a surface was told is used up, so that it can refuse what comes next without asking.
//!
//! A store that is far away tells the states of a count together with its answer when the same
//! request would be refused next time ([`Counts::answer`](tollgate_storage::Counts::answer)). The
//! sender keeps them and decides on them first. Invariant: only refusals are taken from here,
//! never admissions. Charges only ever add to what is used, so what is refused on an earlier
//! state is refused on the present one, with the same numbers, at the same time; where units
//! may come back a state is believed for [`FRESH`]; then one request asks, and meanwhile it decides
//! the others for at most as long as the store may take to answer. What the policy may not
//! refuse for good (a request that may wait) is not refused here.
//!
//! Deliberately absent: a clock, a store, and the way to it. Nothing here is a key: a place is
//! found by a keyed hash.

mod memory;
mod stale;
mod table;
mod trust;

pub use memory::Denials;
pub use trust::FRESH;
