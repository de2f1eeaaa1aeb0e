//! How far a held request is with the authority of a fleet.
//!
//! Invariant: what is paid is in the plan of the same request, and goes back if it does not go on.
//! Deliberately absent: what is done with it; that is `paused`'s.

use tollgate_core::Timestamp;
use tollgate_policy::Paid;

use crate::fleet::pauses::Stage;

/// How far it is.
pub struct Lease {
    /// What is paid already, with the partition, while the rest is asked for.
    pub paid: Vec<(usize, Paid)>,
    /// Where it waits, and how many bytes are held meanwhile; `None` before it does.
    pub stage: Option<(Stage, usize)>,
    /// Nobody is waited for beyond.
    pub deadline: Timestamp,
}
