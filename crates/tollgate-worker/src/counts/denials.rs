//! The denials that this isolate remembers: it denies later requests without calling an object.
//!
//! Invariant: all times here are by the isolate's clock, which does not advance between I/O, so a
//! request is denied as of the time at which it came. Deliberately absent: which denials are
//! remembered, for how long, and which are evicted from a full table; [`tollgate_policy::Denials`]
//! decides that. The memory is lost with the isolate, or with an instance that aborts; then objects
//! are called as usual.

use std::cell::RefCell;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Denials, Plan, Policy};
use tollgate_service::drive::DenialCache;

use crate::runtime::js;

/// The remembered denials. Not borrowed across an await.
pub(crate) struct CachedDenials(RefCell<Denials>);

impl CachedDenials {
    /// Empty. Create it only within a request: the platform gives random bytes at no other time.
    /// With `is_operated` an operator may reset a key, with `settles` a cost may turn out lower,
    /// and with `leases` leased units may come back. Objects are given up after `timeout`.
    pub(crate) fn new(is_operated: bool, settles: bool, leases: bool, timeout: Span) -> Self {
        let seed = [js::random(), js::random()].map(u64::to_le_bytes);
        let denials = Denials::new(seed.concat().try_into().unwrap_or_default()).patient(timeout);
        let denials = if settles { denials.settled() } else { denials };
        let denials = if leases { denials.leased() } else { denials };
        Self(RefCell::new(if is_operated { denials.operated() } else { denials }))
    }

    /// True when a remembered denial denies the request; its response is then complete. `relieved`
    /// gives the number of the last relief of a key, if it is known at that time.
    pub(crate) fn refuses(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        relieved: impl FnOnce(Timestamp) -> Option<u64>,
    ) -> bool {
        let now = js::now();
        let mut denials = self.0.borrow_mut();
        denials.know_relief(relieved(now));
        denials.refuses(policy, plan, now)
    }
}

impl DenialCache for CachedDenials {
    fn with<T>(&self, step: impl FnOnce(&mut Denials) -> T) -> Option<T> {
        Some(step(&mut self.0.borrow_mut()))
    }
}
