//! The parts of a rule, a tier and a quota that do not follow from the rest.
//!
//! Invariant: quotas are added to their policy in the order of the document, a rule's own before
//! those of its tiers, as the compiler adds them, so their indices are the same.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Limiter, Span};

use crate::binary::coded::fields;
use crate::document::action::Action;
use crate::document::charging::Charging;
use crate::document::conditions::Conditions;
use crate::document::cost::Cost;
use crate::document::key::KeyPart;
use crate::document::mode::Mode;
use crate::document::on_failure::OnFailure;
use crate::document::rule::{MAX_TIERS, OnMissing};
use crate::document::scalar::Name;
use crate::document::scope::{MAX_NODES, Scope, is_lease};
use crate::policy::bounds::MAX_QUOTAS;
use crate::policy::by_value::ByValue;
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::{Rule, Tier};
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::sort::sort_by;

fields! {
    /// The encoded form of a rule.
    pub(super) struct RuleForm {
        name: String,
        when: Option<Conditions>,
        unless: Option<Conditions>,
        on_missing: OnMissing,
        on_failure: OnFailure,
        scope: Scope,
        lease: Span,
        fallback: Option<u32>,
        cost: Cost,
        names_cost: bool,
        charging: Charging,
        mode: Mode,
        action: Action,
        group: u16,
        set: SetForm,
        /// In the order of the document.
        tiers: Vec<TierForm>,
    } if |it| {
        Name::is_one(&it.name)
            && (it.names_cost || it.cost == Cost::Fixed(1))
            && it.tiers.len() <= MAX_TIERS
            && (it.lease == Span::ZERO || it.scope == Scope::Fleet && is_lease(it.lease))
            && it.fallback.is_none_or(|nodes| (1..=MAX_NODES).contains(&nodes))
            && are_unique(it.tiers.iter().map(|tier| &*tier.name))
    }
}

fields! {
    struct TierForm {
        name: String,
        priority: u32,
        when: Option<Conditions>,
        repeated: Option<Repeated>,
        /// Sorted and unique.
        key_values: Vec<Vec<u8>>,
        set: SetForm,
    } if |it| {
        Name::is_one(&it.name)
            && it.priority <= 1_000_000
            && it.key_values.is_sorted_by(|one, next| one < next)
    }
}

fields! {
    struct SetForm {
        own: RecordForm,
        /// The local count of a node while no authority answers.
        fallback: Option<RecordForm>,
    }
}

fields! {
    struct RecordForm {
        record_id: u32,
        quotas: Vec<QuotaForm>,
    } if |it| {
        it.record_id > 0
            && (1..=MAX_QUOTAS).contains(&it.quotas.len())
            && are_unique(it.quotas.iter().map(|quota| &*quota.name))
    }
}

fields! {
    struct QuotaForm {
        name: String,
        limiter: Limiter,
    } if |it| Name::is_one(&it.name)
}

/// True when every name is unique.
pub(super) fn are_unique<'n>(names: impl Iterator<Item = &'n str>) -> bool {
    let mut names: Vec<&str> = names.collect();
    sort_by(&mut names, Ord::cmp);
    names.is_sorted_by(|one, next| one < next)
}

impl RuleForm {
    pub(super) fn of(rule: &Rule, sets: &[QuotaSet]) -> Self {
        let Rule {
            name,
            when,
            unless,
            indexed_by: _,
            on_missing,
            on_failure,
            scope,
            lease,
            fallback,
            cost,
            names_cost,
            charging,
            mode,
            action,
            group,
            set,
            tiers,
            tiers_by_value: _,
        } = rule.clone();
        let mut tiers = tiers;
        sort_by(&mut tiers, |one, other| one.set.cmp(&other.set));
        Self {
            name,
            when,
            unless,
            on_missing,
            on_failure,
            scope,
            lease,
            fallback,
            cost,
            names_cost,
            charging,
            mode,
            action,
            group,
            set: SetForm::of(set, sets),
            tiers: tiers.into_iter().map(|tier| TierForm::of(tier, sets)).collect(),
        }
    }

    /// The group of its key, numbered in the order in which rules first use them.
    pub(super) fn group(&self) -> usize {
        self.group.into()
    }

    /// Its own quota set and those of its tiers.
    pub(super) fn sets(&self) -> usize {
        self.tiers.len().saturating_add(1)
    }

    /// The number of segments in all paths by which it is looked up.
    pub(super) fn path_segments(&self) -> usize {
        let paths = self.when.as_ref().and_then(Conditions::paths).unwrap_or_default();
        paths.iter().fold(0, |sum, path| sum.saturating_add(path.segments.len()))
    }

    /// True when the rule contains nothing that its group, or the surface, contradicts.
    pub(super) fn fits(&self, policy: &Policy) -> bool {
        let is_fleet = self.scope == Scope::Fleet;
        let falls_back = is_fleet && self.fallback.is_some() && policy.surface.asks_authority();
        let mut sets = self.tiers.iter().map(|tier| &tier.set).chain([&self.set]);
        let group = policy.groups.get(self.group());
        group.is_some_and(|group| group.is_fleet == is_fleet && self.captures_for(&group.key))
            && sets.all(|set| set.fallback.is_some() == falls_back)
    }

    /// True when every path of the rule captures the parameters that its key uses.
    fn captures_for(&self, key: &[KeyPart]) -> bool {
        let paths = self.when.as_ref().and_then(Conditions::paths);
        let is_captured = |name: &str| {
            paths.is_some_and(|paths| paths.iter().all(|path| path.captures().any(|n| n == name)))
        };
        key.iter().all(|part| match part {
            KeyPart::PathParam(name) => is_captured(name),
            _ => true,
        })
    }

    /// Adds the rule and its quotas, and adds the sets that come after all rules to `fallbacks`;
    /// `None` when an index would be out of range.
    pub(super) fn add_to(
        self,
        policy: &mut Policy,
        fallbacks: &mut Vec<FallbackForm>,
    ) -> Option<()> {
        let Self {
            name,
            when,
            unless,
            on_missing,
            on_failure,
            scope,
            lease,
            fallback,
            cost,
            names_cost,
            charging,
            mode,
            action,
            group,
            set,
            tiers: forms,
        } = self;
        let rule = u16::try_from(policy.rules.len()).ok()?;
        let mut adding = Adding { rule: (rule, &name), group, policy, fallbacks };
        let set = set.add(None, &mut adding)?;
        let mut tiers = Vec::new();
        for form in forms {
            tiers.push(form.add(&mut adding)?);
        }
        Tier::sort(&mut tiers);
        policy.rules.push(Rule {
            indexed_by: policy.index.insert(when.as_ref(), rule),
            name,
            when,
            unless,
            on_missing,
            on_failure,
            scope,
            lease,
            fallback,
            cost,
            names_cost,
            charging,
            mode,
            action,
            group,
            set,
            tiers,
            tiers_by_value: ByValue::default(),
        });
        Some(())
    }
}

impl TierForm {
    fn of(tier: Tier, sets: &[QuotaSet]) -> Self {
        let Tier { priority, when, repeated, key_values, addresses: _, set } = tier;
        let name = sets.get(usize::from(set)).and_then(QuotaSet::tier);
        Self {
            name: name.unwrap_or_default().into(),
            priority,
            when,
            repeated,
            key_values: key_values.into_iter().collect(),
            set: SetForm::of(set, sets),
        }
    }

    fn add(self, to: &mut Adding<'_>) -> Option<Tier> {
        let Self { name, priority, when, repeated, key_values, set } = self;
        // One at a time: collecting would sort them, with another sort function in the module.
        let mut distinct = BTreeSet::new();
        for value in key_values {
            distinct.insert(value);
        }
        let key_values = distinct;
        let addresses = Tier::addresses_of(&key_values, to.policy.settings.prefixes);
        let set = set.add(Some(name), to)?;
        Some(Tier { priority, when, repeated, key_values, addresses, set })
    }
}

/// The target to which the quotas of one rule are added.
struct Adding<'a> {
    /// Its index and its name.
    rule: (u16, &'a str),
    group: u16,
    policy: &'a mut Policy,
    fallbacks: &'a mut Vec<FallbackForm>,
}

/// A set that is added after all rules.
pub(super) struct FallbackForm {
    of: u16,
    record: RecordForm,
}

impl FallbackForm {
    /// Adds it; `None` when an index would be out of range.
    pub(super) fn add_to(self, policy: &mut Policy) -> Option<()> {
        let (record_id, quotas) = self.record.quotas()?;
        policy.add_fallback(self.of, record_id, quotas)
    }
}

impl SetForm {
    fn of(set: u16, sets: &[QuotaSet]) -> Self {
        let of = |set: u16| sets.get(usize::from(set));
        let fallback = of(set).and_then(|set| set.fallback);
        Self { own: RecordForm::of(of(set)), fallback: fallback.map(|it| RecordForm::of(of(it))) }
    }

    /// Adds the quotas to the policy and to their group; returns their index.
    fn add(self, tier: Option<String>, to: &mut Adding<'_>) -> Option<u16> {
        let Self { own, fallback } = self;
        let (record_id, quotas) = own.quotas()?;
        let index = u16::try_from(to.policy.sets.len()).ok()?;
        to.policy.sets.push(QuotaSet::new(to.rule, tier, record_id, quotas));
        to.policy.groups.get_mut(usize::from(to.group))?.sets.push(index);
        to.fallbacks.extend(fallback.map(|record| FallbackForm { of: index, record }));
        Some(index)
    }
}

impl RecordForm {
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
            let CompiledQuota { name, name_hash: _, limiter, window: _, offset: _ } = quota;
            QuotaForm { name: name.clone(), limiter: *limiter }
        };
        Self { record_id: *record_id, quotas: quotas.iter().map(quota).collect() }
    }

    /// The quotas with their positions in the record.
    fn quotas(self) -> Option<(u32, Vec<CompiledQuota>)> {
        let mut quotas: Vec<CompiledQuota> = Vec::new();
        for QuotaForm { name, limiter } in self.quotas {
            let offset = quotas.last().map_or(Some(0), CompiledQuota::end)?;
            quotas.push(CompiledQuota::new(name, limiter, offset));
        }
        Some((self.record_id, quotas))
    }
}
