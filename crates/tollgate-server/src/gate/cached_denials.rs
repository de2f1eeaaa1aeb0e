//! The denials that this server remembers, where its counts are in an engine: it denies later
//! requests without a call.
//!
//! Invariant: of one denial at most one request per second asks the engine; a denial is used for a
//! second, and while the engine is silent for its time-out beyond that. The charge of a client that
//! left is refunded, by any server, so a denial is never used until its `retry_after`: the units
//! that came back would be missed. Deliberately absent: which denials are remembered, for how long,
//! and which are evicted from a full table; [`tollgate_policy::Denials`] decides that. Where counts
//! are in this process nothing is remembered, because a look at them costs no more.

use std::sync::{Mutex, PoisonError};

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Denials, Plan, Policy};
use tollgate_service::drive::DenialCache;

/// The remembered denials. Not locked across an await.
#[derive(Debug)]
pub(crate) struct CachedDenials(Option<Mutex<Denials>>);

impl CachedDenials {
    /// Empty. The store is given up after `timeout`; `None` where no denial is to be remembered.
    /// `seed` is random and known only to this process.
    pub(crate) fn new(timeout: Option<Span>, seed: [u8; 16]) -> Self {
        let denials = |timeout| Denials::new(seed).patient(timeout).refunded();
        Self(timeout.map(|timeout| Mutex::new(denials(timeout))))
    }

    /// True when a remembered denial denies the request; its response is then complete.
    pub(crate) fn refuses(&self, policy: &Policy, plan: &mut Plan, now: Timestamp) -> bool {
        self.with(|denials| denials.refuses(policy, plan, now)).unwrap_or(false)
    }

    /// Where the counts of partition `i` are remembered, for [`forget`](Self::forget).
    pub(crate) fn places(&self, policy: &Policy, plan: &Plan, i: usize) -> Vec<u64> {
        self.with(|denials| denials.places(policy, plan, i)).unwrap_or_default()
    }

    /// Forgets these counts, because a charge of them was refunded.
    pub(crate) fn forget(&self, places: &[u64]) {
        self.with(|denials| denials.forget(places));
    }

    /// Forgets all denials, because an operator changed a key here.
    pub(crate) fn forget_all(&self) {
        self.with(Denials::forget_all);
    }
}

impl DenialCache for CachedDenials {
    fn with<T>(&self, step: impl FnOnce(&mut Denials) -> T) -> Option<T> {
        Some(step(&mut self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
