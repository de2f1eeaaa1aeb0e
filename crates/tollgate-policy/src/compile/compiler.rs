//! The compiler: one pass over the document's rules.
//!
//! Invariant: what it builds is consistent whatever the document says; whether it is a policy is
//! decided afterwards, by whether any problem was noted.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use tollgate_core::Span;

use crate::compile::names::unique;
use crate::compile::quotas::compiled_quotas;
use crate::document::action::Action;
use crate::document::charging::Charging;
use crate::document::conditions::Conditions;
use crate::document::cost::Cost;
use crate::document::fact::Need;
use crate::document::jwt::JwtDoc;
use crate::document::key::{About, Key, KeyPart};
use crate::document::mode::Mode;
use crate::document::root::{BodyFormat, Document, HeaderGeneration, WaitingDoc};
use crate::document::rule::{Durability, OnFailure, OnMissing, RuleDoc, TierDoc};
use crate::document::scalar::{HeaderName, Name, Version};
use crate::http::address::Prefixes;
use crate::http::readings::EscapedSlashes;
use crate::http::repeated::Repeated;
use crate::json::place::At;
use crate::json::problem::Problems;
use crate::policy::client_address::ClientAddress;
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet, RECORD_HEADER, marked};
use crate::policy::index::Index;
use crate::policy::jwt::Jwt;
use crate::policy::limits::Limits;
use crate::policy::quota::CompiledQuota;
use crate::policy::rule::{Rule, Tier};
use crate::policy::settings::{Response, Settings};
use crate::policy::surface::{Supply, Traits};
use crate::policy::tenant::TenantKey;
use crate::stable_hash::stable_hash;

/// The most rules of a policy.
const MAX_RULES: usize = 1000;
/// The most rules and tiers together: each has an index of 16 bits.
const MAX_SETS: usize = 16_384;
/// The most segments of all path patterns together that are looked up: each is a node with a table
/// of its own.
const MAX_PATH_SEGMENTS: usize = 100_000;
/// The most parts of a key.
pub(super) const MAX_KEY_PARTS: usize = 8;
/// Keys held in Envoy unless the policy says otherwise.
const DEFAULT_CAPACITY: u32 = 65_536;

/// A policy in the making.
pub(super) struct Compiler {
    pub(super) policy: Policy,
    on_failure: OnFailure,
    /// Bytes of the longest value that the surface can store.
    longest_value: usize,
    record_ids: BTreeSet<u32>,
    /// Groups by the identity of their keys.
    groups: BTreeMap<u64, u16>,
}

/// Who a tenant is, as the document says it.
fn tenant(document: &Document) -> Option<TenantKey> {
    let repeated = document.repeated.unwrap_or(Repeated::Refuse);
    document.tenant.as_ref().map(|part| TenantKey { part: part.resolved(repeated) })
}

/// How much may wait, as the document says it.
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
    pub(super) fn new(document: &Document, surface: &Traits, fingerprint: u64) -> Self {
        let Version = document.version; // there is one version yet
        let response = document.response.as_ref();
        let policy = Policy {
            rules: Vec::new(),
            groups: Vec::new(),
            sets: Vec::new(),
            exempt: document.exempt().to_vec(),
            index: Index::new(),
            settings: settings(document, surface),
            response: Response {
                headers: response.and_then(|r| r.headers).unwrap_or(HeaderGeneration::Draft11),
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
            fingerprint,
            version: 0,
        };
        let on_failure = document.on_failure.unwrap_or(OnFailure::Allow);
        Self {
            policy,
            on_failure,
            longest_value: surface.longest_value,
            record_ids: BTreeSet::new(),
            groups: BTreeMap::new(),
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
        self.lay_out();
        self.check_length(&at);
    }

    fn rule(&mut self, doc: &RuleDoc, at: &At<'_>) {
        let rule = small(self.policy.rules.len());
        let group = self.group(doc, at);
        let quotas = compiled_quotas(&doc.quotas, &doc.name.0, &at.field("quotas"));
        let set = self.quota_set(rule, group, None, &doc.name, quotas);
        let tiers = self.tiers(doc, rule, group, at);
        self.policy.rules.push(Rule {
            name: doc.name.0.clone(),
            when: doc.when.clone(),
            unless: doc.unless.clone(),
            indexed_by: self.policy.index.insert(doc.when.as_ref(), rule),
            on_missing: doc.on_missing.unwrap_or(OnMissing::Skip),
            on_failure: doc.on_failure.unwrap_or(self.on_failure),
            cost: doc.cost.clone().unwrap_or(Cost::Fixed(1)),
            charging: doc.charge.clone().unwrap_or(Charging::Request),
            mode: doc.mode.unwrap_or(Mode::Enforce),
            action: doc.action.clone().unwrap_or(Action::Deny(None)),
            group,
            set,
            tiers,
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
                    "is for nobody in particular; give it \"when\" or \"key_values\"".into(),
                );
            }
            let quotas = compiled_quotas(&tier.quotas, &doc.name.0, &at.field("quotas"));
            let set = self.quota_set(rule, group, Some(&tier.name), &doc.name, quotas);
            let texts = tier.key_values.iter().flat_map(|values| &values.0);
            let priority = tier.priority.map_or(0, |p| p.0);
            let tier_of = Tier {
                priority,
                when: tier.when.clone(),
                repeated: tier.repeated,
                key_values: texts.map(|text| text.clone().into_bytes()).collect(),
                addresses: self.addresses(tier),
                set,
            };
            tiers.push(tier_of);
        }
        // Stable: the earlier of two equals first.
        tiers.sort_by_key(|tier| Reverse(tier.priority));
        tiers
    }

    /// The values that are addresses, as these stand in a key.
    fn addresses(&self, tier: &TierDoc) -> BTreeSet<Vec<u8>> {
        let mut addresses = BTreeSet::new();
        for text in tier.key_values.iter().flat_map(|values| &values.0) {
            if let Ok(address) = text.parse() {
                self.policy.settings.prefixes.group(address, |bytes| {
                    addresses.insert(bytes.into());
                });
            }
        }
        addresses
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
        let version = quotas.iter().map(|quota| quota.limiter.state_version()).max().unwrap_or(1);
        let mut record_id = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(0).max(1);
        while (1..=version).any(|version| self.record_ids.contains(&marked(record_id, version))) {
            record_id = record_id.checked_add(1).unwrap_or(1);
        }
        self.record_ids.extend((1..=version).map(|version| marked(record_id, version)));
        let len = quotas.last().and_then(CompiledQuota::end).unwrap_or(0);
        let set = small(self.policy.sets.len());
        self.policy.sets.push(QuotaSet {
            rule,
            stable_id: stable_id(&name.0, tier.as_deref()),
            tier,
            of_tenant: false,
            record_id,
            version,
            offset: 0,
            len,
            quotas,
        });
        if let Some(group) = self.policy.groups.get_mut(usize::from(group)) {
            group.sets.push(set);
        }
        set
    }

    /// The group of this rule's key, a new one for the first rule with it.
    fn group(&mut self, doc: &RuleDoc, at: &At<'_>) -> u16 {
        if doc.key.len() > MAX_KEY_PARTS {
            let message = format!("has {} parts; use at most {MAX_KEY_PARTS}", doc.key.len());
            at.field("key").problem(message);
        }
        let Settings { prefixes, repeated, .. } = self.policy.settings;
        let key: Key = doc.key.iter().map(|part| part.resolved(repeated)).collect();
        let identity = key_identity(&key, &doc.name.0, prefixes);
        let next = small(self.policy.groups.len());
        let index = *self.groups.entry(identity).or_insert(next);
        if index == next {
            let new =
                Group { key, identity, capacity: 0, strict: false, sets: Vec::new(), value_len: 0 };
            self.policy.groups.push(new);
        }
        if let Some(group) = self.policy.groups.get_mut(usize::from(index)) {
            group.capacity = group.capacity.max(doc.capacity.map_or(DEFAULT_CAPACITY, |c| c.0));
            group.strict |= doc.durability.unwrap_or(Durability::Strict) == Durability::Strict;
        }
        index
    }

    /// Gives every record its place in its group's value.
    fn lay_out(&mut self) {
        for group in &mut self.policy.groups {
            let mut end = 0_usize;
            for set in &group.sets {
                if let Some(set) = self.policy.sets.get_mut(usize::from(*set)) {
                    set.offset = end.saturating_add(RECORD_HEADER);
                    end = set.offset.saturating_add(set.len);
                }
            }
            group.value_len = end;
        }
    }

    /// Notes that a key takes more than the surface can store for it.
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

fn settings(document: &Document, surface: &Traits) -> Settings {
    let client = document.client_ip.as_ref();
    let geo = document.geo.as_ref();
    // Where the surface knows it by itself, a header would be one that any client can send.
    let named = |need| geo.filter(|_| matches!(surface.supply(need), Supply::Named(_)));
    let conditions = || {
        let of_rule = |rule: &RuleDoc| {
            let tiers = rule.tiers().iter().filter_map(|tier| tier.when.clone());
            rule.when.iter().chain(&rule.unless).cloned().chain(tiers).collect::<Vec<_>>()
        };
        let of_rules = document.rules().flat_map(move |(_, rule)| of_rule(rule));
        document.exempt().iter().cloned().chain(of_rules)
    };
    let key_reads = |wanted: fn(&KeyPart) -> bool| {
        document.rules().any(|(_, rule)| rule.key.iter().any(wanted))
            || document.tenant.as_ref().is_some_and(wanted)
    };
    let repeated = document.repeated.unwrap_or(Repeated::Refuse);
    Settings {
        client: ClientAddress::new(client, surface.source.clone()),
        prefixes: Prefixes {
            ipv4: client.and_then(|c| c.ipv4_prefix).map_or(32, |p| p.0),
            ipv6: client.and_then(|c| c.ipv6_prefix).map_or(64, |p| p.0),
        },
        country_header: named(Need::Country).and_then(|geo| geo.country_header.clone()),
        asn_header: named(Need::Asn).and_then(|geo| geo.asn_header.clone()),
        repeated,
        token: document
            .jwt
            .as_ref()
            .filter(|_| surface.verifies_tokens)
            .map(|jwt| token(jwt, repeated)),
        escaped_slashes: document.escaped_slashes.unwrap_or(EscapedSlashes::Separator),
        reads_path: conditions().any(|c| c.paths().is_some())
            || key_reads(|part| matches!(part, KeyPart::Path | KeyPart::PathParam(_))),
        reads_host: conditions().any(|c| c.hosts().is_some())
            || key_reads(|part| *part == KeyPart::Host),
    }
}

/// Where the token is, and what several of them mean.
fn token(jwt: &JwtDoc, default: Repeated) -> (HeaderName, Repeated) {
    let header = jwt.header.clone().unwrap_or_else(|| HeaderName("authorization".into()));
    (header, Repeated::of_one(jwt.repeated, default))
}

/// The identity of a rule's own quotas, or of its tier's, by their names. Every name has its length
/// before it, so no rule's tier has another rule's identity.
fn stable_id(rule: &str, tier: Option<&str>) -> u64 {
    match tier {
        None => stable_hash(&[rule.as_bytes()]),
        Some(tier) => stable_hash(&[rule.as_bytes(), tier.as_bytes()]),
    }
}

/// The identity of a key definition: a change of what clients are counted by begins a new table.
fn key_identity(key: &Key, rule: &str, prefixes: Prefixes) -> u64 {
    let mut text = String::new();
    for part in key {
        let About { name: kind, of: name, .. } = part.about();
        text.push_str(&format!("{kind} {}:{name}\n", name.len()));
        if let Some(repeated) = part.unusual() {
            text.push_str(&format!("{repeated:?}\n"));
        }
        if *part == KeyPart::ClientIp {
            text.push_str(&format!("/{}/{}\n", prefixes.ipv4, prefixes.ipv6));
        }
    }
    // What a path captures is the rule's own, so such a rule shares its table with no other.
    let is_private = key.iter().any(|part| matches!(part, KeyPart::PathParam(_)));
    let owner = if is_private { rule } else { "" };
    stable_hash(&[text.as_bytes(), owner.as_bytes()])
}

/// An index of a rule, a group or a set: [`MAX_RULES`] and [`MAX_SETS`] keep it far below 65,536.
fn small(i: usize) -> u16 {
    let index = u16::try_from(i);
    debug_assert!(index.is_ok(), "the limits on rules and tiers keep below 65,536: {i}");
    index.unwrap_or(u16::MAX)
}
