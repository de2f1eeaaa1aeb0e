//! Whether requests of any worker of this process to one cluster are in flight. The host fails at
//! once both the requests beyond the cluster's circuit breaker and those that no healthy host could
//! take, and does not distinguish them.
//!
//! Invariant: a failure counts as an overload only while requests of this process are in flight, or
//! were until two timeouts ago. So an unreachable authority is never taken for a busy one for
//! longer. A worker notes it at most twice per timeout. Deliberately absent: how many requests the
//! host allows, which it does not report.

use std::cell::Cell;

use tollgate_core::{Span, Timestamp};
use tollgate_table::{LAYOUT_VERSION, Seed, digest};

use crate::host::shared_cell::{Change, SharedCell};
use crate::host::shared_data::{SharedData, Stored};

/// The last note of this worker.
#[derive(Default)]
pub struct Crowd {
    noted_at: Cell<Option<Timestamp>>,
}

impl Crowd {
    /// A request of this worker to `cluster` is in flight at `now`, with the timeout `patience`.
    /// One is enough, because a circuit breaker's limit may be as low as that.
    pub fn note(
        &self,
        shared: &impl SharedData,
        cluster: &str,
        (now, patience): (Timestamp, Span),
    ) {
        let half = Span::from_nanos(patience.as_nanos() >> 1);
        if self.noted_at.get().is_some_and(|noted_at| now.since(noted_at) < half) {
            return;
        }
        self.noted_at.set(Some(now));
        let until = now.saturating_add(patience).saturating_add(patience);
        let until = until.as_nanos().to_le_bytes();
        // A worker that lost the race was preceded by one with the same note.
        let _ = SharedCell::new(shared, &name(cluster))
            .change_once(|_| Change::Write(until.as_slice().into(), ()));
    }

    /// True while any worker has one in flight.
    pub fn is_there(shared: &impl SharedData, cluster: &str, now: Timestamp) -> bool {
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
