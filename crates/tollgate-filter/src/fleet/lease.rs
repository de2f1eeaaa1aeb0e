//! The progress of a held request with the authority of a fleet.
//!
//! Invariant: the paid leases are in the plan of the same request, and go back if it does not
//! continue. Deliberately absent: their use; that is `paused`'s.

use tollgate_core::Timestamp;
use tollgate_policy::Paid;

use crate::fleet::pauses::Stage;

/// The progress of a request with the authority.
pub struct Lease {
    /// The leases that are paid already, with the partition, while the rest is requested.
    pub paid: Vec<(usize, Paid)>,
    /// Where the request waits, and how many bytes are held meanwhile; `None` before it waits.
    pub stage: Option<(Stage, usize)>,
    /// The time until which the request waits.
    pub deadline: Timestamp,
}
