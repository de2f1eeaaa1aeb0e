//! The labels of rules, tiers and quotas in metrics, in `%RESPONSE_CODE_DETAILS%` and in access
//! logs: the same everywhere, so that one can be looked up in the other.
//!
//! Invariant: letters, digits, `-` and `_` alone ([`metric_label`]), whatever the policy contains.

use tollgate_policy::Policy;
use tollgate_policy::metrics::metric_label;

/// The labels of one policy.
#[derive(Default)]
pub struct Labels {
    rules: Vec<String>,
    deny: Vec<String>,
    sets: Vec<SetLabels>,
}

/// Those of one quota set.
pub struct SetLabels {
    /// `None` where they are a rule's own quotas.
    pub tier: Option<String>,
    /// In their order.
    pub quotas: Vec<String>,
}

impl Labels {
    /// The labels of a policy.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let sets = policy.quota_sets().iter().map(|set| SetLabels {
            tier: set.tier().map(metric_label),
            quotas: set.quotas().iter().map(|quota| metric_label(quota.name())).collect(),
        });
        Self {
            sets: sets.collect(),
            rules: policy.rules().iter().map(|it| it.label()).collect(),
            deny: policy.deny_rules().iter().map(|it| metric_label(it.name())).collect(),
        }
    }

    /// The rule of this index.
    #[must_use]
    pub fn rule(&self, index: usize) -> &str {
        self.rules.get(index).map_or("", String::as_str)
    }

    /// The deny rule of this index.
    #[must_use]
    pub fn deny_rule(&self, index: usize) -> &str {
        self.deny.get(index).map_or("", String::as_str)
    }

    /// The quota set of this index.
    #[must_use]
    pub fn set(&self, index: usize) -> Option<&SetLabels> {
        self.sets.get(index)
    }
}
