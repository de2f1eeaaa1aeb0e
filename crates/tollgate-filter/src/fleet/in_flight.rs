//! Whether requests of any worker of this process to one cluster are in flight. The host fails at
//! once both the requests beyond the cluster's circuit breaker and those that no healthy host could
//! take, and does not distinguish them.
//!
//! Invariant: a failure counts as an overload only while requests of this process are in flight, or
//! were until two timeouts ago. So an unreachable authority is never taken for a busy one for
//! longer. A worker writes the mark at most twice per timeout. Deliberately absent: how many
//! requests the host allows, which it does not report.

use std::cell::Cell;

use tollgate_core::{Span, Timestamp};
use tollgate_storage::table::{LAYOUT_VERSION, Seed, digest};

use crate::host::shared_data::{Change, SharedCell, SharedData, Stored};

/// The mark in the host's map, and when this worker last wrote it.
#[derive(Default)]
pub struct InFlightMarker {
    marked_at: Cell<Option<Timestamp>>,
}

impl InFlightMarker {
    /// A request of this worker to `cluster` is in flight at `now`, with this `timeout`.
    /// One is enough, because a circuit breaker's limit may be as low as that.
    pub fn mark(&self, shared: &impl SharedData, cluster: &str, (now, timeout): (Timestamp, Span)) {
        let half = Span::from_nanos(timeout.as_nanos() >> 1);
        if self.marked_at.get().is_some_and(|marked_at| now.since(marked_at) < half) {
            return;
        }
        self.marked_at.set(Some(now));
        let until = now.saturating_add(timeout).saturating_add(timeout);
        let until = until.as_nanos().to_le_bytes();
        // A worker that lost the race was preceded by one with the same mark.
        let _ = SharedCell::new(shared, &name(cluster))
            .change_once(|_| Change::Write(until.as_slice().into(), ()));
    }

    /// True while any worker has one in flight.
    pub fn is_set(shared: &impl SharedData, cluster: &str, now: Timestamp) -> bool {
        let Stored::Value(bytes, _) = shared.get(&name(cluster)) else { return false };
        let until = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        now < Timestamp::from_nanos(until)
    }
}

/// Longer than any name of a table.
fn name(cluster: &str) -> Vec<u8> {
    let id = digest(&Seed::default(), cluster.as_bytes());
    [&[LAYOUT_VERSION][..], b"crowd", &id].concat()
}
