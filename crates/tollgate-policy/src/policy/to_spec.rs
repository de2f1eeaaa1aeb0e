//! From a policy back to its spec, so that it can be written.
//!
//! Invariant: what the document says is kept as the spec has it (`terms`, `spec`); all other fields
//! are derived, and are named here, so that a new one must be either.

use crate::policy::compiled::Policy;
use crate::policy::deny::DenyRules;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::{Rule, Tier};
use crate::policy::tenant::TenantKey;
use crate::spec::policy::{Fixed, PolicySpec};
use crate::spec::quota::QuotaSpec;
use crate::spec::rule::{RecordSpec, RuleSpec, SetSpec, TierSpec};
use alloc::vec::Vec;
use tollgate_http_syntax::sort::sort_by;

impl Policy {
    /// Its spec, without the secret and the version that its surface may have set.
    pub(crate) fn to_spec(&self) -> PolicySpec {
        let Self {
            rules,
            groups,
            sets,
            exempt,
            exempt_by_value: _,
            deny: DenyRules { rules: deny, index: _ },
            index: _,
            settings,
            response,
            waiting,
            jwt,
            tenant,
            is_special: _,
            warnings,
            surface: _, // written before it
            fingerprint,
            public_fingerprint,
            keyed_fingerprint: _, // the secret and the version belong to the surface
            version: _,
        } = self;
        // The groups after these are the local ones of nodes, which follow from these.
        let used = rules.iter().map(|rule| usize::from(rule.terms.group).saturating_add(1)).max();
        let of_rules = groups.iter().take(used.unwrap_or(0));
        PolicySpec {
            fingerprint: Fixed(*fingerprint),
            public_fingerprint: Fixed(*public_fingerprint),
            settings: settings.spec.clone(),
            response: response.spec.clone(),
            waiting: *waiting,
            jwt: jwt.clone(),
            tenant: tenant.as_ref().map(|TenantKey { part }| part.clone()),
            exempt: exempt.clone(),
            groups: of_rules.map(|group| group.spec.clone()).collect(),
            rules: rules.iter().map(|rule| RuleSpec::of(rule, sets)).collect(),
            deny: deny.clone(),
            warnings: warnings.0.clone(),
        }
    }
}

impl RuleSpec {
    fn of(rule: &Rule, sets: &[QuotaSet]) -> Self {
        let Rule { terms, set, tiers, indexed_by: _, tiers_by_value: _, is_by_calendar: _, due: _ } =
            rule;
        let mut tiers: Vec<Tier> = tiers.clone();
        sort_by(&mut tiers, |one, other| one.set.cmp(&other.set));
        Self {
            terms: terms.clone(),
            set: SetSpec::of(*set, sets),
            tiers: tiers.into_iter().map(|tier| TierSpec::of(tier, sets)).collect(),
        }
    }
}

impl TierSpec {
    fn of(tier: Tier, sets: &[QuotaSet]) -> Self {
        let Tier { priority, when, repeated, key_values, addresses: _, set } = tier;
        let name = sets.get(usize::from(set)).and_then(QuotaSet::tier);
        Self {
            name: name.unwrap_or_default().into(),
            priority,
            when,
            repeated,
            key_values,
            set: SetSpec::of(set, sets),
        }
    }
}

impl SetSpec {
    fn of(set: u16, sets: &[QuotaSet]) -> Self {
        let of = |set: u16| sets.get(usize::from(set));
        let fallback = of(set).and_then(|set| set.fallback);
        Self { own: RecordSpec::of(of(set)), fallback: fallback.map(|it| RecordSpec::of(of(it))) }
    }
}

impl RecordSpec {
    fn of(set: Option<&QuotaSet>) -> Self {
        debug_assert!(set.is_some(), "an index of a policy is in range");
        let Some(set) = set else { return Self { record_id: 0, quotas: Vec::new() } };
        let QuotaSet {
            rule: _,
            tier: _, // written with the tier
            of_tenant: _,
            stable_id: _,
            record_id,
            version: _,
            offset: _,
            len: _,
            quotas,
            fallback: _,
        } = set;
        let quota = |quota: &CompiledQuota| {
            let CompiledQuota {
                name,
                name_hash: _,
                limiter,
                window: _,
                offset: _,
                limit_from,
                template: _,
            } = quota;
            let limit_from = limit_from.as_deref().cloned();
            QuotaSpec { name: name.clone(), limiter: *limiter, limit_from }
        };
        Self { record_id: *record_id, quotas: quotas.iter().map(quota).collect() }
    }
}
