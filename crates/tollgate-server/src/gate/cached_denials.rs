//! The denials that this server remembers, where its counts are in an engine: it denies later
//! requests without a call.
//!
//! Invariant: of one denial at most one request per second asks the engine; a denial is used for a
//! second, and while the engine is silent for its time-out beyond that. The charge of a client that
//! left is refunded, by any server, so a denial is never used until its `retry_after`: the units
//! that came back would be missed. Deliberately absent: which denials are remembered, for how long,
//! and which are evicted from a full table; [`tollgate_policy::Denials`] decides that. Where counts
//! are in this process nothing is remembered, because a look at them costs no more.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Denials, Plan, Policy};

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
        self.lock().is_some_and(|mut denials| denials.refuses(policy, plan, now))
    }

    /// True when a denial would decide the request if the store of partition `i` does not respond:
    /// see [`Denials::would_stand_in_for`].
    pub(crate) fn would_stand_in_for(
        &self,
        policy: &Policy,
        plan: &Plan,
        i: usize,
        times: (Timestamp, Timestamp),
    ) -> bool {
        self.lock().is_some_and(|mut denials| denials.would_stand_in_for(policy, plan, i, times))
    }

    /// True when a denial decides the request, because the store did not respond: see
    /// [`Denials::overrules_failure`].
    pub(crate) fn overrules_failure(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        times: (Timestamp, Timestamp),
    ) -> bool {
        plan.has_failed()
            && self.lock().is_some_and(|mut denials| denials.overrules_failure(policy, plan, times))
    }

    /// Remembers the denial of partition `i`, if there was one. It is dated to when the store was
    /// asked, at `asked_at`: so by the remembered counts the time is never earlier than in the
    /// engine, and none of them denies for longer than the engine would.
    pub(crate) fn record_reply(&self, policy: &Policy, plan: &Plan, i: usize, asked_at: Timestamp) {
        if plan.partition(i).is_some_and(|partition| partition.has_states())
            && let Some(mut denials) = self.lock()
        {
            denials.record_reply(policy, plan, i, asked_at);
        }
    }

    /// Forgets the counts of partition `i`: see [`Denials::forget_partition`].
    pub(crate) fn forget_partition(&self, policy: &Policy, plan: &Plan, i: usize) {
        if let Some(mut denials) = self.lock() {
            denials.forget_partition(policy, plan, i);
        }
    }

    /// Forgets the denials that the replies to a request did not confirm.
    pub(crate) fn close(&self, policy: &Policy, plan: &Plan) {
        if let Some(mut denials) = self.lock() {
            denials.close(policy, plan);
        }
    }

    /// Where the counts of partition `i` are remembered, for [`forget`](Self::forget).
    pub(crate) fn places(&self, policy: &Policy, plan: &Plan, i: usize) -> Vec<u64> {
        self.lock().map(|denials| denials.places(policy, plan, i)).unwrap_or_default()
    }

    /// Forgets these counts, because a charge of them was refunded.
    pub(crate) fn forget(&self, places: &[u64]) {
        if let Some(mut denials) = self.lock() {
            denials.forget(places);
        }
    }

    /// Forgets all denials, because an operator changed a key here.
    pub(crate) fn forget_all(&self) {
        if let Some(mut denials) = self.lock() {
            denials.forget_all();
        }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Denials>> {
        Some(self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
