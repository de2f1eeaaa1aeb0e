//! That a policy from a server was stored, which each worker takes up before it decides its next
//! request.
//!
//! Invariant: the number grows with each policy that is stored; it is read before the policy, so
//! none is missed. Not here: the policy, which is in the process's map.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_filter::filter::Urgency;

use crate::clock;

/// For how long a worker may decide on an earlier policy while others compile theirs.
const NEW_FOR: Duration = Duration::from_secs(1);

static NUMBER: AtomicU64 = AtomicU64::new(0);
/// When the last one was stored, in nanoseconds of the process's clock.
static STORED_AT: AtomicU64 = AtomicU64::new(0);

/// A policy was stored.
pub(crate) fn announce() {
    let now = clock::monotonic().unwrap_or_default().as_nanos();
    STORED_AT.store(now, Ordering::Relaxed);
    NUMBER.fetch_add(1, Ordering::Release);
}

/// How many policies have been stored so far.
pub(crate) fn number() -> u64 {
    NUMBER.load(Ordering::Acquire)
}

/// Whether a worker that has looked at this many of them may wait for others.
pub(crate) fn urgency(seen: u64) -> Urgency {
    if number().saturating_sub(seen) > 1 {
        return Urgency::Late;
    }
    let now = clock::monotonic().unwrap_or_default().as_nanos();
    let age = Duration::from_nanos(now.saturating_sub(STORED_AT.load(Ordering::Relaxed)));
    if age < NEW_FOR { Urgency::New } else { Urgency::Late }
}
