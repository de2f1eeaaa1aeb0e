//! Quotas that few policies have: those that deny every request, and those whose limit comes with
//! the request.
//!
//! Invariant: a policy that has none pays one comparison for each rule that applies.

use alloc::sync::Arc;

use crate::facts::Facts;
use crate::pipeline::applied::{AppliedRule, AppliedSet, CountedIn, OfRequest};
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::rule::Rule;
use crate::request::lazy::Request;
use tollgate_http_syntax::malformed::Malformed;
use tollgate_storage::Due;

impl Policy {
    /// Where a rule counts a request without a partition, and when it would charge it.
    #[cold]
    #[inline(never)] // few requests have none
    pub(super) fn without_partition(
        &self,
        rule: &Rule,
        set: &AppliedSet,
        malformed: Option<Malformed>,
    ) -> (CountedIn, Due) {
        match malformed {
            Some(malformed) => (CountedIn::Malformed(malformed), Due::Now),
            None if self.is_closed(set) => (CountedIn::Closed, Due::Now),
            None => (CountedIn::NoKey, rule.due),
        }
    }

    #[cold]
    #[inline(never)] // few policies have such quotas
    pub(super) fn is_closed(&self, set: &AppliedSet) -> bool {
        self.set_of(set).is_some_and(QuotaSet::is_closed)
    }

    /// Gives the rules the limits that the request brings with it.
    #[cold]
    #[inline(never)] // few quotas take any
    pub(super) fn limit<F: Facts>(&self, applied: &mut [AppliedRule], request: &Request<'_, F>) {
        for applied in applied {
            let varied = self.set_of(&applied.set).filter(|set| set.varies());
            let Some(mut set) = varied.cloned() else { continue };
            for quota in &mut set.quotas {
                let Some(from) = quota.limit_from.as_deref() else { continue };
                let limit = quota.requested(from, request).unwrap_or(from.default);
                quota.limiter = quota.limiter.within(limit).unwrap_or(quota.limiter);
            }
            let own = applied.set.clone();
            applied.set = AppliedSet::Limited(Arc::new(OfRequest { own, set }));
        }
    }
}
