//! The quota of a policy that needs no other input: one quota, by the client's address, for all
//! requests.
//!
//! A caller that decides millions of requests, such as a replay, need not plan each of them again:
//! a request of the same client loads the same value and costs the same, whatever else it contains.
//!
//! Invariant: a request that [`LoneQuota::admit`] allows is also allowed by a plan of the same
//! value at the same time, with the same bytes as the result. When it does not allow the request,
//! the value is unchanged, and the plan finds the reason. Deliberately not here: the consequences
//! of a denial, and requests whose client is unknown.

use core::ops::Range;

use tollgate_core::{Algorithm, Limiter, Timestamp, Verdict};

use crate::policy::compiled::Policy;
use crate::spec::action::Action;
use crate::spec::charging::Charging;
use crate::spec::cost::Cost;
use crate::spec::key::KeySource;
use crate::spec::key_item::KeyPart;

/// The one quota of all clients, in a policy where nothing else decides.
#[derive(Clone, Debug)]
pub struct LoneQuota {
    /// The index of its rule in [`Policy::rules`].
    pub rule: usize,
    /// The index of its quotas in [`Policy::quota_sets`].
    pub quota_set: usize,
    /// The index of its group in [`Policy::groups`].
    pub group: usize,
    /// The cost of every request, in quota units.
    pub cost: u64,
    limiter: Limiter,
    state: Range<usize>,
}

impl LoneQuota {
    /// The one quota of `policy` that decides every request with a known client; `None` when any
    /// other property of a request, or more than one quota, may affect the decision, or when a
    /// request may wait.
    #[must_use]
    pub fn of(policy: &Policy) -> Option<Self> {
        let [rule] = &*policy.rules else { return None };
        let has_conditions = !policy.exempt.is_empty()
            || !policy.deny.rules.is_empty()
            || policy.tenant.is_some()
            || rule.terms.when.is_some()
            || rule.terms.unless.is_some()
            || !rule.tiers.is_empty();
        let is_charged_at_once = matches!(rule.terms.charging, Charging::Request);
        let may_wait = matches!(rule.terms.action, Action::Delay(_));
        let group = policy.groups.get(usize::from(rule.terms.group))?;
        let set = policy.sets.get(usize::from(rule.set))?;
        let (Cost::Fixed(cost), [quota], [KeyPart { source: KeySource::ClientIp, .. }]) =
            (&rule.terms.cost, &*set.quotas, &*group.spec.key)
        else {
            return None;
        };
        let delays = quota.limiter.algorithm() == Algorithm::LeakyQueue;
        if has_conditions || !is_charged_at_once || may_wait || delays || set.varies() {
            return None;
        }
        let start = set.offset?.checked_add(quota.offset)?;
        Some(Self {
            rule: 0,
            quota_set: rule.set.into(),
            group: rule.terms.group.into(),
            cost: *cost,
            limiter: quota.limiter,
            state: start..start.checked_add(quota.limiter.state_len())?,
        })
    }

    /// Charges one request at `now` to `value`, which a plan of this policy has stored for its
    /// client. False, with nothing written, when the request does not fit.
    #[inline]
    pub fn admit(&self, value: &mut [u8], now: Timestamp) -> bool {
        let state = value.get_mut(self.state.clone());
        state.is_some_and(|state| {
            self.limiter.admit(state, now, self.cost).verdict() == Verdict::Allow
        })
    }
}
