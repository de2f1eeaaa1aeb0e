//! From a tenant's entry to its quotas under one policy.
//!
//! Invariant: parts of the entry that the policy does not know have no effect.

use alloc::string::String;
use alloc::vec::Vec;

use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::policy::records::RECORD_HEADER;
use crate::policy::rule::Rule;
use crate::policy::tenant::{Tenant, TenantSet};
use crate::spec::charging::Charging;
use crate::spec::limit_from::LimitFrom;
use crate::spec::quota::{QuotaProblem, QuotaSpec, parts_of, with_holds};
use crate::spec::tenant::TenantEntry;
use crate::stable_hash::stable_hash;
use tollgate_http_syntax::sort::sort_by;
use tollgate_storage::marked;

impl Tenant {
    /// The entry of the tenant `id` ([`Tenants::id`](crate::Tenants::id),
    /// [`RequestTenant::id`](crate::RequestTenant::id)) under `policy`. Parts that the policy does
    /// not know have no effect.
    #[must_use]
    pub fn new(policy: &Policy, id: &[u8], entry: &TenantEntry) -> Self {
        let mut sets: Vec<QuotaSet> = Vec::new();
        let mut rules: Vec<(u16, TenantSet)> = Vec::new();
        for (rule, quotas) in &entry.quotas {
            if let Some(rule) = policy.rule_named(rule)
                && let Some(set) = policy.own_set(rule, quotas, &sets)
            {
                let index = u16::try_from(sets.len()).unwrap_or(u16::MAX);
                rules.push((rule, TenantSet::Own(index)));
                sets.push(set);
            }
        }
        let of_tier =
            (0..).zip(&policy.sets).filter(|(_, set)| set.tier.is_some() && set.tier == entry.tier);
        for (index, set) in of_tier {
            if !rules.iter().any(|(rule, _)| *rule == set.rule) {
                rules.push((set.rule, TenantSet::Tier(index)));
            }
        }
        sort_by(&mut rules, |(one, _), (other, _)| one.cmp(other));
        Self {
            id: id.into(),
            policy: policy.fingerprint,
            priority: entry.priority,
            expires_at: entry.expires_at,
            rules,
            sets,
        }
    }

    /// The quotas that a tenant with `quotas` of its own has in `rule`, a rule of `policy`: the
    /// part of one node, with longer states where the rule reserves units. A quota that cannot have
    /// either, or has what the rule cannot have, is a problem, and is left out.
    pub fn quotas_for(
        policy: &Policy,
        rule: &Rule,
        quotas: &[QuotaSpec],
        mut problem: impl FnMut(QuotaProblem),
    ) -> Vec<QuotaSpec> {
        let Rule { terms, is_by_calendar, .. } = rule;
        let parts = parts_of(quotas, terms.scope.nodes(), &mut problem);
        let group = policy.groups.get(usize::from(terms.group));
        let has_shards = group.is_some_and(|group| group.spec.shards.is_some());
        for (i, quota) in quotas.iter().enumerate().filter(|(_, it)| it.limiter.penalty().is_some())
        {
            if let Some(why) = terms.no_penalty(quota.limiter.algorithm(), has_shards) {
                problem((i, "penalty", why.into()));
            }
        }
        for (i, quota) in quotas.iter().enumerate().filter(|(_, it)| it.limit_from.is_some()) {
            if let Some(why) = terms.no_limit_from(quota.limiter.algorithm(), has_shards) {
                problem((i, "limit_from", why.into()));
            }
            if let Some(from) = &quota.limit_from
                && from.source.reads().need().is_some()
                && !policy.quotas_read(from)
            {
                problem((i, "limit_from", NO_SOURCE.into()));
            }
        }
        if terms.charging == Charging::InFlight {
            for (i, _) in quotas.iter().enumerate().filter(|(_, it)| !it.limiter.is_closed()) {
                problem((i, "limit", IN_FLIGHT.into()));
            }
            return quotas.iter().filter(|it| it.limiter.is_closed()).cloned().collect();
        }
        // The group of the rule then counts by the wall clock, and neither a fleet nor shards
        // lease it.
        if !is_by_calendar {
            let by_calendar = |(_, quota): &(usize, &QuotaSpec)| quota.limiter.calendar().is_some();
            for (i, _) in quotas.iter().enumerate().filter(by_calendar) {
                problem((i, "align", NO_CALENDAR.into()));
            }
        }
        with_holds(parts, Some(&terms.charging), problem)
    }
}

const NO_SOURCE: &str =
    "has a source from which no quota of the policy takes a limit; add it there, too";
const IN_FLIGHT: &str =
    "is per window, and the rule limits requests in flight; give the entry a tier of the rule";
const NO_CALENDAR: &str =
    "is for a rule that has a quota by calendar in the policy, too; leave it out";

impl Policy {
    /// True when a quota of the policy has the source of `from`: its surface knows it then.
    fn quotas_read(&self, from: &LimitFrom) -> bool {
        let quotas = self.sets.iter().flat_map(|set| &set.quotas);
        let mut sources = quotas.filter_map(|quota| Some(&quota.limit_from.as_deref()?.source));
        sources.any(|source| *source == from.source)
    }

    fn rule_named(&self, name: &str) -> Option<u16> {
        (0..).zip(&self.rules).find(|(_, rule)| rule.terms.name == name).map(|(i, _)| i)
    }

    /// The tenant's own quotas for `rule`. Their record comes after those of the policy and of
    /// `earlier` sets of the same group.
    fn own_set(&self, rule: u16, quotas: &[QuotaSpec], earlier: &[QuotaSet]) -> Option<QuotaSet> {
        let compiled = self.rules.get(usize::from(rule))?;
        let group = self.groups.get(usize::from(compiled.terms.group))?;
        let mut is_good = true;
        let quotas = Tenant::quotas_for(self, compiled, quotas, |_| is_good = false);
        if !is_good {
            return None;
        }
        let identities: String = quotas.iter().map(QuotaSpec::identity).collect();
        let parts = [compiled.terms.name.as_bytes(), b"", identities.as_bytes(), b"tenant"];
        let version = quotas.iter().map(|quota| quota.limiter.state_version()).max().unwrap_or(1);
        let others = || self.sets_of(group).chain(earlier);
        let is_taken = |id: u32| {
            let is_of = |set: &QuotaSet, id: u32| (1..=set.version).any(|v| set.id_in(v) == id);
            others().any(|set| (1..=version).any(|version| is_of(set, marked(id, version))))
        };
        let mut record_id =
            u32::try_from(stable_hash(&parts) & u64::from(u32::MAX)).unwrap_or(0).max(1);
        while is_taken(record_id) {
            record_id = record_id.checked_add(1).unwrap_or(1);
        }
        let in_group = |set: &&QuotaSet| {
            self.rules.get(set.rule()).is_some_and(|rule| rule.terms.group == compiled.terms.group)
        };
        let before: usize = earlier.iter().filter(in_group).map(QuotaSet::record_len).sum();
        let offset = group.value_len.checked_add(before)?.checked_add(RECORD_HEADER)?;
        let offset = (!group.is_sparse()).then_some(offset);
        let quotas = CompiledQuota::placed(quotas);
        let len = quotas.last().and_then(CompiledQuota::end)?;
        // Three names: neither a rule's own quotas nor a tier, whatever its name, can have these.
        let stable_id = stable_hash(&[compiled.terms.name.as_bytes(), b"", b"tenant"]);
        Some(QuotaSet {
            rule,
            tier: None,
            of_tenant: true,
            stable_id,
            record_id,
            version,
            offset,
            len,
            quotas,
            fallback: None,
        })
    }

    fn sets_of<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a QuotaSet> {
        group.sets.iter().filter_map(|set| self.sets.get(usize::from(*set)))
    }
}
