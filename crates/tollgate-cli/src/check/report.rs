//! The report of `check` as plain data: the output of `--json`, and the source of the text for
//! people.
//!
//! Invariant: it is built from the compiled policy; the document is not read again.

use serde::Serialize;
use tollgate_core::Span;
use tollgate_policy::explain::{DenyRuleInWords, words};
use tollgate_policy::{CompiledQuota, DenyRule, Policy, QuotaSet, Rule, Surface, TenantEntry};

use super::bill::{Bill, bill};
use crate::filter_modules::ModuleReport;
use crate::source::{Compiled, Finding};
use crate::tenants::Tenants;

/// The output of `--json`. Documented in docs/policy/command-line.md.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(super) ok: bool,
    pub(super) surfaces: Vec<&'static str>,
    pub(super) problems: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
    pub(super) client_ip: Vec<ClientReport>,
    /// For an Envoy configuration whose rules read the client's address: the connection manager's
    /// source of that address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) manager: Option<String>,
    pub(super) escaped_slashes: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path_case: Option<&'static str>,
    /// The parts of certificates that are counted by in Envoy; absent when none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) certificate: Option<String>,
    /// The filters whose metadata is counted by; absent when none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<String>,
    /// How a tenant is identified; absent when there are no tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
    /// The entries of tenants, if any were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entries: Option<EntriesReport>,
    pub(super) exempt: Vec<String>,
    /// The rules that deny without counting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) deny: Vec<DenyReport>,
    pub(super) rules: Vec<RuleReport>,
    /// The modules of the filter, the smallest first; present when Envoy is the only requested
    /// surface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) modules: Vec<ModuleReport>,
    /// Present when the Worker is the only requested surface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bill: Option<Bill>,
}

/// The number of entries, and of each kind; one entry may be of several kinds.
#[derive(Debug, Default, Serialize)]
pub(super) struct EntriesReport {
    pub(super) count: usize,
    pub(super) with_tier: usize,
    pub(super) with_own_quotas: usize,
    pub(super) expiring: usize,
}

impl EntriesReport {
    fn of(tenants: &Tenants) -> Self {
        let count = |is: fn(&TenantEntry) -> bool| {
            tenants.entries.iter().filter(|(_, entry)| is(entry)).count()
        };
        Self {
            count: tenants.entries.len(),
            with_tier: count(|entry| entry.tier.is_some()),
            with_own_quotas: count(|entry| !entry.quotas.is_empty()),
            expiring: count(|entry| entry.expires_at.is_some()),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ClientReport {
    pub(super) surface: &'static str,
    pub(super) source: String,
}

#[derive(Debug, Serialize)]
pub(super) struct DenyReport {
    pub(super) name: String,
    pub(super) applies: String,
    pub(super) action: String,
    pub(super) mode: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct RuleReport {
    pub(super) name: String,
    pub(super) applies: String,
    pub(super) key: String,
    pub(super) on_missing: Option<&'static str>,
    pub(super) quotas: Vec<QuotaReport>,
    pub(super) tiers: Vec<TierReport>,
    /// The effect of windows by a calendar; absent where no quota has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) calendar: Option<String>,
    pub(super) cost: String,
    pub(super) charge: String,
    pub(super) mode: String,
    pub(super) action: String,
    pub(super) on_failure: &'static str,
    /// Absent where each node has its own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) without_authority: Option<String>,
    pub(super) memory: MemoryReport,
}

#[derive(Debug, Serialize)]
pub(super) struct TierReport {
    pub(super) name: String,
    pub(super) applies: String,
    pub(super) quotas: Vec<QuotaReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct QuotaReport {
    pub(super) name: String,
    pub(super) algorithm: &'static str,
    pub(super) limit: u64,
    /// Where a request has its own limit, which is then at most `limit`, and the limit of one
    /// without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default_limit: Option<u64>,
    pub(super) window_ms: u64,
    pub(super) burst: u64,
    pub(super) buckets: Option<u16>,
    /// For `sliding-buckets`: the oldest part counts in proportion to its overlap with the window.
    pub(super) weighted: Option<bool>,
    pub(super) strict: bool,
    pub(super) max_in_window: Option<u64>,
    pub(super) bound: String,
    /// The calendar whose windows it counts in; `window_ms` is then the longest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) calendar: Option<String>,
    /// How long each denial denies the key: the first one, and those after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) penalty_ms: Vec<u64>,
    pub(super) state_bytes: usize,
    #[serde(skip)]
    pub(super) words: String,
}

#[derive(Debug, Serialize)]
pub(super) struct MemoryReport {
    /// Rules with the same key: all their counts are in one stored value.
    pub(super) shared_with: Vec<String>,
    pub(super) value_bytes: usize,
    /// A key takes the bytes of the rules that it uses, and at most those of all rules.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub(super) sparse: bool,
    pub(super) envoy: Option<EnvoyReport>,
    pub(super) worker: Option<WorkerReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct EnvoyReport {
    pub(super) capacity: u32,
    pub(super) bytes_per_key: u64,
    pub(super) table_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkerReport {
    pub(super) durability: &'static str,
    /// Absent where the key's own object counts every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shards: Option<u32>,
}

/// Builds the report on one policy, valid or not.
pub(crate) fn report(compiled: Compiled, tenants: &Tenants) -> Report {
    let Compiled { surfaces, policies, problems, warnings } = compiled;
    let ok = problems.is_empty();
    let policies: &[_] = if ok { &policies } else { &[] };
    let client = |(surface, policy): &(Surface, Policy)| ClientReport {
        surface: surface.name(),
        source: policy.explain().client(),
    };
    let envoy = policies.iter().find(|(surface, _)| *surface == Surface::Envoy);
    let first = policies.first().map(|(_, policy)| policy);
    Report {
        ok,
        surfaces: surfaces.iter().map(|surface| surface.name()).collect(),
        problems,
        warnings: if ok { warnings } else { Vec::new() },
        client_ip: policies.iter().map(client).collect(),
        manager: None,
        escaped_slashes: first.and_then(|policy| policy.explain().escaped_slashes()),
        path_case: first.and_then(|policy| policy.explain().path_case()),
        certificate: envoy.and_then(|(_, policy)| policy.explain().certificate()),
        metadata: first.and_then(|policy| policy.explain().metadata()),
        tenant: first.and_then(|policy| policy.explain().tenant()),
        entries: first.filter(|_| tenants.are_given()).map(|_| EntriesReport::of(tenants)),
        exempt: first.map(|policy| policy.explain().exempt()).unwrap_or_default(),
        deny: first.map(deny).unwrap_or_default(),
        rules: first.map(|policy| rules(policy, &surfaces)).unwrap_or_default(),
        modules: Vec::new(),
        bill: first.filter(|_| surfaces == [Surface::Worker]).map(bill),
    }
}

fn deny(policy: &Policy) -> Vec<DenyReport> {
    let words = policy.explain().deny_rules();
    let report = |(rule, words): (&DenyRule, DenyRuleInWords)| DenyReport {
        name: rule.name().to_owned(),
        applies: words.applies,
        action: words.action,
        mode: words.mode,
    };
    policy.deny_rules().iter().zip(words).map(report).collect()
}

/// All surfaces compile the same rules from one document.
fn rules(policy: &Policy, surfaces: &[Surface]) -> Vec<RuleReport> {
    let rules = policy.rules().iter().enumerate();
    rules.filter_map(|(i, rule)| rule_report(policy, i, rule, surfaces)).collect()
}

fn rule_report(policy: &Policy, i: usize, rule: &Rule, surfaces: &[Surface]) -> Option<RuleReport> {
    let words = policy.explain().rule(i)?;
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
        calendar: rule.is_by_calendar().then(|| calendar(surfaces)),
        cost: words.cost,
        charge: words.charge,
        mode: words.mode,
        action: words.action,
        on_failure: words.on_failure,
        scope: words.scope,
        without_authority: words.without_authority,
        memory: memory(policy, i, rule, surfaces)?,
    })
}

/// The consequences of a window that begins at one instant for all clients, and of its length.
fn calendar(surfaces: &[Surface]) -> String {
    let mut text = String::from("all clients return at one instant, when a window begins");
    let names = surfaces.iter().filter_map(|surface| match surface {
        Surface::Envoy => Some("Envoy"),
        Surface::Server => Some("a server's memory"),
        Surface::Worker | Surface::Library => None,
    });
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        let names = names.join(" and in ");
        text.push_str(&format!(
            "; in {names} a restart or a full table forgets the counts, Redis and the Worker keep them"
        ));
    }
    text
}

fn quotas(policy: &Policy, set: usize) -> Vec<QuotaReport> {
    let rule = policy.quota_sets().get(set).and_then(|set| policy.rules().get(set.rule()));
    let quota = |quota: &CompiledQuota| {
        let limiter = quota.limiter();
        QuotaReport {
            name: quota.name().to_owned(),
            algorithm: limiter.counts_by(),
            limit: limiter.limit(),
            default_limit: quota.limit_from().map(|from| from.default),
            limit_from: quota.limit_from().map(|from| from.source.to_string()),
            window_ms: limiter.window().as_millis_ceil(),
            burst: limiter.capacity(),
            buckets: limiter.algorithm().buckets(),
            weighted: limiter.algorithm().buckets().map(|_| limiter.algorithm().is_weighted()),
            strict: limiter.quota().is_strict(),
            max_in_window: limiter.max_age().is_none().then(|| limiter.max_in_window()),
            bound: words::bound_under(rule, limiter),
            calendar: limiter.calendar().map(|calendar| format!("{calendar}")),
            penalty_ms: limiter.penalty().map_or_else(Vec::new, |penalty| {
                penalty.steps().map(Span::as_millis_ceil).collect()
            }),
            state_bytes: limiter.state_len(),
            words: words::quota_with_source(quota),
        }
    };
    policy
        .quota_sets()
        .get(set)
        .map(|set| set.quotas().iter().map(quota).collect())
        .unwrap_or_default()
}

fn memory(policy: &Policy, i: usize, rule: &Rule, surfaces: &[Surface]) -> Option<MemoryReport> {
    let group = policy.groups().get(rule.group())?;
    let surfaces = if group.value_len() == 0 { &[] } else { surfaces };
    let others = policy.rules().iter().enumerate();
    let others = others.filter(|(j, other)| *j != i && other.group() == rule.group());
    Some(MemoryReport {
        shared_with: others.map(|(_, other)| other.name().to_owned()).collect(),
        value_bytes: group.value_len(),
        sparse: group.is_sparse(),
        envoy: surfaces.contains(&Surface::Envoy).then(|| EnvoyReport {
            capacity: group.capacity(),
            bytes_per_key: group.table_size().bytes_per_key(),
            table_bytes: group.table_size().bytes(),
        }),
        worker: surfaces.contains(&Surface::Worker).then(|| WorkerReport {
            durability: if group.is_strict() { "strict" } else { "relaxed" },
            shards: group.shards(),
        }),
    })
}
