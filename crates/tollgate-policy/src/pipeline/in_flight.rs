//! A request in flight: the charges that an allowed request confirms while it runs, and releases
//! when it ends.
//!
//! Invariant: its plan is its own, made once, when the request is allowed. So the response and its
//! costs are settled in the other one, in any order, and each charge is released once. Only this
//! type confirms and releases, so no plan of a request that is still to be decided does.

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

/// The part of an allowed request's plan that counts it while it is in flight:
/// [`Plan::in_flight`].
#[derive(Debug)]
pub struct RequestInFlight(Plan);

impl Plan {
    /// The part of an allowed plan that counts its request while it is in flight; `None` when no
    /// rule does. Keep it until the request ends. From [time](RequestInFlight::confirm_after) to
    /// time [confirm](RequestInFlight::confirm) it, at the end
    /// [release](RequestInFlight::release) it; after each, load, decide and commit
    /// [its plan](RequestInFlight::plan_mut).
    #[must_use]
    pub fn in_flight(&self, policy: &Policy) -> Option<RequestInFlight> {
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
        Some(RequestInFlight(own))
    }
}

impl RequestInFlight {
    /// Its plan, to be loaded, decided and committed after [`RequestInFlight::confirm`] and
    /// [`RequestInFlight::release`].
    #[inline]
    pub const fn plan_mut(&mut self) -> &mut Plan {
        &mut self.0
    }

    /// The same, for reading.
    #[must_use]
    #[inline]
    pub const fn plan(&self) -> &Plan {
        &self.0
    }

    /// The time after which it has to be confirmed, since it was charged or confirmed: a third of
    /// the shortest `max_age`. `None` when nothing counts it.
    #[must_use]
    pub fn confirm_after(&self, policy: &Policy) -> Option<Span> {
        let counted = self.0.applied.iter().filter(|applied| applied.charged.is_some());
        let quotas = counted.flat_map(|applied| policy.quotas(applied));
        let ages = quotas.filter_map(|quota| quota.limiter.max_age());
        let part = |age: Span| age.as_nanos().checked_div(CONFIRMED_AFTER);
        ages.filter_map(part).min().map(Span::from_nanos)
    }

    /// Prepares its charges to be confirmed: load, decide and commit [its
    /// plan](RequestInFlight::plan_mut) next. False when nothing counts it any more.
    pub fn confirm(&mut self) -> bool {
        self.continue_as(Due::Renewed)
    }

    /// Prepares its charges to be released, because it has ended: load, decide and commit [its
    /// plan](RequestInFlight::plan_mut) next, once. False when nothing counts it any more.
    pub fn release(&mut self) -> bool {
        self.continue_as(Due::Settled(0))
    }

    /// After a confirmation was committed: the time of each charge is that of the confirmation.
    /// Returns how many were confirmed too late and nothing had counted since; they are counted
    /// again, also beyond the limit. Where the store failed, nothing changes: confirm it again.
    pub fn confirmed(&mut self, policy: &Policy) -> usize {
        let Plan { applied, partitions, decisions, .. } = &mut self.0;
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
        let applied = &mut self.0.applied;
        applied.retain(|applied| applied.charged.is_some());
        for applied in applied.iter_mut() {
            (applied.due, applied.located) = (due, None);
        }
        !applied.is_empty()
    }
}
