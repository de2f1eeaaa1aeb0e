//! Rules that count by the same key, and their quotas: what one stored value is made of.
//!
//! Invariant: the records of a group lie one after the other in the order of its sets; `offset` and
//! `len` say where. Where that would be long, a value has the records alone that something was
//! charged to, in any order, and each is found by its identity: a key that uses 3 rules of 1,000
//! takes, and costs, what 3 rules take.

use alloc::string::String;
use alloc::vec::Vec;

use crate::document::key::Key;
use crate::policy::by_id::ById;
use crate::policy::quota::CompiledQuota;
use crate::policy::records::{RECORD_HEADER, write_zeros};
use crate::stable_hash::stable_hash;

/// The longest value in which every record has its place, in bytes: up to here a bucket of Envoy's
/// table takes sixteen of them, and to look for some of a few records costs more than to copy all.
pub(crate) const PLACED_UP_TO: usize = 512;

/// Sets the identities of two versions apart in all their bits: 2^32 divided by the golden ratio,
/// which is odd.
const MARK: u32 = 0x9e37_79b9;

/// The rules that count by the same key: what is stored for one key lies in one value, so that it
/// is loaded, decided and committed at once.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) key: Key,
    pub(crate) identity: u64,
    pub(crate) capacity: u32,
    pub(crate) strict: bool,
    /// All nodes have one count, which an authority keeps.
    pub(crate) is_fleet: bool,
    /// Over so many objects the requests of one key are spread.
    pub(crate) shards: Option<u32>,
    pub(crate) sets: Vec<u16>,
    /// A value has the records alone that something was charged to.
    pub(crate) is_sparse: bool,
    /// The places of its sets by what their records say, in each version of their states.
    pub(crate) by_id: ById,
    /// The same by the names of their rules and tiers.
    pub(crate) by_name: ById,
    /// What a key begins with that was never seen: every record in its place, all zero, or none.
    pub(crate) blank: Vec<u8>,
    pub(crate) value_len: usize,
    /// How many quotas its sets have together.
    pub(crate) quotas: usize,
    /// The group in which a node counts while no authority answers.
    pub(crate) fallback: Option<u16>,
}

/// The quotas of one rule or tier, and where their states lie in the group's value.
#[derive(Clone, Debug)]
pub struct QuotaSet {
    pub(crate) rule: u16,
    pub(crate) tier: Option<String>,
    /// These are a tenant's own, and in no policy.
    pub(crate) of_tenant: bool,
    /// Identity of the rule and the tier by their names alone, whatever their quotas.
    pub(crate) stable_id: u64,
    /// Identity of the rule and its quotas, whatever the layout of their states: what surfaces call
    /// them by.
    pub(crate) record_id: u32,
    /// The version of the states: the latest that changed the layout of one of them.
    pub(crate) version: u8,
    /// Where the record's states begin in the value; `None` where that is said by the value alone,
    /// because it has few of all records.
    pub(crate) offset: Option<usize>,
    /// Bytes of all states.
    pub(crate) len: usize,
    pub(crate) quotas: Vec<CompiledQuota>,
    /// The set in which a node counts while no authority answers.
    pub(crate) fallback: Option<u16>,
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

    /// Worker: true when a count must be durable before the answer leaves; one strict rule is
    /// enough.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.strict
    }

    /// True when all nodes have one count, which an authority keeps
    /// ([`Scope::Fleet`](crate::Scope::Fleet)): its rules' only.
    #[must_use]
    pub const fn is_fleet(&self) -> bool {
        self.is_fleet
    }

    /// Worker: over how many objects the requests of one key are spread, which lease its units;
    /// `None` where its own object counts them all.
    #[must_use]
    pub const fn shards(&self) -> Option<u32> {
        self.shards
    }

    /// True when the key has no parts: all requests share one count.
    #[must_use]
    pub fn counts_all(&self) -> bool {
        self.key.is_empty()
    }

    /// Bytes of one stored value, a multiple of 4; where it [is sparse](Group::is_sparse), at most.
    #[must_use]
    pub const fn value_len(&self) -> usize {
        self.value_len
    }

    /// True where a stored value has the records alone that something was charged to.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        self.is_sparse
    }

    /// Gives each record its place in a value, or none where values are sparse.
    pub(crate) fn lay_out(&mut self, sets: &mut [QuotaSet]) {
        (self.value_len, self.quotas) = (0, 0);
        self.blank.clear();
        let (mut by_id, mut by_name) = (Vec::new(), Vec::new());
        for (index, place) in self.sets.iter().zip(0_u16..) {
            let Some(set) = sets.get_mut(usize::from(*index)) else { continue };
            let offset = self.value_len.saturating_add(RECORD_HEADER);
            self.value_len = offset.saturating_add(set.len);
            self.quotas = self.quotas.saturating_add(set.quotas.len());
            set.offset = Some(offset);
            by_id.extend(set.ids().map(|id| (id.into(), place)));
            by_name.push((set.stable_id, place));
        }
        (self.by_id, self.by_name) = (ById::new(by_id), ById::new(by_name));
        self.is_sparse = self.value_len > PLACED_UP_TO && self.sets.len() > 1;
        if !self.is_sparse {
            let own = self.sets.iter().filter_map(|index| sets.get(usize::from(*index)));
            own.for_each(|set| write_zeros(set.id_in(set.version), set.len, &mut self.blank));
            return;
        }
        for index in &self.sets {
            sets.get_mut(usize::from(*index)).into_iter().for_each(|set| set.offset = None);
        }
    }

    /// The place among its sets of the one whose record says this, in any version of its states.
    pub(crate) fn by_id(&self, id: u32) -> Option<usize> {
        self.by_id.find(id.into())
    }
}

impl QuotaSet {
    /// The quotas of a rule, or of one tier of it, by their names. Where they lie in a value is
    /// not known yet.
    pub(crate) fn new(
        rule: (u16, &str),
        tier: Option<String>,
        record_id: u32,
        quotas: Vec<CompiledQuota>,
    ) -> Self {
        let (rule, name) = rule;
        Self {
            rule,
            stable_id: stable_id(name, tier.as_deref()),
            tier,
            of_tenant: false,
            record_id,
            version: Self::version_of(&quotas),
            offset: None,
            len: quotas.last().and_then(CompiledQuota::end).unwrap_or(0),
            quotas,
            fallback: None,
        }
    }

    /// The version of the states of these quotas.
    pub(crate) fn version_of(quotas: &[CompiledQuota]) -> u8 {
        quotas.iter().map(|quota| quota.limiter.state_version()).max().unwrap_or(1)
    }

    /// The index of the rule in [`Policy::rules`](crate::Policy::rules).
    #[must_use]
    pub fn rule(&self) -> usize {
        self.rule.into()
    }

    /// The tier, if these are not the rule's own quotas.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// True when these are a tenant's own, from its entry.
    #[must_use]
    pub const fn is_of_tenant(&self) -> bool {
        self.of_tenant
    }

    /// The quotas.
    #[must_use]
    pub fn quotas(&self) -> &[CompiledQuota] {
        &self.quotas
    }

    /// What a record says that holds the states in the layout of `version`: the identity of the
    /// quotas, marked by the version. So states of other quotas are never read as these, and states
    /// of another layout neither, not even by code that does not know of it.
    pub(crate) fn id_in(&self, version: u8) -> u32 {
        marked(self.record_id, version)
    }

    /// What records say that hold states of these quotas, in any layout.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        (1..=self.version).map(|version| self.id_in(version))
    }

    /// Bytes of all states in the layout of `version`; `None` where there is no such version.
    pub(crate) fn len_in(&self, version: u8) -> Option<usize> {
        let mut lengths = self.quotas.iter().map(|quota| quota.limiter.state_len_in(version));
        lengths.try_fold(0_usize, |sum, len| sum.checked_add(len?))
    }

    /// False when a state of `states` contradicts itself, which only damage leaves
    /// ([`tollgate_core::Limiter::is_consistent`]). No state of layout 1 has a sum.
    #[inline]
    pub(crate) fn is_consistent(&self, states: &[u8]) -> bool {
        let is_consistent = |quota: &CompiledQuota| {
            quota.state(states).is_none_or(|state| quota.limiter.is_consistent(state))
        };
        self.version == 1 || self.quotas.iter().all(is_consistent)
    }

    /// Bytes that one key takes for these quotas.
    #[must_use]
    pub const fn record_len(&self) -> usize {
        self.len.saturating_add(RECORD_HEADER)
    }
}

/// The identity of a rule's own quotas, or of its tier's, by their names. Every name has its length
/// before it, so no rule's tier has another rule's identity.
fn stable_id(rule: &str, tier: Option<&str>) -> u64 {
    match tier {
        None => stable_hash(&[rule.as_bytes()]),
        Some(tier) => stable_hash(&[rule.as_bytes(), tier.as_bytes()]),
    }
}

/// `record_id` as it stands in a record of `version`: itself in the first, and never 0, which is no
/// record.
pub(crate) fn marked(record_id: u32, version: u8) -> u32 {
    let later = u32::from(version).saturating_sub(1);
    (record_id ^ later.wrapping_mul(MARK)).max(1)
}
