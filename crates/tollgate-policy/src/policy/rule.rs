//! One rule as compiled, and its tiers.
//!
//! Invariant: its indexes are of the policy that it is in.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::document::action::Action;
use crate::document::charging::Charging;
use crate::document::conditions::Conditions;
use crate::document::cost::Cost;
use crate::document::mode::{Mode, Share};
use crate::document::rule::{OnFailure, OnMissing};
use crate::http::repeated::Repeated;
use crate::policy::index::IndexedBy;
use crate::policy::label::metric_label;

/// One rule as compiled.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) name: String,
    pub(crate) when: Option<Conditions>,
    pub(crate) unless: Option<Conditions>,
    /// The condition that the look-up has checked.
    pub(crate) indexed_by: IndexedBy,
    pub(crate) on_missing: OnMissing,
    pub(crate) on_failure: OnFailure,
    pub(crate) cost: Cost,
    pub(crate) charging: Charging,
    pub(crate) mode: Mode,
    pub(crate) action: Action,
    pub(crate) group: u16,
    /// The rule's own quotas.
    pub(crate) set: u16,
    /// Highest priority first.
    pub(crate) tiers: Vec<Tier>,
}

/// Other quotas for some keys.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) priority: u32,
    pub(crate) when: Option<Conditions>,
    /// What several values mean of what `when` is on.
    pub(crate) repeated: Option<Repeated>,
    /// Empty: any.
    pub(crate) key_values: BTreeSet<Vec<u8>>,
    /// Those of them that are addresses, grouped, as they stand in a key.
    pub(crate) addresses: BTreeSet<Vec<u8>>,
    pub(crate) set: u16,
}

impl Rule {
    /// The rule's name, %x20-7E, at most 64 characters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rule's name as a part of a metric's ([`metric_label`]). No two rules of a policy for
    /// Envoy have the same.
    #[must_use]
    pub fn label(&self) -> String {
        metric_label(&self.name)
    }

    /// The index of the rule's group in [`Policy::groups`](crate::Policy::groups): rules with the
    /// same key share one.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group.into()
    }

    /// True when a secret of the surface chooses the keys that the rule is enforced for, so that
    /// nobody else can say which ones these are.
    #[must_use]
    pub const fn chooses_keys(&self) -> bool {
        matches!(self.mode, Mode::EnforcePercent(Share { percent: 1..=99, hash_key: None }))
    }

    /// True when every request costs the same: what one is denied by denies the others too.
    #[must_use]
    pub const fn has_fixed_cost(&self) -> bool {
        matches!(self.cost, Cost::Fixed(_))
    }

    /// True when a request that goes on and is answered with `status` is charged in the end; `None`
    /// is one whose client left before there was a response.
    #[must_use]
    pub fn is_charged_by(&self, status: Option<u16>) -> bool {
        match &self.charging {
            Charging::Request => true,
            Charging::Response(charge) => charge.charges(status),
        }
    }

    /// True when a client that is over the limit may be refused: not where the rule only watches,
    /// marks, or lets it wait.
    #[must_use]
    pub const fn refuses(&self) -> bool {
        let is_enforced =
            !matches!(self.mode, Mode::Shadow | Mode::EnforcePercent(Share { percent: 0, .. }));
        is_enforced && matches!(self.action, Action::Deny(_) | Action::Respond(_))
    }

    /// How long a request may wait for this rule, if the rule says so.
    pub(crate) const fn longest_wait(&self) -> Option<Span> {
        match self.action {
            Action::Delay(longest) => Some(longest),
            Action::Deny(_) | Action::Mark(_) | Action::Respond(_) => None,
        }
    }

    /// True when a place may be given back, so that a denial is not final until its time.
    #[must_use]
    pub const fn gives_back(&self) -> bool {
        matches!(&self.charging, Charging::Response(charge) if charge.reserves())
    }
}
