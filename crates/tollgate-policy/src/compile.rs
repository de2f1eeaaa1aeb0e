//! From the document to the compiled policy: rules, groups of rules that share a key, and look-up.
//!
//! Invariant: a `Policy` exists only if its whole document was valid; every index in it is in range
//! of its own lists. Compiling is the slow path: it may allocate and hash, deciding does not.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::hash::Hasher;

use siphasher::sip::SipHasher13;
use tollgate_core::{Algorithm, Limiter, Quota, QuotaError, Span};

use crate::address::Prefixes;
use crate::document::{
    self, AlgorithmName, Document, HeaderGeneration, KeyPart, Name, OnFailure, OnMissing, QuotaDoc,
    RuleDoc,
};
use crate::index::PathIndex;
use crate::node::Node;
use crate::problem::Problems;
use crate::read::{At, FromNode};
use crate::value::RECORD_HEADER;

/// The most rules of a policy.
pub(crate) const MAX_RULES: usize = 1000;
/// The most quotas of a rule.
const MAX_QUOTAS: usize = 16;
/// The most parts of a key.
const MAX_KEY_PARTS: usize = 8;
/// The parts of a sliding-buckets window unless the policy says otherwise.
const DEFAULT_BUCKETS: u16 = 60;
/// Keys held in Envoy unless the policy says otherwise.
const DEFAULT_CAPACITY: u32 = 65_536;

/// Where a policy is enforced. Only defaults differ, never decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The Envoy filter.
    Envoy,
    /// The Cloudflare Worker.
    Worker,
}

/// A compiled policy: immutable, and what every request is planned with.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) groups: Vec<Group>,
    pub(crate) sets: Vec<QuotaSet>,
    pub(crate) index: PathIndex,
    /// Rules without a path condition.
    pub(crate) pathless: Vec<u16>,
    /// True when any rule has a path condition.
    pub(crate) reads_path: bool,
    pub(crate) headers: HeaderGeneration,
    pub(crate) on_allow: bool,
    pub(crate) prefixes: Prefixes,
    fingerprint: u64,
}

/// One rule as compiled.
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    pub(crate) methods: Vec<Vec<u8>>,
    pub(crate) on_missing: OnMissing,
    pub(crate) on_failure: OnFailure,
    pub(crate) group: u16,
    pub(crate) set: u16,
}

/// The rules that count by the same key: what is stored for one key lies in one value, so that it
/// is loaded, decided and committed at once.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) key: Vec<KeyPart>,
    identity: u64,
    capacity: u32,
    pub(crate) sets: Vec<u16>,
    pub(crate) value_len: usize,
}

/// The quotas of one rule, and where their states lie in the group's value.
#[derive(Clone, Debug)]
pub(crate) struct QuotaSet {
    pub(crate) rule: u16,
    /// Identity of the rule and its quotas: states of other quotas are never read as these.
    pub(crate) record_id: u32,
    /// Where the record's states begin in the value.
    pub(crate) offset: usize,
    /// Bytes of all states.
    pub(crate) len: usize,
    pub(crate) meters: Vec<Meter>,
}

/// One quota as compiled.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    pub(crate) name: String,
    pub(crate) limiter: Limiter,
    pub(crate) window: Span,
    /// Where the state begins in the record.
    pub(crate) offset: usize,
}

impl Policy {
    /// Compiles a document.
    ///
    /// # Errors
    /// Every mistake of the document at once, each with its path.
    pub fn compile(document: &str, _surface: Surface) -> Result<Self, Problems> {
        let node = Node::parse(document)?;
        let problems = RefCell::new(Problems::default());
        let root = At::root(&problems);
        let policy = Document::read(&node, &root).map(|read| {
            let mut compiler = Compiler::new(&read, stable_hash(&[document.as_bytes()]));
            compiler.rules(&read.rules, &root.field("rules"));
            compiler.policy
        });
        let problems = problems.into_inner();
        match policy {
            Some(policy) if problems.0.is_empty() => Ok(policy),
            _ => Err(problems),
        }
    }

    /// The rules, in the order of the document.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The groups: one stored value per key of each.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The identity of the document, byte for byte.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Rule {
    /// The rule's name, %x20-7E, at most 64 characters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Group {
    /// The identity of the key definition, the same for as long as the definition is: what a store
    /// names its table by.
    #[must_use]
    pub const fn identity(&self) -> u64 {
        self.identity
    }

    /// Keys held in Envoy: the largest `capacity` of the group's rules.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes of one stored value, a multiple of 8.
    #[must_use]
    pub const fn value_len(&self) -> usize {
        self.value_len
    }
}

/// A policy in the making.
struct Compiler {
    policy: Policy,
    on_failure: OnFailure,
}

impl Compiler {
    fn new(document: &Document, fingerprint: u64) -> Self {
        let document::Version = document.version; // there is one version yet
        let response = document.response.as_ref();
        Self {
            policy: Policy {
                rules: Vec::new(),
                groups: Vec::new(),
                sets: Vec::new(),
                index: PathIndex::new(),
                pathless: Vec::new(),
                reads_path: false,
                headers: response.and_then(|r| r.headers).unwrap_or(HeaderGeneration::Draft11),
                on_allow: response.and_then(|r| r.on_allow).unwrap_or(true),
                prefixes: Prefixes::DEFAULT,
                fingerprint,
            },
            on_failure: document.on_failure.unwrap_or(OnFailure::Allow),
        }
    }

    fn rules(&mut self, rules: &[RuleDoc], at: &At<'_>) {
        if rules.len() > MAX_RULES {
            at.problem(format!("has {} rules; use at most {MAX_RULES}", rules.len()));
            return;
        }
        unique(rules.iter().map(|rule| &rule.name), |i| {
            at.item(i).field("name").problem(TWICE.into());
        });
        for (i, rule) in rules.iter().enumerate() {
            self.rule(rule, &at.item(i));
        }
        self.lay_out();
    }

    fn rule(&mut self, doc: &RuleDoc, at: &At<'_>) {
        let rule = index(self.policy.rules.len());
        self.conditions(doc, rule, at);
        let meters = meters(doc, at);
        let group = self.group(doc, at);
        let set = index(self.policy.sets.len());
        let record_id = self.record_id(doc, &meters);
        let len = meters.last().map_or(0, |m| m.offset.saturating_add(m.limiter.state_len()));
        self.policy.sets.push(QuotaSet { rule, record_id, offset: 0, len, meters });
        if let Some(group) = self.policy.groups.get_mut(usize::from(group)) {
            group.sets.push(set);
        }
        let methods = doc.when.as_ref().and_then(|when| when.methods.as_ref());
        self.policy.rules.push(Rule {
            name: doc.name.0.clone(),
            methods: methods.into_iter().flatten().map(|m| m.0.clone().into_bytes()).collect(),
            on_missing: doc.on_missing.unwrap_or(OnMissing::Skip),
            on_failure: doc.on_failure.unwrap_or(self.on_failure),
            group,
            set,
        });
    }

    /// Enters the rule into the look-up; an empty list of alternatives would match nothing.
    fn conditions(&mut self, doc: &RuleDoc, rule: u16, at: &At<'_>) {
        let when_at = at.field("when");
        let when = doc.when.as_ref();
        if when.and_then(|w| w.methods.as_ref()).is_some_and(Vec::is_empty) {
            when_at.field("methods").problem(EMPTY.into());
        }
        let Some(paths) = when.and_then(|w| w.paths.as_ref()) else {
            self.policy.pathless.push(rule);
            return;
        };
        if paths.is_empty() {
            when_at.field("paths").problem(EMPTY.into());
        }
        self.policy.reads_path = true;
        for pattern in paths {
            self.policy.index.insert(pattern, rule);
        }
    }

    /// The group of this rule's key, a new one for the first rule with it.
    fn group(&mut self, doc: &RuleDoc, at: &At<'_>) -> u16 {
        if doc.key.len() > MAX_KEY_PARTS {
            let message = format!("has {} parts; use at most {MAX_KEY_PARTS}", doc.key.len());
            at.field("key").problem(message);
        }
        let capacity = doc.capacity.map_or(DEFAULT_CAPACITY, |c| c.0);
        if let Some(i) = self.policy.groups.iter().position(|group| group.key == doc.key) {
            if let Some(group) = self.policy.groups.get_mut(i) {
                group.capacity = group.capacity.max(capacity);
            }
            return index(i);
        }
        self.policy.groups.push(Group {
            key: doc.key.clone(),
            identity: key_identity(&doc.key, self.policy.prefixes),
            capacity,
            sets: Vec::new(),
            value_len: 0,
        });
        index(self.policy.groups.len().saturating_sub(1))
    }

    /// An identity that differs from every other record's of this policy.
    fn record_id(&self, doc: &RuleDoc, meters: &[Meter]) -> u32 {
        let quotas =
            format!("{:?}", meters.iter().map(|m| (&m.name, &m.limiter)).collect::<Vec<_>>());
        let hash = stable_hash(&[doc.name.0.as_bytes(), quotas.as_bytes()]);
        let mut id = u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(0).max(1);
        while self.policy.sets.iter().any(|set| set.record_id == id) {
            id = id.checked_add(1).unwrap_or(1);
        }
        id
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
}

const TWICE: &str = "is the name of an earlier one; names are unique";
const EMPTY: &str = "is empty, which matches nothing; leave it out to match everything";

/// Calls `report` with the index of every name that was there before.
fn unique<'a>(names: impl Iterator<Item = &'a Name>, report: impl Fn(usize)) {
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        if !seen.insert(&name.0) {
            report(i);
        }
    }
}

fn meters(doc: &RuleDoc, at: &At<'_>) -> Vec<Meter> {
    let quotas_at = at.field("quotas");
    if doc.quotas.is_empty() || doc.quotas.len() > MAX_QUOTAS {
        let message = format!("has {} quotas; use 1 to {MAX_QUOTAS}", doc.quotas.len());
        quotas_at.problem(message);
    }
    let mut meters = Vec::new();
    let mut offset = 0_usize;
    for (i, quota) in doc.quotas.iter().enumerate() {
        let quota_at = quotas_at.item(i);
        let name = match &quota.name {
            Some(name) => name.0.clone(),
            None if doc.quotas.len() == 1 => doc.name.0.clone(),
            None => {
                quota_at
                    .field("name")
                    .problem("is missing; every one of several quotas needs a name".into());
                continue;
            }
        };
        if let Some(limiter) = limiter(quota, &quota_at) {
            let len = limiter.state_len();
            meters.push(Meter { name, limiter, window: quota.window.0, offset });
            offset = offset.saturating_add(len);
        }
    }
    meters
}

/// The limiter of one quota; what the core refuses is noted at the field that it is about.
fn limiter(doc: &QuotaDoc, at: &At<'_>) -> Option<Limiter> {
    let algorithm = algorithm(doc, at)?;
    let built = Quota::new(doc.limit, doc.window.0).and_then(|quota| match doc.burst {
        Some(burst) => quota.with_burst(burst),
        None => Ok(quota),
    });
    let strict = doc.strict.unwrap_or(false);
    let built = built.map(|quota| if strict { quota.strict() } else { quota });
    built
        .and_then(|quota| Limiter::new(algorithm, quota))
        .map_err(|error| explain(error, doc, at))
        .ok()
}

fn algorithm(doc: &QuotaDoc, at: &At<'_>) -> Option<Algorithm> {
    let name = doc.algorithm.unwrap_or(AlgorithmName::Gcra);
    if doc.buckets.is_some() && name != AlgorithmName::SlidingBuckets {
        at.field("buckets")
            .problem("is for the algorithm \"sliding-buckets\" only; leave it out".into());
    }
    Some(match name {
        AlgorithmName::Gcra => Algorithm::Gcra,
        AlgorithmName::TokenBucket => Algorithm::TokenBucket,
        AlgorithmName::LeakyBucket => Algorithm::LeakyBucket,
        AlgorithmName::LeakyQueue => Algorithm::LeakyQueue,
        AlgorithmName::FixedWindow => Algorithm::FixedWindow,
        AlgorithmName::SlidingWindow => Algorithm::SlidingWindow,
        AlgorithmName::SlidingBuckets => Algorithm::SlidingBuckets {
            buckets: doc.buckets.map_or(DEFAULT_BUCKETS, |n| u16::try_from(n).unwrap_or(u16::MAX)),
        },
        AlgorithmName::SlidingLog => Algorithm::SlidingLog,
    })
}

/// Notes the core's error where the person who wrote the document can mend it.
fn explain(error: QuotaError, doc: &QuotaDoc, at: &At<'_>) {
    let (field, value) = match error {
        QuotaError::Window => ("window", None),
        QuotaError::NoStrict => ("strict", None),
        QuotaError::Burst { .. } | QuotaError::StrictBurst { .. } | QuotaError::NoBurst => {
            ("burst", doc.burst)
        }
        QuotaError::Buckets => ("buckets", doc.buckets),
        QuotaError::Limit | QuotaError::TooDense { .. } | QuotaError::LimitOfAlgorithm { .. } => {
            ("limit", Some(doc.limit))
        }
    };
    let message = match value {
        Some(value) => format!("{value} is refused: {error}"),
        None => format!("{error}"),
    };
    at.field(field).problem(message);
}

/// The identity of a key definition: a change of what clients are counted by begins a new table.
fn key_identity(key: &[KeyPart], prefixes: Prefixes) -> u64 {
    let text: String = key
        .iter()
        .map(|part| match part {
            KeyPart::ClientIp => format!("client_ip/{}/{}\n", prefixes.ipv4, prefixes.ipv6),
            KeyPart::Header(name) => format!("header {}\n", name.0),
        })
        .collect();
    stable_hash(&[text.as_bytes()])
}

/// An index that [`MAX_RULES`] keeps far below 65,536.
fn index(i: usize) -> u16 {
    u16::try_from(i).unwrap_or(u16::MAX)
}

/// SipHash-1-3 with a zero key over length-prefixed parts: the same on every target, for ever.
pub(crate) fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    for part in parts {
        hasher.write_u64(u64::try_from(part.len()).unwrap_or(u64::MAX));
        hasher.write(part);
    }
    hasher.finish()
}
