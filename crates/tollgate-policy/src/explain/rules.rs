//! Why a rule applies or not, and the result of each quota: for people, not for a surface.
//!
//! Invariant: nothing here decides. The same code as in `plan` evaluates the conditions, one at a
//! time, and decisions are read from an outcome. Keys come out hashed. The values of conditions
//! come out as in the document, so the output is for people who may read the document.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use tollgate_core::{Algorithm, Decision};

use crate::answer::outcome::Outcome;
use crate::answer::rule_result::RuleResult;
use crate::facts::Facts;
use crate::pipeline::applied::AppliedRule;
use crate::pipeline::partition::Partition;
use crate::policy::compiled::Policy;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::Rule;
use crate::request::key::{write_item, write_key};
use crate::request::lazy::{Buffers, Request};
use crate::request::matching::Reading;
use crate::spec::conditions::Conditions;
use crate::spec::deny::DenyRule;
use crate::spec::key_item::{KeyItem, items};
use crate::spec::on_missing::OnMissing;
use crate::stable_hash::stable_hash;
use tollgate_http_syntax::malformed::Malformed;
use tollgate_storage::Due;

/// A policy for people, and for tools that must know what it reads: [`Policy::explain`].
#[derive(Clone, Copy, Debug)]
pub struct Explain<'p>(pub(super) &'p Policy);

impl Policy {
    /// Its effect, in words.
    #[must_use]
    pub const fn explain(&self) -> Explain<'_> {
        Explain(self)
    }
}

impl Explain<'_> {
    /// True when no request may wait or get a place in a queue, so that separate counts always have
    /// a [`ChargingOrder`](crate::ChargingOrder).
    #[must_use]
    pub fn never_waits(&self) -> bool {
        let mut quotas = self.0.sets.iter().flat_map(|set| &set.quotas);
        self.0.rules.iter().all(|rule| rule.longest_wait().is_none())
            && quotas.all(|quota| quota.limiter.algorithm() != Algorithm::LeakyQueue)
    }
}

/// Whether one rule applies to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// It does.
    Applies,
    /// No rule does: the request is exempt by this item of `exempt`.
    Exempt(usize),
    /// No rule does: this deny rule denies the request.
    DeniedBy(String),
    /// The first condition of `when` that does not hold, in words: `method POST`.
    WhenFails(String),
    /// `unless` holds, in words.
    UnlessHolds(String),
    /// This part of the key is not in the request, and the rule skips such requests.
    KeyMissing(String),
}

/// The result of one rule that applies, with the numbers of its quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVerdict<'a> {
    /// The index of the rule in [`Policy::rules`].
    pub rule: usize,
    /// The index of the quotas in [`Policy::quota_sets`]: the rule's own, or a tier's.
    pub quota_set: usize,
    /// The partition that the quotas count in; `None` when a key part is missing and the rule
    /// denies, or when the request is malformed.
    pub partition: Option<usize>,
    /// Why the rule cannot read the request.
    pub malformed: Option<Malformed>,
    /// The cost of the request, in quota units.
    pub cost: u64,
    /// The result of the rule.
    pub result: RuleResult,
    /// False in shadow mode: the result is counted but not enforced.
    pub is_enforced: bool,
    /// True when the rule charges when the response is known, and holds no units until then.
    pub is_deferred: bool,
    /// Its priority among the waiting requests, from 1, if the rule has priorities.
    pub priority: Option<u8>,
    /// The name of every quota that was decided, and its decision.
    pub quotas: Vec<(&'a str, Decision)>,
}

impl<'p> Explain<'p> {
    /// Whether each rule applies to a request, in the order of [`Policy::rules`]. Never fails.
    /// Agrees with [`Policy::plan`], with one exception: when a request is denied because a rule
    /// cannot read it or because it lacks the rule's key, the plan contains only such rules.
    #[must_use]
    pub fn applicability(&self, facts: &impl Facts) -> Vec<Applicability> {
        let mut buffers = Buffers::default();
        let request = Request::new(facts, &self.0.settings, &mut buffers);
        let denied_by = || self.0.deny.rules.iter().find(|rule| rule.denies(&request));
        let all = match (self.exempt_by(&request), denied_by()) {
            (Some(i), _) => Applicability::Exempt(i),
            (None, Some(rule)) => Applicability::DeniedBy(rule.name.clone()),
            (None, None) => {
                return self.0.rules.iter().map(|it| self.applicability_of(it, &request)).collect();
            }
        };
        alloc::vec![all; self.0.rules.len()]
    }

    /// The limit that a request brings with it for this quota, at most its highest; `None` where it
    /// has none that can be read, and for a quota that takes none.
    #[must_use]
    pub fn requested_limit(&self, facts: &impl Facts, quota: &CompiledQuota) -> Option<u64> {
        let mut buffers = Buffers::default();
        let request = Request::new(facts, &self.0.settings, &mut buffers);
        quota.requested(quota.limit_from()?, &request)
    }

    /// Whether each rule of [`Policy::deny_rules`] applies to a request, in their order. Never
    /// fails. Agrees with [`Policy::plan`].
    #[must_use]
    pub fn deny_applicability(&self, facts: &impl Facts) -> Vec<Applicability> {
        let mut buffers = Buffers::default();
        let request = Request::new(facts, &self.0.settings, &mut buffers);
        let exempt = self.exempt_by(&request);
        let mut denied_by: Option<&'p DenyRule> = None;
        let of_rule = |rule: &'p DenyRule| match (exempt, denied_by) {
            (Some(i), _) => Applicability::Exempt(i),
            (None, Some(earlier)) => Applicability::DeniedBy(earlier.name.clone()),
            (None, None) => {
                denied_by = Some(rule).filter(|rule| rule.denies(&request));
                let conditions = (rule.when.as_ref(), rule.unless.as_ref());
                conditions_of(conditions, &request).unwrap_or(Applicability::Applies)
            }
        };
        self.0.deny.rules.iter().map(of_rule).collect()
    }

    /// The item of `exempt` that exempts the request.
    fn exempt_by<F: Facts>(self, request: &Request<'_, F>) -> Option<usize> {
        self.0.exempt.iter().position(|exempt| exempt.surely_hold(request))
    }

    /// The client's address as the policy finds it, before it is grouped by prefix; never an IPv4
    /// address mapped into IPv6.
    #[must_use]
    pub fn client_address(&self, facts: &impl Facts) -> Option<IpAddr> {
        let mut buffers = Buffers::default();
        Request::new(facts, &self.0.settings, &mut buffers).client().map(|ip| ip.to_canonical())
    }

    /// All readings of the request's path by servers, in normal form; the reading used for keys is
    /// first. There is one reading unless the path has syntax that servers read differently. Empty
    /// when no rule reads paths.
    #[must_use]
    pub fn readings(&self, facts: &impl Facts) -> Vec<String> {
        let mut buffers = Buffers::default();
        let request = Request::new(facts, &self.0.settings, &mut buffers);
        let readings = request.paths().all().filter(|_| self.0.settings.reads_path);
        readings.map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    fn applicability_of<F: Facts>(&self, rule: &Rule, request: &Request<'_, F>) -> Applicability {
        let conditions = (rule.terms.when.as_ref(), rule.terms.unless.as_ref());
        let mut is_unclear = false;
        match conditions_of(conditions, request) {
            Ok(Applicability::Applies) => {}
            Ok(other) => return other,
            Err(_) => is_unclear = true,
        }
        let Some(group) = self.0.groups.get(usize::from(rule.terms.group)) else {
            return Applicability::Applies;
        };
        // The rule denies a request that it cannot read, whatever else the request lacks.
        is_unclear |= rule.is_in_dispute(group, request.paths());
        if is_unclear || write_key(group, rule, request, &mut Vec::new()) != Ok(false) {
            return Applicability::Applies;
        }
        let is_missing =
            |item: &KeyItem<'_>| write_item(*item, rule, request, &mut Vec::new()) == Ok(false);
        match items(&group.spec.key).find(is_missing) {
            Some(item) if rule.terms.on_missing == OnMissing::Skip => {
                Applicability::KeyMissing(item.to_string())
            }
            _ => Applicability::Applies,
        }
    }
}

/// Whether the conditions `when` and `unless` let a rule apply.
///
/// # Errors
/// It is unclear.
fn conditions_of<F: Facts>(
    (when, unless): (Option<&Conditions>, Option<&Conditions>),
    request: &Request<'_, F>,
) -> Result<Applicability, Malformed> {
    let mut unclear = Ok(Applicability::Applies);
    for condition in when.into_iter().flat_map(|when| &when.0) {
        match condition.holds(request, Reading::Any) {
            Ok(true) => {}
            Ok(false) => return Ok(Applicability::WhenFails(condition.to_string())),
            Err(malformed) => unclear = Err(malformed),
        }
    }
    match unless.filter(|unless| unless.surely_hold(request)) {
        Some(unless) => Ok(Applicability::UnlessHolds(unless.to_string())),
        None => unclear,
    }
}

impl DenyRule {
    /// True when it denies the request.
    fn denies<F: Facts>(&self, request: &Request<'_, F>) -> bool {
        self.is_enforced && self.matches(request) != Ok(false)
    }
}

impl Partition<'_> {
    /// 64 bits that identify its key: equal for equal keys, on every machine. A reader who can
    /// guess the key can verify the guess, so this is for a person's own requests, not for logs.
    #[must_use]
    pub fn key_hash(&self) -> u64 {
        stable_hash(&[self.key()])
    }
}

impl<'a> Outcome<'a> {
    /// The result of each rule that applied, in the order of the document.
    #[must_use]
    pub fn verdicts(&self) -> Vec<RuleVerdict<'a>> {
        let verdicts = self.plan.applied.iter().map(|applied| RuleVerdict {
            rule: usize::from(applied.rule),
            quota_set: self.policy.index_of(&applied.set),
            partition: applied.partition(),
            malformed: applied.malformed(),
            cost: applied.cost,
            result: self.result(applied),
            is_enforced: applied.is_enforced(),
            is_deferred: applied.due == Due::Later,
            priority: self.priority(applied),
            quotas: self.of_rule(applied).map(|r| (r.quota.name(), *r.decision)).collect(),
        });
        verdicts.collect()
    }

    fn priority(&self, applied: &AppliedRule) -> Option<u8> {
        let rule = self.policy.rules.get(usize::from(applied.rule))?;
        (!rule.priorities().is_empty()).then(|| applied.rank.saturating_add(1))
    }
}
