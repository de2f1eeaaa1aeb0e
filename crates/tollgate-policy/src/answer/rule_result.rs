//! The result of one rule for one request, for metrics and explanations.
//!
//! Invariant: the words are part of metric names on every surface, so they never change.

use tollgate_core::Algorithm;

use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::rule::Rule;
use crate::spec::action::Action;
use crate::spec::mode::{Mode, Share};

/// The result of one rule, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// Every quota of it allowed the request.
    Allowed,
    /// A quota of it denied, or a key part was missing.
    Denied,
    /// Allowed after a wait.
    Delayed,
    /// Over the limit, passed with a mark.
    Marked,
    /// Over the limit, but the rule is not enforced for this key.
    Shadowed,
    /// Its state could not be read or written.
    Failed,
    /// The key that it counts by cannot be read from the request.
    Malformed,
    /// An operator blocked the key.
    Blocked,
    /// A quota of it denied and has a penalty, which runs from then on.
    Penalised,
}

impl Policy {
    /// The rules for which requests may wait; one comes again for each tier that lets them wait.
    pub fn delaying_rules(&self) -> impl Iterator<Item = &Rule> {
        self.quota_sets().iter().filter_map(|set| {
            let rule = self.rules().get(set.rule())?;
            RuleResult::over_limit(rule, set).any(|it| it == RuleResult::Delayed).then_some(rule)
        })
    }
}

impl RuleResult {
    /// Every result, in the order of [`RuleResult::index`].
    pub const ALL: [Self; 9] = [
        Self::Allowed,
        Self::Denied,
        Self::Delayed,
        Self::Marked,
        Self::Shadowed,
        Self::Failed,
        Self::Malformed,
        Self::Blocked,
        Self::Penalised,
    ];

    /// The possible results of `rule` for a request over the limit of `set`, which is its own or a
    /// tier's; each once, in the order of [`RuleResult::ALL`].
    pub fn over_limit(rule: &Rule, set: &QuotaSet) -> impl Iterator<Item = Self> {
        let (is_enforced, is_watched) = match rule.terms.mode {
            Mode::Enforce | Mode::EnforcePercent(Share { percent: 100.., .. }) => (true, false),
            Mode::Shadow | Mode::EnforcePercent(Share { percent: 0, .. }) => (false, true),
            Mode::EnforcePercent(_) => (true, true),
        };
        let marks = matches!(rule.terms.action, Action::Mark(_));
        let mut algorithms = set.quotas().iter().map(|quota| quota.limiter().algorithm());
        let waits =
            rule.is_waited_for() || algorithms.any(|algorithm| algorithm == Algorithm::LeakyQueue);
        let has_penalty = set.has_penalty();
        let may = move |result: &Self| match result {
            Self::Denied => is_enforced && !marks,
            Self::Penalised => is_enforced && has_penalty,
            Self::Delayed => is_enforced && waits,
            Self::Marked => is_enforced && marks,
            Self::Shadowed => is_watched,
            Self::Allowed | Self::Failed | Self::Malformed | Self::Blocked => false,
        };
        Self::ALL.into_iter().filter(may)
    }

    /// True when a count, or an operator, denies.
    #[must_use]
    pub const fn denies(self) -> bool {
        matches!(self, Self::Denied | Self::Blocked | Self::Penalised)
    }

    /// Its index in [`RuleResult::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Allowed => 0,
            Self::Denied => 1,
            Self::Delayed => 2,
            Self::Marked => 3,
            Self::Shadowed => 4,
            Self::Failed => 5,
            Self::Malformed => 6,
            Self::Blocked => 7,
            Self::Penalised => 8,
        }
    }

    /// The word for metrics: `allowed`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Delayed => "delayed",
            Self::Marked => "marked",
            Self::Shadowed => "shadowed",
            Self::Failed => "failed",
            Self::Malformed => "malformed",
            Self::Blocked => "blocked",
            Self::Penalised => "penalised",
        }
    }
}
