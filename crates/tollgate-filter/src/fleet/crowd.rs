//! Whether questions are under way to one cluster, of all workers of this process: the host fails
//! at once what is beyond the cluster's circuit breaker, and what no host of it could take, and
//! does not say which.
//!
//! Invariant: a failure is taken for an overload only while questions of this process are under
//! way, or were until two time-outs ago: an authority that is away is never taken for a busy one
//! for longer. A worker notes it twice in a time-out at the most. Deliberately absent: how many
//! the host allows, which it tells nobody.

use std::cell::Cell;

use tollgate_core::{Span, Timestamp};
use tollgate_table::{LAYOUT_VERSION, Seed, digest};

use crate::host::shared_data::{INSERT, SharedData, Stored};

/// What this worker noted last.
#[derive(Default)]
pub struct Crowd {
    noted_at: Cell<Option<Timestamp>>,
}

impl Crowd {
    /// A question of this worker is under way to `cluster` at `now`, answered within `patience`.
    /// One is enough: nobody says how few a circuit breaker takes.
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
        let name = name(cluster);
        let cas = match shared.get(&name) {
            Stored::Value(_, cas) => cas,
            Stored::Absent => INSERT,
            Stored::Unreachable => return,
        };
        let until = now.saturating_add(patience).saturating_add(patience);
        // Who lost the race was preceded by one who noted the same.
        let _ = shared.set(&name, &until.as_nanos().to_le_bytes(), cas);
    }

    /// True while any worker has one under way.
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
