//! The quota of a policy that has no more to ask: one quota, by the client's address, for every
//! request alike.
//!
//! Who has millions of requests to decide about, as a replay has, need not plan each of them anew:
//! the same client's request loads the same value and costs the same, whatever else it says.
//!
//! Invariant: what [`LoneQuota::admit`] admits, a plan of the same value at the same time admits,
//! and leaves the same bytes; what it does not admit, it leaves as it was, for the plan to say why.
//! Deliberately not here: a denial's consequences, and requests whose client is not known.

use core::ops::Range;

use tollgate_core::{Limiter, Timestamp, Verdict};

use crate::document::action::Action;
use crate::document::charging::Charging;
use crate::document::cost::Cost;
use crate::document::key::KeyPart;
use crate::policy::compiled::Policy;

/// All that decides in a policy, where that is one quota of all clients.
#[derive(Clone, Debug)]
pub struct LoneQuota {
    /// The index of its rule in [`Policy::rules`].
    pub rule: usize,
    /// The index of its quotas in [`Policy::quota_sets`].
    pub quota_set: usize,
    /// The index of its group in [`Policy::groups`].
    pub group: usize,
    /// What every request costs, in quota units.
    pub cost: u64,
    limiter: Limiter,
    state: Range<usize>,
}

impl Policy {
    /// The one quota that decides about every request whose client is known; `None` where anything
    /// else of a request, or more than one quota, may have a say, or where a request may wait.
    #[must_use]
    pub fn lone_quota(&self) -> Option<LoneQuota> {
        let [rule] = &*self.rules else { return None };
        let has_conditions = !self.exempt.is_empty()
            || self.tenant.is_some()
            || rule.when.is_some()
            || rule.unless.is_some()
            || !rule.tiers.is_empty();
        let is_charged_at_once = matches!(rule.charging, Charging::Request);
        let may_wait = matches!(rule.action, Action::Delay(_));
        let group = self.groups.get(usize::from(rule.group))?;
        let set = self.sets.get(usize::from(rule.set))?;
        let (Cost::Fixed(cost), [quota], [KeyPart::ClientIp]) =
            (&rule.cost, &*set.quotas, &*group.key)
        else {
            return None;
        };
        let delays = matches!(quota.limiter, Limiter::LeakyQueue(_));
        if has_conditions || !is_charged_at_once || may_wait || delays {
            return None;
        }
        let start = set.offset?.checked_add(quota.offset)?;
        Some(LoneQuota {
            rule: 0,
            quota_set: rule.set.into(),
            group: rule.group.into(),
            cost: *cost,
            limiter: quota.limiter,
            state: start..start.checked_add(quota.limiter.state_len())?,
        })
    }
}

impl LoneQuota {
    /// Charges one request at `now` to `value`, which a plan of this policy has stored for its
    /// client; false, with nothing written, when it does not fit.
    #[inline]
    pub fn admit(&self, value: &mut [u8], now: Timestamp) -> bool {
        let state = value.get_mut(self.state.clone());
        state.is_some_and(|state| {
            self.limiter.admit(state, now, self.cost).verdict() == Verdict::Allow
        })
    }
}
