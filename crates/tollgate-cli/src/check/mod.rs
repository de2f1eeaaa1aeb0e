//! `tollgate check`: is this a policy, what does it do, and what does it take?
//!
//! Invariant: the report is the same data for people and for machines. It is made from the compiled
//! policy; the document is not looked at again.

mod render;

use serde::Serialize;
use tollgate_policy::{Meter, Policy, QuotaSet, Rule};

use crate::args::{CheckArgs, Place};
use crate::source::{Compiled, Finding};
use crate::{End, output, source, words};

/// What `--json` prints. Documented in docs/policy.md.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    surfaces: Vec<&'static str>,
    problems: Vec<Finding>,
    warnings: Vec<Finding>,
    client_ip: Vec<ClientReport>,
    escaped_slashes: Option<&'static str>,
    exempt: Vec<String>,
    rules: Vec<RuleReport>,
}

#[derive(Debug, Serialize)]
struct ClientReport {
    surface: &'static str,
    source: String,
}

#[derive(Debug, Serialize)]
struct RuleReport {
    name: String,
    applies: String,
    key: String,
    on_missing: Option<&'static str>,
    quotas: Vec<QuotaReport>,
    tiers: Vec<TierReport>,
    cost: String,
    charge: String,
    mode: String,
    action: String,
    on_failure: &'static str,
    memory: MemoryReport,
}

#[derive(Debug, Serialize)]
struct TierReport {
    name: String,
    applies: String,
    quotas: Vec<QuotaReport>,
}

#[derive(Debug, Serialize)]
struct QuotaReport {
    name: String,
    algorithm: &'static str,
    limit: u64,
    window_ms: u64,
    burst: u64,
    buckets: Option<u16>,
    strict: bool,
    max_in_window: u64,
    bound: String,
    state_bytes: usize,
    #[serde(skip)]
    words: String,
}

#[derive(Debug, Serialize)]
struct MemoryReport {
    /// Rules with the same key: all their counts lie in one stored value.
    shared_with: Vec<String>,
    value_bytes: usize,
    envoy: Option<EnvoyReport>,
    worker: Option<WorkerReport>,
}

#[derive(Debug, Serialize)]
struct EnvoyReport {
    capacity: u32,
    bytes_per_key: u64,
    table_bytes: u64,
}

#[derive(Debug, Serialize)]
struct WorkerReport {
    durability: &'static str,
}

/// Checks one policy and prints the report.
pub(crate) fn run(args: &CheckArgs) -> Result<(), End> {
    let places = args.surface.places();
    let compiled = source::compile(&source::read(&args.policy)?, places);
    let report = report(&compiled, places);
    if args.json {
        output::json(&report);
    } else if report.ok {
        output::out(&render::text(&report));
    } else {
        report.problems.iter().for_each(|problem| output::err(&problem.line()));
    }
    if report.ok { Ok(()) } else { Err(End::Problems) }
}

fn report(compiled: &Compiled, places: &[Place]) -> Report {
    let ok = compiled.problems.is_empty();
    let policies: &[_] = if ok { &compiled.policies } else { &[] };
    let warnings: Vec<_> = policies.iter().map(|(at, p)| (*at, p.warnings().clone())).collect();
    let client = |(place, policy): &(Place, Policy)| ClientReport {
        surface: place.name(),
        source: policy.client_in_words(),
    };
    let first = policies.first().map(|(_, policy)| policy);
    Report {
        ok,
        surfaces: places.iter().map(|place| place.name()).collect(),
        problems: compiled.problems.clone(),
        warnings: source::merge(&warnings, places.len()),
        client_ip: policies.iter().map(client).collect(),
        escaped_slashes: first.and_then(Policy::escaped_slashes_in_words),
        exempt: first.map(Policy::exempt_in_words).unwrap_or_default(),
        rules: first.map(|policy| rules(policy, places)).unwrap_or_default(),
    }
}

/// All surfaces compile the same rules from one document.
fn rules(policy: &Policy, places: &[Place]) -> Vec<RuleReport> {
    let rules = policy.rules().iter().enumerate();
    rules.filter_map(|(i, rule)| rule_report(policy, i, rule, places)).collect()
}

fn rule_report(policy: &Policy, i: usize, rule: &Rule, places: &[Place]) -> Option<RuleReport> {
    let words = policy.describe(i)?;
    let tiers = words.tiers.into_iter().map(|tier| TierReport {
        name: policy
            .quota_sets()
            .get(tier.quota_set)
            .and_then(QuotaSet::tier)
            .unwrap_or_default()
            .to_owned(),
        applies: tier.applies,
        quotas: quotas(policy, tier.quota_set),
    });
    Some(RuleReport {
        name: rule.name().to_owned(),
        applies: words.applies,
        key: words.key,
        on_missing: words.on_missing,
        quotas: quotas(policy, words.quota_set),
        tiers: tiers.collect(),
        cost: words.cost,
        charge: words.charge,
        mode: words.mode,
        action: words.action,
        on_failure: words.on_failure,
        memory: memory(policy, i, rule, places)?,
    })
}

fn quotas(policy: &Policy, set: usize) -> Vec<QuotaReport> {
    let quota = |meter: &Meter| {
        let limiter = meter.limiter();
        QuotaReport {
            name: meter.name().to_owned(),
            algorithm: limiter.algorithm().name(),
            limit: limiter.limit(),
            window_ms: limiter.window().as_millis_ceil(),
            burst: limiter.capacity(),
            buckets: limiter.algorithm().buckets(),
            strict: limiter.quota().is_strict(),
            max_in_window: limiter.max_in_window(),
            bound: words::bound(limiter),
            state_bytes: limiter.state_len(),
            words: words::quota(limiter),
        }
    };
    policy
        .quota_sets()
        .get(set)
        .map(|set| set.meters().iter().map(quota).collect())
        .unwrap_or_default()
}

fn memory(policy: &Policy, i: usize, rule: &Rule, places: &[Place]) -> Option<MemoryReport> {
    let group = policy.groups().get(rule.group())?;
    let others = policy.rules().iter().enumerate();
    let others = others.filter(|(j, other)| *j != i && other.group() == rule.group());
    Some(MemoryReport {
        shared_with: others.map(|(_, other)| other.name().to_owned()).collect(),
        value_bytes: group.value_len(),
        envoy: places.contains(&Place::Envoy).then(|| EnvoyReport {
            capacity: group.capacity(),
            bytes_per_key: group.table_size().bytes_per_key(),
            table_bytes: group.table_size().bytes(),
        }),
        worker: places.contains(&Place::Worker).then(|| WorkerReport {
            durability: if group.is_strict() { "strict" } else { "relaxed" },
        }),
    })
}
