//! The rules whose quotas can have a penalty.
//!
//! Invariant: a penalty starts where, and only where, a denial is final and is made at the count
//! itself. Every surface could do less: what it could not start is refused here, by name.

use tollgate_core::Algorithm;

use crate::spec::action::Action;
use crate::spec::charging::Charging;
use crate::spec::cost::Cost;
use crate::spec::rule::RuleTerms;
use crate::spec::scope::Scope;

/// Why a quota that counts by `algorithm` cannot have a penalty in a rule with these properties;
/// `None` where it can. `is_leased`: units of the count are leased to nodes or shards.
#[must_use]
pub fn no_penalty(
    algorithm: Algorithm,
    action: Option<&Action>,
    charging: &Charging,
    cost: Option<&Cost>,
    is_leased: bool,
) -> Option<&'static str> {
    let tells_held =
        matches!(algorithm, Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket);
    match action {
        Some(Action::Delay(_)) => Some(DELAYS),
        Some(Action::Mark(_)) => Some(MARKS),
        Some(Action::Deny(_) | Action::Respond(_)) | None => {
            if is_leased {
                Some(LEASED)
            } else if cost == Some(&Cost::Reported) {
                Some(REPORTED)
            } else {
                (charging.holds() && !tells_held).then_some(HELD)
            }
        }
    }
}

impl RuleTerms {
    /// [`no_penalty`] for a quota of this rule.
    #[must_use]
    pub fn no_penalty(&self, algorithm: Algorithm, has_shards: bool) -> Option<&'static str> {
        let is_leased = self.scope == Scope::Fleet || has_shards;
        no_penalty(algorithm, Some(&self.action), &self.charging, Some(&self.cost), is_leased)
    }
}

const DELAYS: &str = "is for requests that are denied, and the action \"delay\" makes them wait; leave one of them out";
const MARKS: &str =
    "is for requests that are denied, and the action \"mark\" allows them; leave one of them out";
const LEASED: &str = "needs one place that counts, and this rule leases units to several; leave it out, or \"scope\" and \"shards\"";
const REPORTED: &str =
    "is for requests that are denied, and a report is recorded, not denied; leave it out";
const HELD: &str = "cannot tell held units from used ones with this algorithm; use \"gcra\", \"token-bucket\" or \"leaky-bucket\"";
