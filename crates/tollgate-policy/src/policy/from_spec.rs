//! From a spec to the policy: derived parts are computed.
//!
//! Invariant: quotas are numbered in the order of the document, a rule's own before those of its
//! tiers, and those of fallbacks after all others. Only identities, those of groups and records,
//! are taken from the spec unchecked, because only the document determines them; each is unique.

use alloc::string::String;
use alloc::vec::Vec;

use crate::policy::by_value::ByValue;
use crate::policy::compiled::Policy;
use crate::policy::deny::DenyRules;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::index::Index;
use crate::policy::quota::CompiledQuota;
use crate::policy::records::RECORD_HEADER;
use crate::policy::rule::{Rule, Tier, due};
use crate::policy::settings::{Response, Settings};
use crate::policy::tenant::TenantKey;
use crate::spec::charging::Charging;
use crate::spec::policy::PolicySpec;
use crate::spec::problem::Problems;
use crate::spec::rule::{RecordSpec, RuleSpec, SetSpec, TierSpec, are_unique};
use crate::spec::scope::Scope;
use crate::spec::surface::Surface;
use tollgate_http_syntax::sort::sort_by;

impl Policy {
    /// The policy of `spec`, for `surface`.
    ///
    /// Returns `None` for a spec that no document has: its rules, groups or quotas contradict each
    /// other, exceed a bound, or need longer values than the surface can store
    /// ([`PolicySpec::longest_value`]). Each value in it must be valid on its own, as those that
    /// are read from a document or from bytes are.
    #[must_use]
    pub fn from_spec(spec: PolicySpec, surface: Surface) -> Option<Self> {
        let PolicySpec {
            fingerprint,
            public_fingerprint,
            settings,
            response,
            waiting,
            jwt,
            tenant,
            exempt,
            groups,
            rules,
            deny,
            warnings,
        } = spec.checked(surface)?;
        let mut policy = Self {
            rules: Vec::new(),
            groups: groups.into_iter().map(Group::new).collect(),
            sets: Vec::new(),
            exempt,
            exempt_by_value: ByValue::default(),
            deny: DenyRules::new(deny),
            index: Index::new(),
            settings: Settings::new(settings),
            response: Response { spec: response, hash_key: None },
            waiting,
            jwt,
            tenant: tenant.map(|part| TenantKey { part }),
            is_special: false,
            warnings: Problems(warnings),
            surface,
            fingerprint: fingerprint.0,
            public_fingerprint: public_fingerprint.0,
            keyed_fingerprint: None,
            version: 0,
        };
        let (mut groups_used, mut fallbacks) = (0, Vec::new());
        for rule in rules {
            // Groups are numbered in the order in which rules first use them.
            if usize::from(rule.terms.group) > groups_used || !rule.fits(&policy) {
                return None;
            }
            groups_used = groups_used.max(usize::from(rule.terms.group).checked_add(1)?);
            rule.add_to(&mut policy, &mut fallbacks)?;
        }
        let are_all_used = groups_used == policy.groups.len();
        for fallback in fallbacks {
            fallback.add_to(&mut policy)?;
        }
        if !are_all_used || !has_each_once(&policy) || !policy.patterns_can_match() {
            return None;
        }
        policy.complete();
        debug_assert!(policy.is_whole(), "an index of a policy is out of range");
        Some(policy)
    }
}

/// True when every name of a rule, and every identity of a group or a record, is unique.
fn has_each_once(policy: &Policy) -> bool {
    let mut groups: Vec<u64> = policy.groups.iter().map(|group| group.identity()).collect();
    let ids = |set: &QuotaSet| (1..=set.version).map(|v| u64::from(set.id_in(v))).collect();
    let mut records: Vec<u64> = policy.sets.iter().flat_map::<Vec<u64>, _>(ids).collect();
    let are_apart = |ids: &mut Vec<u64>| {
        sort_by(ids, Ord::cmp);
        ids.is_sorted_by(|one, next| one < next)
    };
    let of_deny = policy.deny.rules.iter().map(|rule| &*rule.name);
    are_apart(&mut groups)
        && are_apart(&mut records)
        && are_unique(policy.rules.iter().map(|rule| &*rule.terms.name).chain(of_deny))
        && has_places(policy)
}

/// True when the rules that deny are in the order of their places among all rules.
fn has_places(policy: &Policy) -> bool {
    let deny = &policy.deny.rules;
    let all = policy.rules.len().saturating_add(deny.len());
    deny.is_sorted_by(|one, next| one.place < next.place)
        && deny.last().is_none_or(|last| usize::from(last.place) < all)
}

impl PolicySpec {
    /// The spec with the programs of its regular expressions; `None` when it exceeds a bound.
    fn checked(mut self, surface: Surface) -> Option<Self> {
        let is_within = self.is_within_bounds()
            && self.longest_value() <= surface.longest_value()
            && self.compile_regexes();
        is_within.then_some(self)
    }

    /// Bytes of the longest value that is stored for one key.
    #[must_use]
    pub fn longest_value(&self) -> usize {
        // Fallbacks of a group are stored in values of their own.
        let mut lengths = alloc::vec![[0_usize; 2]; self.groups.len()];
        for rule in &self.rules {
            let Some([own, fallback]) = lengths.get_mut(usize::from(rule.terms.group)) else {
                continue;
            };
            let sets = rule.tiers.iter().map(|tier| &tier.set).chain([&rule.set]);
            for set in sets.filter(|set| !set.own.is_closed()) {
                *own = own.saturating_add(set.own.len());
                *fallback =
                    fallback.saturating_add(set.fallback.as_ref().map_or(0, RecordSpec::len));
            }
        }
        lengths.into_iter().flatten().max().unwrap_or(0)
    }
}

impl RuleSpec {
    /// True when the rule contains nothing that its group, or the surface, contradicts.
    fn fits(&self, policy: &Policy) -> bool {
        let is_fleet = self.terms.scope == Scope::Fleet;
        let falls_back =
            is_fleet && self.terms.fallback.is_some() && policy.surface.asks_authority();
        let by_calendar = self.is_by_calendar();
        let mut sets = self.tiers.iter().map(|tier| &tier.set).chain([&self.set]);
        let group = policy.groups.get(usize::from(self.terms.group));
        group.is_some_and(|group| {
            let has_choice = group.items != group.spec.key.len();
            let is_leased = is_fleet || group.spec.shards.is_some();
            group.spec.is_fleet == is_fleet
                && self.captures_for(&group.spec.key)
                && !(has_choice && self.tiers.iter().any(|tier| !tier.key_values.is_empty()))
                && !((by_calendar || self.terms.charging == Charging::InFlight) && is_leased)
                && self.can_have_penalties(group.spec.shards.is_some())
                && self.can_have_limits(group.spec.shards.is_some())
        }) && sets.all(|set| set.fallback.is_some() == (falls_back && !set.own.is_closed()))
    }

    fn can_have_penalties(&self, has_shards: bool) -> bool {
        let sets = self.tiers.iter().map(|tier| &tier.set).chain([&self.set]);
        let quotas = sets.flat_map(|set| &set.own.quotas);
        let mut penalised = quotas.filter(|quota| quota.limiter.penalty().is_some());
        penalised.all(|it| self.terms.no_penalty(it.limiter.algorithm(), has_shards).is_none())
    }

    fn can_have_limits(&self, has_shards: bool) -> bool {
        let sets = self.tiers.iter().map(|tier| &tier.set).chain([&self.set]);
        let records = sets.flat_map(|set| core::iter::once(&set.own).chain(&set.fallback));
        let quotas = records.flat_map(|record| &record.quotas);
        let mut varied = quotas.filter(|quota| quota.limit_from.is_some());
        varied.all(|it| self.terms.no_limit_from(it.limiter.algorithm(), has_shards).is_none())
    }

    fn is_by_calendar(&self) -> bool {
        let mut sets = self.tiers.iter().map(|tier| &tier.set).chain([&self.set]);
        sets.any(|set| set.own.quotas.iter().any(|quota| quota.limiter.calendar().is_some()))
    }

    /// Adds the rule and its quotas, and adds the sets that come after all rules to `fallbacks`;
    /// `None` when an index would be out of range.
    fn add_to(self, policy: &mut Policy, fallbacks: &mut Vec<Fallback>) -> Option<()> {
        let is_by_calendar = self.is_by_calendar();
        let Self { terms, set, tiers: tier_specs } = self;
        let rule = u16::try_from(policy.rules.len()).ok()?;
        let mut adding =
            Adding { rule: (rule, &terms.name), group: terms.group, policy, fallbacks };
        let set = set.add(None, &mut adding)?;
        let mut tiers = Vec::new();
        for tier in tier_specs {
            tiers.push(tier.add(&mut adding)?);
        }
        Tier::sort(&mut tiers);
        let indexed_by = policy.index.insert(terms.when.as_ref(), rule);
        let (tiers_by_value, due) = (ByValue::default(), due(&terms));
        let rule = Rule { terms, indexed_by, set, tiers, tiers_by_value, is_by_calendar, due };
        policy.rules.push(rule);
        Some(())
    }
}

impl TierSpec {
    fn add(self, to: &mut Adding<'_>) -> Option<Tier> {
        let Self { name, priority, when, repeated, key_values, set } = self;
        debug_assert!(key_values.is_sorted_by(|one, next| one < next));
        let prefixes = to.policy.prefixes_of(to.group);
        let addresses = Tier::addresses_of(&key_values, prefixes);
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
    fallbacks: &'a mut Vec<Fallback>,
}

/// A set that is added after all rules.
struct Fallback {
    of: u16,
    record: RecordSpec,
}

impl Fallback {
    /// Adds it; `None` when an index would be out of range.
    fn add_to(self, policy: &mut Policy) -> Option<()> {
        let RecordSpec { record_id, quotas } = self.record;
        policy.add_fallback(self.of, record_id, CompiledQuota::placed(quotas))
    }
}

impl SetSpec {
    /// Adds the quotas to the policy and to their group; returns their index.
    fn add(self, tier: Option<String>, to: &mut Adding<'_>) -> Option<u16> {
        let Self { own, fallback } = self;
        let RecordSpec { record_id, quotas } = own;
        let quotas = CompiledQuota::placed(quotas);
        let index = u16::try_from(to.policy.sets.len()).ok()?;
        let set = QuotaSet::new(to.rule, tier, record_id, quotas);
        let group = to.policy.groups.get_mut(usize::from(to.group))?;
        if set.is_closed() {
            to.policy.is_special = true; // it has no place in a value
        } else {
            to.policy.is_special |= set.varies();
            group.sets.push(index);
        }
        to.policy.sets.push(set);
        to.fallbacks.extend(fallback.map(|record| Fallback { of: index, record }));
        Some(index)
    }
}

impl RecordSpec {
    /// Bytes of the record with its header.
    fn len(&self) -> usize {
        let states = self.quotas.iter().map(|quota| quota.limiter.state_len());
        states.fold(RECORD_HEADER, usize::saturating_add)
    }
}
