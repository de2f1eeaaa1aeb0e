//! The compiler: one pass over the document's rules.
//!
//! Invariant: the result is consistent for every document; afterwards, the noted problems decide
//! whether it is a policy.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::compile::fallbacks::Fallbacks;
use crate::compile::identities::{RecordIds, key_identity, small};
use crate::compile::names::unique;
use crate::compile::parts::{Holds, nodes, with_holds};
use crate::compile::quotas::compiled_quotas;
use crate::compile::settings::settings;
use crate::document::action::Action;
use crate::document::charging::Charging;
use crate::document::conditions::Conditions;
use crate::document::cost::Cost;
use crate::document::key::Key;
use crate::document::mode::Mode;
use crate::document::on_failure::{OnFailure, WithoutState};
use crate::document::root::{BodyFormat, Document, HeaderGeneration, WaitingDoc};
use crate::document::rule::{Durability, OnMissing, QuotaDoc, RuleDoc};
use crate::document::scalar::{Name, Version};
use crate::document::scope::{DEFAULT_LEASE, Scope};
use crate::json::place::At;
use crate::json::problem::Problems;
use crate::json::reader::Lenient;
use crate::policy::bounds::{MAX_KEY_PARTS, MAX_PATH_SEGMENTS, MAX_RULES, MAX_SETS};
use crate::policy::by_id::ById;
use crate::policy::by_value::ByValue;
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::index::Index;
use crate::policy::jwt::Jwt;
use crate::policy::limits::Limits;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::{Rule, Tier};
use crate::policy::settings::{Response, Settings};
use crate::policy::surface::Surface;
use crate::policy::tenant::TenantKey;
use crate::stable_hash::stable_hash;
use tollgate_http_syntax::repeated::Repeated;

/// Keys held in Envoy unless the policy sets another number.
const DEFAULT_CAPACITY: u32 = 65_536;

/// A policy that is being built.
pub(super) struct Compiler {
    pub(super) policy: Policy,
    on_failure: OnFailure,
    /// Bytes of the longest value that the surface can store.
    longest_value: usize,
    record_ids: RecordIds,
    /// Groups by the identity of their keys.
    groups: BTreeMap<u64, u16>,
    fallbacks: Fallbacks,
}

/// The key part that identifies a tenant.
fn tenant(document: &Document) -> Option<TenantKey> {
    let repeated = document.repeated.unwrap_or(Repeated::Refuse);
    document.tenant.as_ref().map(|part| TenantKey { part: part.resolved(repeated) })
}

/// The limits on waiting requests.
fn waiting(doc: Option<&WaitingDoc>) -> Limits {
    let most = Limits::default();
    let Some(doc) = doc else { return most };
    let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    Limits {
        per_key: doc.per_key.map_or(most.per_key, |n| number(n.0)),
        total: doc.total.map_or(most.total, |n| number(n.0)),
        bytes: doc.bytes.map_or(most.bytes, |n| number(n.0)),
    }
}

impl Compiler {
    pub(super) fn new(document: &Document, surface: Surface, fingerprint: u64) -> Self {
        let traits = surface.traits();
        let Version = document.version; // there is one version yet
        let response = document.response.as_ref();
        let policy = Policy {
            rules: Vec::new(),
            groups: Vec::new(),
            sets: Vec::new(),
            exempt: document.exempt().to_vec(),
            exempt_by_value: ByValue::default(),
            index: Index::new(),
            settings: settings(document, &traits),
            response: Response {
                headers: response.and_then(|r| r.headers).unwrap_or(HeaderGeneration::Draft11),
                policy: response.and_then(|r| r.policy).unwrap_or(true),
                on_allow: response.and_then(|r| r.on_allow).unwrap_or(true),
                body: response.and_then(|r| r.body).unwrap_or(BodyFormat::ProblemJson),
                jitter: response.and_then(|r| r.jitter).map_or(Span::ZERO, |w| w.0),
                partition_key: response.and_then(|r| r.partition_key).unwrap_or(false),
                hash_key: None,
            },
            waiting: waiting(document.waiting.as_ref()),
            jwt: document.jwt.as_ref().map(Jwt::new),
            tenant: tenant(document),
            warnings: Problems::default(),
            surface,
            fingerprint,
            public_fingerprint: 0, // of the text, which is not known here
            keyed_fingerprint: None,
            version: 0,
        };
        let on_failure = document.on_failure.unwrap_or(OnFailure::Allow);
        Self {
            policy,
            on_failure,
            longest_value: traits.longest_value,
            record_ids: RecordIds::default(),
            groups: BTreeMap::new(),
            fallbacks: Fallbacks::new(traits.asks_authority),
        }
    }

    pub(super) fn rules(&mut self, document: &Document, root: &At<'_>) {
        let (rules, at) = (&document.rules, root.field("rules"));
        if rules.len() > MAX_RULES {
            at.problem(format!("has {} rules; use at most {MAX_RULES}", rules.len()));
            return;
        }
        let sets: usize =
            document.rules().map(|(_, rule)| rule.tiers().len().saturating_add(1)).sum();
        if sets > MAX_SETS {
            at.problem(format!("has {sets} rules and tiers in all; use at most {MAX_SETS}"));
            return;
        }
        let whens = document.rules().filter_map(|(_, rule)| rule.when.as_ref());
        let patterns = whens.filter_map(Conditions::paths).flatten();
        let segments: usize = patterns.map(|pattern| pattern.segments.len()).sum();
        if segments > MAX_PATH_SEGMENTS {
            at.problem(format!(
                "has {segments} path segments in all; use at most {MAX_PATH_SEGMENTS}"
            ));
            return;
        }
        unique(document.rules().map(|(i, rule)| (i, &rule.name)), &at);
        for (i, rule) in document.rules() {
            self.rule(rule, &at.item(i));
        }
        self.fallbacks.add(&mut self.policy, &mut self.record_ids);
        self.policy.complete();
        self.check_length(&at);
    }

    fn rule(&mut self, doc: &RuleDoc, at: &At<'_>) {
        let rule = small(self.policy.rules.len());
        let group = self.group(doc, at);
        let quotas = held_quotas(doc, &doc.quotas, &at.field("quotas"));
        let set = self.quota_set(rule, group, None, &doc.name, quotas);
        self.fallbacks.note(doc, set, &self.policy, &at.field("quotas"));
        let tiers = self.tiers(doc, rule, group, at);
        self.policy.rules.push(Rule {
            name: doc.name.0.clone(),
            when: doc.when.clone(),
            unless: doc.unless.clone(),
            indexed_by: self.policy.index.insert(doc.when.as_ref(), rule),
            on_missing: doc.on_missing.unwrap_or(OnMissing::Skip),
            on_failure: match doc.on_failure {
                Some(WithoutState::Decided(mode)) => mode,
                // The document's setting applies where the rule's own count cannot decide.
                Some(WithoutState::Local(_)) | None => self.on_failure,
            },
            scope: doc.scope(),
            lease: lease(doc),
            fallback: match doc.on_failure {
                Some(WithoutState::Local(nodes)) => Some(nodes),
                Some(WithoutState::Decided(_)) | None => None,
            },
            cost: doc.cost.clone().unwrap_or(Cost::Fixed(1)),
            names_cost: doc.cost.is_some(),
            charging: doc.charge.clone().unwrap_or(Charging::Request),
            mode: doc.mode.unwrap_or(Mode::Enforce),
            action: doc.action.clone().unwrap_or(Action::Deny(None)),
            group,
            set,
            tiers,
            tiers_by_value: ByValue::default(),
        });
    }

    fn tiers(&mut self, doc: &RuleDoc, rule: u16, group: u16, at: &At<'_>) -> Vec<Tier> {
        let docs = doc.tiers();
        let at = at.field("tiers");
        unique(docs.iter().map(|tier| &tier.name).enumerate(), &at);
        let mut tiers: Vec<Tier> = Vec::new();
        for (i, tier) in docs.iter().enumerate() {
            let at = at.item(i);
            if tier.when.is_none() && tier.key_values.is_none() {
                at.problem(
                    "applies to no particular client; give it \"when\" or \"key_values\"".into(),
                );
            }
            let at = at.field("quotas");
            let quotas = held_quotas(doc, &tier.quotas, &at);
            let set = self.quota_set(rule, group, Some(&tier.name), &doc.name, quotas);
            self.fallbacks.note(doc, set, &self.policy, &at);
            let texts = tier.key_values.iter().flat_map(|values| &values.0);
            let key_values = texts.map(|text| text.clone().into_bytes()).collect();
            let addresses = Tier::addresses_of(&key_values, self.policy.settings.prefixes);
            tiers.push(Tier {
                priority: tier.priority.map_or(0, |p| p.0),
                when: tier.when.clone(),
                repeated: tier.repeated,
                key_values,
                addresses,
                set,
            });
        }
        Tier::sort(&mut tiers);
        tiers
    }

    fn quota_set(
        &mut self,
        rule: u16,
        group: u16,
        tier: Option<&Name>,
        name: &Name,
        quotas: Vec<CompiledQuota>,
    ) -> u16 {
        let tier = tier.map(|tier| tier.0.clone());
        let identities: String = quotas.iter().map(CompiledQuota::identity).collect();
        let tier_name = tier.as_deref().unwrap_or_default();
        let hash = stable_hash(&[name.0.as_bytes(), tier_name.as_bytes(), identities.as_bytes()]);
        let record_id = self.record_ids.free(hash, QuotaSet::version_of(&quotas));
        let set = small(self.policy.sets.len());
        self.policy.sets.push(QuotaSet::new((rule, &name.0), tier, record_id, quotas));
        if let Some(group) = self.policy.groups.get_mut(usize::from(group)) {
            group.sets.push(set);
        }
        set
    }

    /// The group of this rule's key and scope, a new one for the first rule with it.
    fn group(&mut self, doc: &RuleDoc, at: &At<'_>) -> u16 {
        if doc.key.len() > MAX_KEY_PARTS {
            let message = format!("has {} parts; use at most {MAX_KEY_PARTS}", doc.key.len());
            at.field("key").problem(message);
        }
        let Settings { prefixes, repeated, .. } = self.policy.settings;
        let key: Key = doc.key.iter().map(|part| part.resolved(repeated)).collect();
        let scope = doc.scope();
        let identity = key_identity(&key, &doc.name.0, prefixes, scope);
        let shards = doc.shards.map(|shards| shards.0);
        let next = small(self.policy.groups.len());
        let index = *self.groups.entry(identity).or_insert(next);
        if index == next {
            let new = Group {
                key,
                identity,
                capacity: 0,
                strict: false,
                is_fleet: scope == Scope::Fleet,
                shards,
                sets: Vec::new(),
                is_sparse: false,
                by_id: ById::default(),
                by_name: ById::default(),
                blank: Vec::new(),
                value_len: 0,
                quotas: 0,
                fallback: None,
            };
            self.policy.groups.push(new);
        }
        if let Some(group) = self.policy.groups.get_mut(usize::from(index)) {
            if group.shards != shards {
                let others = group.shards.map_or("no shards".into(), |n| format!("{n} of them"));
                at.field("shards").problem(format!(
                    "are the key's, and a rule above counts by the same key with {others}; give both the same number, \
                     or leave it out of both"
                ));
            }
            group.capacity = group.capacity.max(doc.capacity.map_or(DEFAULT_CAPACITY, |c| c.0));
            group.strict |= doc.durability.unwrap_or(Durability::Strict) == Durability::Strict;
        }
        index
    }

    /// Notes that the quotas of a key take more bytes than the surface can store for it.
    fn check_length(&self, at: &At<'_>) {
        let longest = self.policy.groups.iter().map(Group::value_len).max().unwrap_or(0);
        if longest > self.longest_value {
            at.problem(format!(
                "the quotas of one key take {longest} bytes together, more than {}; use another algorithm than \
                 sliding-log or fewer quotas",
                self.longest_value
            ));
        }
    }
}

/// The quotas of a rule or of one of its tiers; they hold units where the rule reserves.
fn held_quotas(doc: &RuleDoc, quotas: &[Lenient<QuotaDoc>], at: &At<'_>) -> Vec<CompiledQuota> {
    let quotas = compiled_quotas(quotas, &doc.name.0, nodes(doc), at);
    with_holds(quotas, Holds::of(doc.charge.as_ref()), |i, field, words| {
        at.item(i).field(field).problem(words);
    })
}

/// The longest time for which units of a rule are leased; zero for a queue, which gives places.
fn lease(doc: &RuleDoc) -> Span {
    match doc.scope() {
        Scope::Fleet if doc.quotas().any(QuotaDoc::is_queue) => Span::ZERO,
        Scope::Fleet => doc.lease.map_or(DEFAULT_LEASE, |lease| lease.0),
        Scope::Local | Scope::Share(_) => Span::ZERO,
    }
}
