//! The compiler: one pass over the document's rules.
//!
//! Invariant: the result is a spec for every document; afterwards, the noted problems decide
//! whether it is a policy.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Span};
use tollgate_http_syntax::repeated::Repeated;
use tollgate_http_syntax::sort::sort_by;

use crate::compile::concurrency;
use crate::compile::identities::unique;
use crate::compile::identities::{RecordIds, key_identity, small};
use crate::compile::quotas::quotas;
use crate::compile::settings::{response, settings, waiting};
use crate::document::deny::RuleItem;
use crate::document::jwt::JwtDoc;
use crate::document::root::Document;
use crate::document::rule::{Durability, QuotaDoc, RuleDoc, TierDoc};
use crate::document::scalar::Version;
use crate::document::scope::WithoutState;
use crate::json::place::At;
use crate::json::reader::Lenient;
use crate::surface::traits;
use tollgate_policy::SlabMap;
use tollgate_policy::spec::{
    Action, Conditions, Cost, DEFAULT_LEASE, FALLBACK, Fixed, GroupSpec, MAX_KEY_PARTS, MAX_NAME,
    MAX_PATH_SEGMENTS, MAX_RULES, MAX_SETS, Mode, OnFailure, OnMissing, PolicySpec, QuotaSpec,
    RecordSpec, RuleSpec, RuleTerms, Scope, SetSpec, Surface, TierSpec, items, parts_of,
    stable_hash, with_holds,
};

/// Keys held in Envoy unless the policy sets another number.
const DEFAULT_CAPACITY: u32 = 65_536;

/// A spec that is being built.
struct Compiler {
    spec: PolicySpec,
    surface: Surface,
    on_failure: OnFailure,
    record_ids: RecordIds,
    /// Groups by the identity of their keys.
    groups: SlabMap<u64, u16>,
}

/// The spec of `document`, whose fingerprint and public fingerprint are given.
pub(super) fn spec(
    document: Document,
    surface: Surface,
    (fingerprint, public_fingerprint): (u64, u64),
    root: &At<'_>,
) -> PolicySpec {
    let Version = document.version; // there is one version yet
    let repeated = document.repeated.unwrap_or(Repeated::Refuse);
    let settings = settings(&document, traits(surface));
    let prefixes = settings.prefixes;
    let spec = PolicySpec {
        fingerprint: Fixed(fingerprint),
        public_fingerprint: Fixed(public_fingerprint),
        settings,
        response: response(document.response.as_ref()),
        waiting: waiting(document.waiting.as_ref()),
        jwt: document.jwt.as_ref().map(JwtDoc::jwt),
        tenant: document.tenant.clone().map(|part| part.resolved(repeated, prefixes)),
        exempt: document.exempt.map_or_else(Vec::new, |list| list.0),
        groups: Vec::new(),
        rules: Vec::new(),
        deny: Vec::new(),
        warnings: Vec::new(),
    };
    let mut compiler = Compiler {
        spec,
        surface,
        on_failure: document.on_failure.unwrap_or(OnFailure::Allow),
        record_ids: RecordIds::default(),
        groups: SlabMap::new(),
    };
    compiler.rules(document.rules, &root.field("rules"));
    compiler.spec
}

impl Compiler {
    fn rules(&mut self, docs: Vec<Lenient<RuleItem>>, at: &At<'_>) {
        let read = || docs.iter().enumerate().filter_map(|(i, doc)| Some((i, doc.0.as_ref()?)));
        let twice = read().filter(|(_, rule)| concurrency::is_next_to_quotas(rule)).count();
        let len = docs.len().saturating_add(twice);
        if len > MAX_RULES {
            at.problem(format!("has {len} rules; use at most {MAX_RULES}"));
            return;
        }
        let sets_of = |rule: &RuleItem| match rule {
            RuleItem::Count(own) => {
                let sets = own.tiers().len().saturating_add(1);
                if concurrency::is_next_to_quotas(rule) { sets.saturating_mul(2) } else { sets }
            }
            RuleItem::Deny(_) => 0,
        };
        let sets: usize = read().map(|(_, rule)| sets_of(rule)).sum();
        if sets > MAX_SETS {
            at.problem(format!("has {sets} rules and tiers in all; use at most {MAX_SETS}"));
            return;
        }
        let whens = read().filter_map(|(_, rule)| rule.when());
        let patterns = whens.filter_map(Conditions::paths).flatten();
        let segments: usize = patterns.map(|pattern| pattern.segments.len()).sum();
        if segments > MAX_PATH_SEGMENTS {
            at.problem(format!(
                "has {segments} path segments in all; use at most {MAX_PATH_SEGMENTS}"
            ));
            return;
        }
        unique(read().map(|(i, rule)| (i, rule.name())), at);
        concurrency::names_errors(read(), at);
        for (i, doc) in docs.into_iter().enumerate() {
            match doc.0 {
                Some(RuleItem::Count(doc)) => self.rule(*doc, small(i), &at.item(i)),
                Some(RuleItem::Deny(doc)) => self.spec.deny.push(doc.into_rule(small(i))),
                None => {}
            }
        }
        self.number_fallbacks();
        self.check_length(at);
    }

    fn rule(&mut self, doc: RuleDoc, place: u16, at: &At<'_>) {
        let group = self.group(&doc, at);
        unique(doc.tiers().iter().map(|tier| &tier.name).enumerate(), &at.field("tiers"));
        let counting = doc.has_quotas().then(|| self.counting(&doc, at));
        let in_flight = self.in_flight(&doc, at);
        let bare = self.without_sets(doc, (group, place), at);
        let second =
            in_flight.map(|(name, sets)| sets.of(concurrency::in_flight(bare.clone(), name)));
        self.spec.rules.extend(counting.map(|sets| sets.of(bare)));
        self.spec.rules.extend(second);
    }

    /// The terms of the rule, without its quotas and those of its tiers.
    fn without_sets(&self, doc: RuleDoc, (group, place): (u16, u16), at: &At<'_>) -> RuleSpec {
        let (scope, lease, charging) = (doc.scope(), lease(&doc), doc.charging());
        let (on_failure, fallback) = match doc.on_failure {
            Some(WithoutState::Decided(mode)) => (mode, None),
            // The document's setting applies where the rule's own count cannot decide.
            Some(WithoutState::Local(nodes)) => (self.on_failure, Some(nodes)),
            None => (self.on_failure, None),
        };
        let tiers_at = at.field("tiers");
        let tiers = doc.tiers.into_iter().flat_map(|list| list.0).enumerate();
        let tiers = tiers.map(|(i, tier)| tier_spec(tier, &tiers_at.item(i))).collect();
        let terms = RuleTerms {
            name: doc.name.0,
            when: doc.when,
            unless: doc.unless,
            on_missing: doc.on_missing.unwrap_or(OnMissing::Skip),
            on_failure,
            scope,
            lease,
            fallback,
            names_cost: doc.cost.is_some(),
            cost: doc.cost.map_or(Cost::Fixed(1), |doc| doc.cost),
            charging,
            mode: doc.mode.unwrap_or(Mode::Enforce),
            action: doc.action.unwrap_or(Action::Deny(None)),
            group,
            place,
        };
        RuleSpec { terms, set: no_set(), tiers }
    }

    /// The quotas of the rule and of its tiers.
    fn counting(&mut self, doc: &RuleDoc, at: &At<'_>) -> Sets {
        let own = self.set(doc, None, doc.quotas.as_deref(), &at.field("quotas"));
        let tiers_at = at.field("tiers");
        let tiers = doc.tiers().iter().enumerate().map(|(i, tier)| {
            let at = tiers_at.item(i);
            self.set(doc, Some(&tier.name.0), tier.quotas.as_deref(), &at.field("quotas"))
        });
        let tiers: Vec<SetSpec> = tiers.collect();
        excess_error(doc, [&own].into_iter().chain(&tiers), &at.field("cost"));
        Sets { own, tiers }
    }

    /// The name of the rule that limits requests in flight, and its limits; a tier without one has
    /// the rule's own.
    fn in_flight(&mut self, doc: &RuleDoc, at: &At<'_>) -> Option<(String, Sets)> {
        let own = doc.concurrency.as_ref()?.0.as_ref()?;
        let name = concurrency::rule_name(doc);
        if name.len() > MAX_NAME {
            let most = MAX_NAME.saturating_sub(concurrency::SUFFIX.len());
            at.field("name").problem(format!(
                "is too long for a rule with quotas and \"concurrency\"; use at most {most} characters"
            ));
        }
        let nodes = doc.scope().nodes();
        let mut set = |tier: Option<&TierDoc>, at: &At<'_>| {
            let of_tier = tier.and_then(|tier| tier.concurrency.as_ref());
            let limit = of_tier.and_then(|limit| limit.0.as_ref()).unwrap_or(own);
            let quotas = concurrency::quotas(limit, &name, nodes, &at.field("concurrency"));
            let hash = hash_of(&name, tier.map(|tier| tier.name.0.as_str()), &quotas, None);
            let record_id = self.record_ids.free(hash, version_of(&quotas));
            SetSpec { own: RecordSpec { record_id, quotas }, fallback: None }
        };
        let own = set(None, at);
        let tiers_at = at.field("tiers");
        let tiers = doc.tiers().iter().enumerate();
        let tiers = tiers.map(|(i, tier)| set(Some(tier), &tiers_at.item(i))).collect();
        Some((name, Sets { own, tiers }))
    }

    /// The quotas of a rule or of its tier. They hold units where the rule reserves.
    fn set(
        &mut self,
        doc: &RuleDoc,
        tier: Option<&str>,
        docs: Option<&[Lenient<QuotaDoc>]>,
        at: &At<'_>,
    ) -> SetSpec {
        let problem =
            |(i, field, words): (usize, _, String)| at.item(i).field(field).problem(words);
        if docs.is_none() {
            at.problem(
                "is missing; give quotas, or in their place the rule \"concurrency\"".into(),
            );
        }
        let quotas =
            docs.map_or_else(Vec::new, |docs| quotas(docs, &doc.name.0, doc.scope().nodes(), at));
        let quotas = with_holds(quotas, Some(&doc.charging()), problem);
        // A part of a limit that is too small is an error on every surface.
        let fallback = match doc.on_failure {
            Some(WithoutState::Local(nodes)) => Some(parts_of(&quotas, nodes, problem)),
            Some(WithoutState::Decided(_)) | None => None,
        };
        let is_closed = quotas.iter().any(|quota| quota.limiter.is_closed());
        let is_used = self.surface.asks_authority() && doc.scope() == Scope::Fleet && !is_closed;
        let fallback = fallback.filter(|_| is_used);
        let hash = hash_of(&doc.name.0, tier, &quotas, None);
        SetSpec {
            own: RecordSpec { record_id: self.record_ids.free(hash, version_of(&quotas)), quotas },
            // Their identities come after those of all rules.
            fallback: fallback.map(|quotas| RecordSpec { record_id: 0, quotas }),
        }
    }

    fn number_fallbacks(&mut self) {
        for rule in &mut self.spec.rules {
            let tiers = rule.tiers.iter_mut().map(|tier| (Some(tier.name.as_str()), &mut tier.set));
            for (tier, set) in [(None, &mut rule.set)].into_iter().chain(tiers) {
                let Some(RecordSpec { record_id, quotas }) = &mut set.fallback else { continue };
                let hash = hash_of(&rule.terms.name, tier, quotas, Some(FALLBACK));
                *record_id = self.record_ids.free(hash, version_of(quotas));
            }
        }
    }

    /// The group of this rule's key and scope, a new one for the first rule with it.
    fn group(&mut self, doc: &RuleDoc, at: &At<'_>) -> u16 {
        let len = items(&doc.key.0).count();
        if len > MAX_KEY_PARTS {
            let message = format!("has {len} parts; use at most {MAX_KEY_PARTS}");
            at.field("key").problem(message);
        }
        let (prefixes, repeated) = (self.spec.settings.prefixes, self.spec.settings.repeated);
        let key: Vec<_> =
            doc.key.0.iter().cloned().map(|part| part.resolved(repeated, prefixes)).collect();
        let scope = doc.scope();
        let identity = key_identity(&key, &doc.name.0, prefixes, scope);
        let shards = doc.shards.map(|shards| shards.0);
        let next = small(self.spec.groups.len());
        let index = self.groups.get_or_insert(identity, next);
        if index == next {
            self.spec.groups.push(GroupSpec {
                key,
                identity: Fixed(identity),
                capacity: 0,
                strict: false,
                is_fleet: scope == Scope::Fleet,
                shards,
            });
        }
        if let Some(group) = self.spec.groups.get_mut(usize::from(index)) {
            if group.shards != shards {
                let others = group.shards.map_or("no shards".into(), |n| format!("{n} shards"));
                at.field("shards").problem(format!(
                    "belong to the key, and an earlier rule with the same key has {others}; use the same number in both, \
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
        let (longest, most) = (self.spec.longest_value(), self.surface.longest_value());
        if longest > most {
            at.problem(format!(
                "the quotas of one key take {longest} bytes together, more than {most}; use another algorithm than \
                 sliding-log or fewer quotas"
            ));
        }
    }
}

/// The quotas of a rule, and of each of its tiers.
struct Sets {
    own: SetSpec,
    tiers: Vec<SetSpec>,
}

impl Sets {
    /// `rule` with these quotas.
    fn of(self, mut rule: RuleSpec) -> RuleSpec {
        rule.set = self.own;
        for (tier, set) in rule.tiers.iter_mut().zip(self.tiers) {
            tier.set = set;
        }
        rule
    }
}

/// The place of quotas that are not known yet.
const fn no_set() -> SetSpec {
    SetSpec { own: RecordSpec { record_id: 0, quotas: Vec::new() }, fallback: None }
}

/// A tier without its quotas.
fn tier_spec(tier: TierDoc, at: &At<'_>) -> TierSpec {
    if tier.when.is_none() && tier.key_values.is_none() {
        at.problem("selects no requests; give it \"when\" or \"key_values\"".into());
    }
    let texts = tier.key_values.into_iter().flat_map(|values| values.0);
    let mut key_values: Vec<Vec<u8>> = texts.map(String::into_bytes).collect();
    sort_by(&mut key_values, Ord::cmp);
    key_values.dedup();
    TierSpec {
        name: tier.name.0,
        priority: tier.priority.map_or(0, |p| p.0),
        when: tier.when,
        repeated: tier.repeated,
        key_values,
        set: no_set(),
    }
}

/// The hash from which the identity of a record is made. The kind distinguishes it from the
/// record of the same rule or tier.
fn hash_of(rule: &str, tier: Option<&str>, quotas: &[QuotaSpec], kind: Option<&[u8]>) -> u64 {
    let identities: String = quotas.iter().map(QuotaSpec::identity).collect();
    let tier = tier.unwrap_or_default();
    let mut parts = Vec::from([rule.as_bytes(), tier.as_bytes(), identities.as_bytes()]);
    parts.extend(kind);
    stable_hash(&parts)
}

/// The version of the states of these quotas: the latest that changed the layout of one of them.
fn version_of(quotas: &[QuotaSpec]) -> u8 {
    quotas.iter().map(|quota| quota.limiter.state_version()).max().unwrap_or(1)
}

/// The longest time for which units of a rule are leased; zero for a queue, which gives places.
fn lease(doc: &RuleDoc) -> Span {
    match doc.scope() {
        Scope::Fleet if doc.quotas().any(QuotaDoc::is_queue) => Span::ZERO,
        Scope::Fleet => doc.lease.map_or(DEFAULT_LEASE, |lease| lease.0),
        Scope::Local | Scope::Share(_) => Span::ZERO,
    }
}

/// A response that may use more above its estimate than a quota records.
fn excess_error<'s>(rule: &RuleDoc, sets: impl Iterator<Item = &'s SetSpec> + Clone, at: &At<'_>) {
    let Some(doc) = &rule.cost else { return };
    let Some(settled) = &doc.settled else { return };
    let least = if let Cost::Fixed(estimate) = doc.cost { estimate } else { 1 };
    let excess = settled.cost.max.saturating_sub(least);
    let counting = || sets.clone().filter(|set| !set.own.is_closed());
    let limiters = || counting().flat_map(|set| &set.own.quotas).map(|quota| quota.limiter);
    // A debit would take the place of the entries of others, whose refund then removes the debit.
    if excess > 0 && limiters().any(|it| it.algorithm() == Algorithm::SlidingLog) {
        at.field("max").problem(format!(
            "is {excess} more than the smallest estimate, and \"sliding-log\" has room for its limit alone; use another \
             algorithm, or an estimate that no response exceeds"
        ));
    }
    let smallest = limiters().map(|limiter| limiter.capacity()).min().unwrap_or(u64::MAX);
    if excess > smallest && !settled.forgives_excess {
        at.field("max").problem(format!(
            "is {excess} more than the smallest estimate, and a quota that allows {smallest} at once forgives what one \
             response uses beyond that; use a higher estimate or a lower max, or accept it with \
             \"forgive_excess\": true"
        ));
    }
}
