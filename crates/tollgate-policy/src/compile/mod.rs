//! From the document to the compiled policy: rules, groups of rules that share a key, and look-up.
//!
//! Invariant: a `Policy` exists only if its whole document was valid; every index in it is in range
//! of its own lists. Compiling is the slow path: it may allocate and hash, deciding does not.

mod compiler;
mod subsumption;
mod quotas;
mod validate;
mod warnings;
mod white_space;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::document::behaviour::{Action, Charging, Cost, Mode, Share};
use crate::document::conditions::Conditions;
use crate::document::identity::{Key, KeyPart, Repeated, Source};
use crate::document::scalar::HeaderName;
use crate::document::{
    BodyFormat, Document, EscapedSlashes, HeaderGeneration, OnFailure, OnMissing,
};
use crate::http::address::Prefixes;
use crate::http::forwarded::ClientAddress;
use crate::json::node::Node;
use crate::json::problem::Problems;
use crate::json::reader::{At, FromNode, Noted};
use crate::policy::index::Index;
use crate::policy::jwt::Jwt;
use crate::policy::record::RECORD_HEADER;
use crate::request::lazy::Known;
use crate::waiting::Limits;

pub use crate::policy::label::metric_label;
pub use quotas::Meter;

const TWICE: &str = "is the name of an earlier one; names are unique";

/// Where a policy is enforced: what a document may ask for, and the default of `client_ip`.
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
    pub(crate) exempt: Vec<Conditions>,
    pub(crate) index: Index,
    pub(crate) settings: Settings,
    pub(crate) response: Response,
    pub(crate) waiting: Limits,
    jwt: Option<Jwt>,
    warnings: Problems,
    fingerprint: u64,
}

/// What a request is read with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) client: ClientAddress,
    pub(crate) prefixes: Prefixes,
    pub(crate) country_header: Option<HeaderName>,
    pub(crate) asn_header: Option<HeaderName>,
    /// What several values mean where nothing else is said.
    pub(crate) repeated: Repeated,
    /// Worker: where the token is that is verified, and what several of them mean.
    pub(crate) token: Option<(HeaderName, Repeated)>,
    pub(crate) escaped_slashes: EscapedSlashes,
    pub(crate) reads_path: bool,
    pub(crate) reads_host: bool,
}

/// What is said to clients.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) headers: HeaderGeneration,
    pub(crate) on_allow: bool,
    pub(crate) body: BodyFormat,
    pub(crate) jitter: tollgate_core::Span,
    pub(crate) partition_key: bool,
    /// What partition keys are hashed with before they are told to clients.
    pub(crate) hash_key: Option<[u8; 16]>,
}

/// One rule as compiled.
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    pub(crate) when: Option<Conditions>,
    pub(crate) unless: Option<Conditions>,
    /// The condition that the look-up has checked.
    pub(crate) known: Known,
    pub(crate) on_missing: OnMissing,
    pub(crate) on_failure: OnFailure,
    pub(crate) cost: Cost,
    pub(crate) charging: Charging,
    pub(crate) mode: Mode,
    pub(crate) action: Action,
    pub(crate) group: u16,
    /// The rule's own quotas.
    pub(crate) set: u16,
    /// Highest priority first.
    pub(crate) tiers: Vec<Tier>,
}

/// Other quotas for some keys.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) when: Option<Conditions>,
    /// What several values mean of what `when` is on.
    pub(crate) repeated: Option<Repeated>,
    /// Empty: any.
    pub(crate) key_values: BTreeSet<Vec<u8>>,
    /// Those of them that are addresses, grouped, as they stand in a key.
    pub(crate) addresses: BTreeSet<Vec<u8>>,
    pub(crate) set: u16,
}

/// The rules that count by the same key: what is stored for one key lies in one value, so that it
/// is loaded, decided and committed at once.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) key: Key,
    identity: u64,
    capacity: u32,
    strict: bool,
    pub(crate) sets: Vec<u16>,
    pub(crate) value_len: usize,
}

/// The quotas of one rule or tier, and where their states lie in the group's value.
#[derive(Clone, Debug)]
pub struct QuotaSet {
    pub(crate) rule: u16,
    tier: Option<String>,
    /// Identity of the rule and its quotas: states of other quotas are never read as these.
    pub(crate) record_id: u32,
    /// Where the record's states begin in the value.
    pub(crate) offset: usize,
    /// Bytes of all states.
    pub(crate) len: usize,
    pub(crate) meters: Vec<Meter>,
}

impl Policy {
    /// Compiles a document for a surface.
    ///
    /// # Errors
    /// Every mistake of the document at once, in its order, each with its path.
    pub fn compile(document: &str, surface: Surface) -> Result<Self, Problems> {
        let node = Node::parse(document)?;
        let noted = RefCell::new(Noted::default());
        let root = At::root(&noted);
        let policy = Document::read(&node, &root).map(|read| {
            if root.noted() == 0 {
                validate::unreachable(&read, &root);
            }
            let mut compiler =
                compiler::Compiler::new(&read, surface, stable_hash(&[document.as_bytes()]));
            compiler.rules(&read, &root);
            validate::errors(&read, surface, &root);
            let warnings = warnings::warnings(&read, &compiler.policy, surface);
            compiler.policy.warnings = warnings.in_order(&node);
            compiler.policy
        });
        let problems = noted.into_inner().in_order(&node);
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

    /// The quotas of every rule and tier.
    #[must_use]
    pub fn quota_sets(&self) -> &[QuotaSet] {
        &self.sets
    }

    /// What is legal in the document but surely not meant.
    #[must_use]
    pub const fn warnings(&self) -> &Problems {
        &self.warnings
    }

    /// True when the client's address is the connection's other end, whatever a header says.
    #[must_use]
    pub fn takes_the_connection(&self) -> bool {
        self.settings.client.source == Source::Connection
    }

    /// Where verified claims come from; `None` when no rule counts by one.
    #[must_use]
    pub fn jwt(&self) -> Option<&Jwt> {
        let reads_claims =
            |group: &Group| group.key.iter().any(|part| matches!(part, KeyPart::JwtClaim(_)));
        self.jwt.as_ref().filter(|_| self.groups.iter().any(reads_claims))
    }

    /// The identity of the document, byte for byte.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// True when clients are told the hash of their partition key (`pk`), so that it needs a secret.
    #[must_use]
    pub const fn tells_partition_keys(&self) -> bool {
        self.response.partition_key
    }

    /// True when a secret of the surface chooses the keys that a rule is enforced for.
    #[must_use]
    pub fn chooses_keys(&self) -> bool {
        self.rules.iter().any(Rule::chooses_keys)
    }

    /// Sets the secret of the surface. Partition keys are hashed with it before they are told to clients (`pk`, by zeros
    /// until then), and it chooses the keys that a rule with `enforce_percent` and no salt is enforced for (all until then).
    pub const fn set_hash_key(&mut self, key: [u8; 16]) {
        self.response.hash_key = Some(key);
    }
}

impl Rule {
    /// The rule's name, %x20-7E, at most 64 characters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rule's name as a part of a metric's ([`metric_label`]). No two rules of a policy for Envoy have the same.
    #[must_use]
    pub fn label(&self) -> String {
        metric_label(&self.name)
    }

    /// The index of the rule's group in [`Policy::groups`]: rules with the same key share one.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group.into()
    }

    /// True when a secret of the surface chooses the keys that the rule is enforced for, so that nobody else can say
    /// which ones these are.
    #[must_use]
    pub const fn chooses_keys(&self) -> bool {
        matches!(self.mode, Mode::EnforcePercent(Share { percent: 1..=99, hash_key: None }))
    }

    /// True when every request costs the same: what one is denied by denies the others too.
    #[must_use]
    pub const fn has_fixed_cost(&self) -> bool {
        matches!(self.cost, Cost::Fixed(_))
    }

    /// True when a place may be given back, so that a denial is not final until its time.
    #[must_use]
    pub const fn gives_back(&self) -> bool {
        matches!(&self.charging, Charging::Response(charge) if charge.reserves())
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

    /// Worker: true when a count must be durable before the answer leaves; one strict rule is enough.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.strict
    }

    /// Bytes of one stored value, a multiple of 4.
    #[must_use]
    pub const fn value_len(&self) -> usize {
        self.value_len
    }
}

impl QuotaSet {
    /// The index of the rule in [`Policy::rules`].
    #[must_use]
    pub fn rule(&self) -> usize {
        self.rule.into()
    }

    /// The tier, if these are not the rule's own quotas.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// The quotas.
    #[must_use]
    pub fn meters(&self) -> &[Meter] {
        &self.meters
    }

    /// Bytes that one key takes for these quotas.
    #[must_use]
    pub const fn record_len(&self) -> usize {
        self.len.saturating_add(RECORD_HEADER)
    }
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
