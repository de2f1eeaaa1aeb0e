//! The speed of a line, from the latest decisions of its rule's quotas.
//!
//! Invariant: a time computed here is never later than the one at which the request is allowed if
//! the key has no other use and no refunds, so a request denied because of it could not have been
//! allowed in time. `Limiter::soonest` documents how much earlier the time may be.

use alloc::vec::Vec;

use tollgate_core::{Decision, Limiter, Timestamp};

/// The latest decisions of one rule's quotas for one key.
#[derive(Clone, Debug)]
pub struct Pace {
    at: Timestamp,
    quotas: Vec<(Limiter, Decision)>,
    /// The denied cost, and the time until which it is denied.
    denied: Option<(u64, Timestamp)>,
    /// A request that is allowed is not charged yet, so none has to wait for those ahead.
    deferred: bool,
}

impl Pace {
    pub(crate) fn new(
        at: Timestamp,
        cost: u64,
        deferred: bool,
        quotas: impl Iterator<Item = (Limiter, Decision)>,
    ) -> Self {
        let quotas: Vec<_> = quotas.collect();
        let waits = quotas.iter().filter_map(|(_, decision)| decision.retry_after);
        let denied = waits.max().map(|wait| (cost, at.saturating_add(wait)));
        Self { at, quotas, denied, deferred }
    }

    /// Before this time `cost` is not allowed, when costs of `ahead` in total go first.
    #[must_use]
    pub fn fits_at(&self, ahead: u64, cost: u64) -> Timestamp {
        let units = if self.deferred { cost } else { ahead.saturating_add(cost) };
        let soonest =
            self.quotas.iter().map(|(limiter, decision)| limiter.soonest(decision, units));
        let soonest = self.at.saturating_add(soonest.max().unwrap_or_default());
        match self.denied {
            Some((denied, until)) if ahead == 0 && cost >= denied => soonest.max(until),
            _ => soonest,
        }
    }

    /// Bytes that are used in addition to the value itself.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.quotas.capacity().saturating_mul(size_of::<(Limiter, Decision)>())
    }
}
