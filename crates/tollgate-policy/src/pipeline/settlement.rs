//! The costs of an allowed request that its response has settled, and those that it still settles.
//!
//! Invariant: reading it changes nothing; only [`Plan::settle`] settles.

use tollgate_storage::Due;

use crate::pipeline::applied::{AppliedRule, SettledCharge};
use crate::pipeline::plan::Plan;
use crate::policy::compiled::Policy;
use crate::spec::settled_cost::ActualCost;

/// The costs of an allowed request that its response settles: [`Plan::settlement`].
#[derive(Clone, Copy, Debug)]
pub struct Settlement<'p> {
    pub(super) plan: &'p Plan,
    pub(super) policy: &'p Policy,
}

impl Plan {
    /// The costs that the response settles, before and after [`Plan::settle`].
    #[must_use]
    #[inline]
    pub const fn settlement<'p>(&'p self, policy: &'p Policy) -> Settlement<'p> {
        Settlement { plan: self, policy }
    }
}

impl<'p> Settlement<'p> {
    /// True when a rule that applies charges by the response, or may refund its held units: keep
    /// the plan and [`Plan::settle`] it then.
    #[must_use]
    #[inline]
    pub fn is_deferred(&self) -> bool {
        let is_open = |applied: &AppliedRule| match applied.due {
            Due::Later => true,
            Due::Held => applied.charged.is_some(),
            Due::Now | Due::InFlight | Due::Settled(_) | Due::Renewed | Due::Reported => false,
        };
        self.awaits_end() || self.plan.applied.iter().any(is_open)
    }

    /// True after [`Plan::settle`] at the head of a response whose end shows more: keep the plan
    /// and settle it again then.
    #[must_use]
    #[inline]
    pub const fn awaits_end(&self) -> bool {
        !self.plan.awaited.rules.is_empty()
    }

    /// The costs that the last call of [`Plan::settle`] settled, one for each rule that charged the
    /// request an estimate.
    #[must_use]
    #[inline]
    pub fn costs(&self) -> &'p [SettledCharge] {
        self.plan.settled_costs.get(self.plan.settled_before..).unwrap_or_default()
    }

    /// The same of all calls for this request: those of the head of its response first.
    #[must_use]
    #[inline]
    pub fn all_costs(&self) -> &'p [SettledCharge] {
        &self.plan.settled_costs
    }

    /// Where the response to an allowed request shows the costs that only its end shows: the
    /// estimates of these stay until then.
    pub fn costs_at_end(&self) -> impl Iterator<Item = &'p ActualCost> + use<'p> {
        let Self { plan, policy } = *self;
        let charged = plan.applied.iter().filter(|applied| applied.charged.is_some());
        let rules = charged.filter_map(|applied| policy.rules.get(usize::from(applied.rule)));
        let costs = rules.filter_map(|rule| Some(&rule.settled_cost()?.actual));
        costs.filter(|actual| !actual.is_in_head())
    }
}
