//! The rules whose quotas can take their limits from requests.
//!
//! Invariant: the limit of a request is compared once, when it arrives, at the one place that
//! counts. What would compare it elsewhere or later is refused here, by name.

use tollgate_core::Algorithm;

use crate::spec::action::Action;
use crate::spec::charging::Charging;
use crate::spec::cost::Cost;
use crate::spec::rule::RuleTerms;
use crate::spec::scope::Scope;

/// Why the limit of a quota that counts by `algorithm` cannot come from a request in a rule with
/// these properties; `None` where it can. `has_shards`: its count is leased to shards.
#[must_use]
pub fn no_limit_from(
    algorithm: Algorithm,
    action: Option<&Action>,
    charging: &Charging,
    cost: Option<&Cost>,
    (scope, has_shards): (Scope, bool),
) -> Option<&'static str> {
    if algorithm.has_burst() {
        return Some(RATES);
    }
    match action {
        Some(Action::Delay(_)) => Some(DELAYS),
        Some(Action::Deny(_) | Action::Mark(_) | Action::Respond(_)) | None => {
            if scope == Scope::Fleet || has_shards {
                Some(LEASED)
            } else if scope != Scope::Local {
                Some(SHARED)
            } else if *charging != Charging::Request || cost == Some(&Cost::Reported) {
                Some(LATER)
            } else {
                None
            }
        }
    }
}

impl RuleTerms {
    /// [`no_limit_from`] for a quota of this rule.
    #[must_use]
    pub fn no_limit_from(&self, algorithm: Algorithm, has_shards: bool) -> Option<&'static str> {
        let place = (self.scope, has_shards);
        no_limit_from(algorithm, Some(&self.action), &self.charging, Some(&self.cost), place)
    }
}

const RATES: &str = "is for quotas that count units, and this algorithm keeps a debt, which has no meaning under another limit; use \"fixed-window\", \"sliding-window\", \"sliding-buckets\" or \"sliding-log\"";
const DELAYS: &str = "is decided at once, and the turn of a waiting request does not know its limit; use an action other than \"delay\"";
const LEASED: &str = "is compared with the whole count, and this rule leases units to several places, which do not see it; leave it out, or \"scope\" and \"shards\"";
const SHARED: &str = "is the limit of the whole count, and this rule divides its limits among nodes; leave it out, or \"scope\"";
const LATER: &str = "is known when a request arrives, and this rule charges by its response or by a report; leave one of them out";
