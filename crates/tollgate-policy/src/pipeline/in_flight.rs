//! The requests in flight of a plan: what an allowed request has to confirm while it runs, and to
//! release when it ends.
//!
//! Invariant: it is a plan of its own, made once, when the request is allowed. So the response and
//! its costs are settled in the other one, in any order, and each charge is released once.

use crate::pipeline::applied::{AppliedRule, CountedIn, Effect};
use crate::pipeline::partitions::Stored;
use crate::pipeline::plan::{Plan, decisions_of, denies};
use crate::policy::compiled::Policy;
use tollgate_core::Span;
use tollgate_storage::Due;

/// A charge is confirmed after this part of `max_age`: twice before it expires.
pub const CONFIRMED_AFTER: u64 = 3;

/// A request that waits for a place looks again after this time: a place that ends in another
/// process is found by that alone.
pub const PLACE_LOOK: Span = Span::from_millis(100);

impl Plan {
    /// The part of an allowed plan that counts its request while it is in flight; `None` when no
    /// rule does. Keep it until the request ends. From [time](Plan::confirm_after) to time
    /// [confirm](Plan::confirm) it, at the end [release](Plan::release) it; after each load, decide
    /// and commit it.
    #[must_use]
    pub fn in_flight(&self, policy: &Policy) -> Option<Self> {
        let is_in_flight = |it: &&AppliedRule| it.due == Due::InFlight && it.charged.is_some();
        self.applied.iter().find(is_in_flight)?;
        let mut own = Self::new();
        for applied in self.applied.iter().filter(is_in_flight) {
            let Some(stored) = applied.partition().and_then(|i| self.partitions.get(i)) else {
                continue;
            };
            let start = own.partitions.keys.len();
            own.partitions.keys.extend_from_slice(stored.key_among(&self.partitions.keys));
            let place = own.partitions.of_key(stored.group, start);
            if let Some((copy, _)) = own.partitions.get_mut(place) {
                let Stored { trimmed, tenant, .. } = stored;
                (copy.trimmed, copy.tenant) = (*trimmed, tenant.clone());
            }
            let first_decision = own.decisions.len();
            own.decisions.extend(decisions_of(applied, policy, &self.decisions).copied());
            own.applied.push(AppliedRule {
                counted_in: CountedIn::Partition(place),
                first_decision,
                // Its end denies nothing.
                effect: Effect::Mark,
                located: None,
                ..applied.clone()
            });
        }
        Some(own)
    }

    /// How long after it was charged or confirmed a request in flight has to be confirmed: a third
    /// of the shortest `max_age`. `None` when nothing counts it.
    #[must_use]
    pub fn confirm_after(&self, policy: &Policy) -> Option<Span> {
        let counted = self.applied.iter().filter(|applied| applied.charged.is_some());
        let quotas = counted.flat_map(|applied| policy.quotas(applied));
        let ages = quotas.filter_map(|quota| quota.limiter.max_age());
        let part = |age: Span| age.as_nanos().checked_div(CONFIRMED_AFTER);
        ages.filter_map(part).min().map(Span::from_nanos)
    }

    /// Prepares requests in flight to be confirmed: load, decide and commit them next. False when
    /// none is counted any more.
    pub fn confirm(&mut self) -> bool {
        self.continue_as(Due::Renewed)
    }

    /// Prepares requests in flight to be released, because they have ended: load, decide and commit
    /// them next, once. False when none is counted any more.
    pub fn release(&mut self) -> bool {
        self.continue_as(Due::Settled(0))
    }

    /// After a confirmation was committed: the time of each charge is that of the confirmation.
    /// Returns how many were confirmed too late and nothing had counted since; they are counted
    /// again, also beyond the limit. Where the store failed, nothing changes: confirm it again.
    pub fn confirmed(&mut self, policy: &Policy) -> usize {
        let Self { applied, partitions, decisions, .. } = self;
        let mut late = 0_usize;
        for applied in applied {
            let stored = applied.partition().and_then(|i| partitions.get(i));
            if let Some(stored) = stored.filter(|stored| stored.status.is_decided()) {
                late = late.saturating_add(usize::from(denies(applied, policy, decisions)));
                applied.charged = Some(stored.at);
            }
        }
        late
    }

    fn continue_as(&mut self, due: Due) -> bool {
        self.applied.retain(|applied| applied.charged.is_some());
        for applied in &mut self.applied {
            (applied.due, applied.located) = (due, None);
        }
        !self.applied.is_empty()
    }
}
