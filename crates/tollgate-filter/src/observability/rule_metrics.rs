//! The counters of rules: by quota set, quota and result.
//!
//! Invariant: all names of a rule exist from the start, with 0, or the rule's are those of
//! `(other)`; every decision of a rule is counted, by its quota or else without one. A request only
//! adds. Deliberately absent: how many names there may be.

use tollgate_core::Span;
use tollgate_policy::{Outcome, Policy, QuotaSet, RuleDecision, RuleResult};

use crate::host::proxy::Proxy;
use crate::host::shared_data::SharedData;
use crate::observability::counter_buffer::{Counter, CounterBuffer};
use crate::observability::labels::{Labels, SetLabels};
use crate::observability::metric_names::reserve;

const DECISIONS: &str = metric!(EnvoyDecisions);
const NEAR_LIMIT: &str = metric!(EnvoyNearLimit);

/// The label of rules that have no names of their own.
const OTHER: &str = "plugin=(other).rule=(other)";

/// The names of a deny rule.
const DENY_NAMES: u8 = 2;

/// Defines a counter for a name.
pub type Define<'a> = &'a mut dyn FnMut(&str) -> Option<Counter>;

/// A counter for each result.
type Results = [Option<Counter>; RuleResult::ALL.len()];

/// The counters of all rules of one policy.
#[derive(Default)]
pub struct RuleMetrics {
    /// As many as the policy has quota sets.
    sets: Vec<SetMetrics>,
    /// As many as the policy has deny rules.
    deny: Vec<Results>,
    other: Results,
}

/// The counters of one quota set.
#[derive(Default)]
struct SetMetrics {
    /// Without a quota.
    results: Results,
    quotas: Vec<QuotaMetrics>,
}

/// The counters of one quota.
#[derive(Default)]
struct QuotaMetrics {
    results: Results,
    near: Option<Counter>,
}

impl RuleMetrics {
    /// Defines the counters of every rule. `plugin` is the plugin's label: rules of two plugins may
    /// have the same name.
    pub fn define(
        policy: &Policy,
        labels: &Labels,
        plugin: &str,
        host: &impl SharedData,
        define: Define<'_>,
    ) -> Self {
        let sets = policy.quota_sets().iter().enumerate();
        let names = |(i, set)| Names::new(policy, (set, labels.set(i)?), labels, plugin);
        let names: Vec<_> = sets.filter_map(names).collect();
        let deny: Vec<_> = deny_names(policy, labels, plugin).collect();
        let of_deny = |(name, results): &(String, [RuleResult; 2])| {
            (format!("{name} {}", words_of(results)), DENY_NAMES)
        };
        let families: Vec<_> =
            names.iter().map(Names::family).chain(deny.iter().map(of_deny)).collect();
        let is_named = reserve(host, &families);
        let (is_named_set, is_named_deny) =
            is_named.split_at_checked(names.len()).unwrap_or_default();
        let mut other = Results::default();
        if is_named.contains(&false) {
            other = of_others(define);
        }
        let mut of_set = |(names, is_named): (&Names<'_>, &bool)| {
            if *is_named { names.define(define) } else { SetMetrics::default() }
        };
        let sets = names.iter().zip(is_named_set).map(&mut of_set).collect();
        let mut of_deny = |((name, results), is_named): ((String, [RuleResult; 2]), &bool)| {
            if *is_named { of_results(results, &name, define) } else { Results::default() }
        };
        let deny = deny.into_iter().zip(is_named_deny).map(&mut of_deny).collect();
        Self { sets, deny, other }
    }

    /// Counts the decision of every rule on a request, which has waited this long to be decided
    /// again; true when a rule did anything other than allow it.
    pub fn count<H: Proxy>(
        &self,
        outcome: &Outcome<'_>,
        waited: Span,
        buffer: &CounterBuffer<H>,
    ) -> bool {
        let mut is_notable = false;
        for matched in outcome.deny_matches() {
            is_notable = true;
            let counter = self.deny.get(matched.index).and_then(|it| of_result(it, matched.result));
            buffer.add(counter.or_else(|| self.other(matched.result)), 1);
        }
        for decision in outcome.decisions_after(waited) {
            let result = decision.result;
            is_notable |= result != RuleResult::Allowed;
            let Some(set) = self.sets.get(decision.quota_set) else { continue };
            buffer.add(set.counter(&decision).or_else(|| self.other(result)), 1);
            for quota in decision.nearly_used_up() {
                buffer.add(set.quotas.get(quota).and_then(|quota| quota.near), 1);
            }
        }
        is_notable
    }

    /// Defines the counters of rules that have none of their own.
    pub fn define_other(&mut self, define: Define<'_>) {
        self.other = of_others(define);
    }

    fn other(&self, result: RuleResult) -> Option<Counter> {
        of_result(&self.other, result)
    }
}

impl SetMetrics {
    fn counter(&self, decision: &RuleDecision<'_>) -> Option<Counter> {
        let quota = decision.said_by().and_then(|quota| self.quotas.get(quota));
        let of = |results: &Results| of_result(results, decision.result);
        quota.and_then(|quota| of(&quota.results)).or_else(|| of(&self.results))
    }
}

/// The name before the results of each deny rule, and its results.
fn deny_names(
    policy: &Policy,
    labels: &Labels,
    plugin: &str,
) -> impl Iterator<Item = (String, [RuleResult; 2])> {
    policy.deny_rules().iter().enumerate().map(move |(i, rule)| {
        let result = if rule.is_enforced { RuleResult::Denied } else { RuleResult::Shadowed };
        let name = format!("{DECISIONS}.plugin={plugin}.rule={}", labels.deny_rule(i));
        (name, [result, RuleResult::Malformed])
    })
}

fn words_of(results: &[RuleResult]) -> String {
    results.iter().map(|result| result.label()).collect::<Vec<_>>().join(",")
}

fn of_result(results: &Results, result: RuleResult) -> Option<Counter> {
    *results.get(result.index())?
}

fn of_others(define: Define<'_>) -> Results {
    of_results(RuleResult::ALL, &format!("{DECISIONS}.{OTHER}"), define)
}

/// The names of the counters of one quota set.
struct Names<'a> {
    /// `plugin=edge.rule=login`
    rule: String,
    /// `.tier=gold`, or nothing
    tier: String,
    quotas: &'a [String],
    /// The results without a quota.
    results: Vec<RuleResult>,
    /// The results of each quota.
    of_quota: Vec<RuleResult>,
}

impl<'a> Names<'a> {
    fn new(
        policy: &Policy,
        (set, of_set): (&QuotaSet, &'a SetLabels),
        labels: &Labels,
        plugin: &str,
    ) -> Option<Self> {
        let rule = policy.rules().get(set.rule())?;
        let tier = of_set.tier.as_ref().map(|tier| format!(".tier={tier}"));
        let of_quota: Vec<_> = RuleResult::over_limit(rule, set).collect();
        let mut results = vec![RuleResult::Allowed, RuleResult::Failed];
        if tier.is_none() {
            results.push(RuleResult::Malformed);
        }
        results.extend(&of_quota);
        Some(Self {
            rule: format!("plugin={plugin}.rule={}", labels.rule(set.rule())),
            tier: tier.unwrap_or_default(),
            quotas: &of_set.quotas,
            results,
            of_quota,
        })
    }

    /// All of them in one text, and their number: other names are another family.
    fn family(&self) -> (String, u8) {
        let Self { rule, tier, quotas, results, of_quota } = self;
        let each = of_quota.len().saturating_add(1);
        let all = quotas.len().saturating_mul(each).saturating_add(results.len());
        let text = format!("{rule}{tier} {} {}", words_of(results), quotas.join(","));
        (text, u8::try_from(all).unwrap_or(u8::MAX))
    }

    fn define(&self, define: Define<'_>) -> SetMetrics {
        let results = self.results.iter().copied();
        let results = of_results(results, &self.name(DECISIONS, ""), define);
        let mut of_quota = |quota: &String| {
            let quota = format!(".quota={quota}");
            let near = define(&self.name(NEAR_LIMIT, &quota));
            let results = self.of_quota.iter().copied();
            let results = of_results(results, &self.name(DECISIONS, &quota), define);
            QuotaMetrics { results, near }
        };
        let quotas = self.quotas.iter().map(&mut of_quota).collect();
        SetMetrics { results, quotas }
    }

    fn name(&self, family: &str, quota: &str) -> String {
        format!("{family}.{}{quota}{}", self.rule, self.tier)
    }
}

fn of_results(
    results: impl IntoIterator<Item = RuleResult>,
    name: &str,
    define: Define<'_>,
) -> Results {
    let mut counters = Results::default();
    for result in results {
        if let Some(counter) = counters.get_mut(result.index()) {
            *counter = define(&format!("{name}.result={}", result.label()));
        }
    }
    counters
}
