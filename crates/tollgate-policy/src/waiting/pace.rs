//! How fast a line moves: what the quotas of its rule said last.
//!
//! Invariant: a time that this names is never later than the one at which the request is admitted
//! if nobody else uses the key and nobody gives anything back; so whoever is refused by it could
//! not have been let through in time. By how much it may be earlier: `Limiter::soonest`.

use alloc::vec::Vec;

use tollgate_core::{Decision, Limiter, Timestamp};

/// What the quotas of one rule said last on one key.
#[derive(Clone, Debug)]
pub struct Pace {
    at: Timestamp,
    quotas: Vec<(Limiter, Decision)>,
    /// The cost that was denied, and until when.
    denied: Option<(u64, Timestamp)>,
    /// Whoever passes is not charged yet, so that nobody has to wait for those ahead.
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

    /// Before this time `cost` is not admitted, when costs of `ahead` in all go first.
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

    /// Bytes that are held beside the value itself.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.quotas.capacity().saturating_mul(size_of::<(Limiter, Decision)>())
    }
}
