//! Rules that count by the same key, and their quotas: the content of one stored value.
//!
//! Invariant: the records of a group follow each other in the order of its sets; `offset` and `len`
//! give their positions. When such a value would be long, a value contains only the records that
//! something was charged to, in any order, and each is found by its identity: a key that uses 3
//! rules of 1,000 takes, and costs, as much as 3 rules. The filter and `check` both take the size
//! of Envoy's table from here.

use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Limiter;

use crate::policy::quota::CompiledQuota;
use crate::policy::records::{RECORD_HEADER, write_zeros};
use crate::spec::key_item::{KeyPart, items};
use crate::spec::policy::GroupSpec;
use crate::stable_hash::stable_hash;
use tollgate_http_syntax::sort::sort_by;
use tollgate_storage::table::TableSize;
use tollgate_storage::{StoredSet, marked, write_parameters};

/// The longest value in which every record has a fixed place, in bytes. Up to this length a bucket
/// of Envoy's table takes sixteen values, and to search for a few records costs more than to copy
/// all.
pub(crate) const PLACED_UP_TO: usize = 512;

/// The most bytes that a node stores for one rule of a fleet, with their header, and for the last
/// response of each of the rule's quotas.
const LONGEST_HOLDING: usize = 381;
const LONGEST_ANSWER: usize = 24;

/// The rules that count by the same key. Everything stored for one key is one value, which is
/// loaded, decided and committed at once.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) spec: GroupSpec,
    /// The number of items of the key.
    pub(crate) items: usize,
    /// Every part of the key is an item of its own, with its letters as sent.
    pub(crate) is_plain: bool,
    pub(crate) sets: Vec<u16>,
    /// A value contains only the records that something was charged to.
    pub(crate) is_sparse: bool,
    /// The places of its sets by the identity in their records, for each version of their states.
    pub(crate) by_id: ById,
    /// The same by the names of their rules and tiers.
    pub(crate) by_name: ById,
    /// The value of a key never seen: every record in its place, all zero, or no record.
    pub(crate) blank: Vec<u8>,
    pub(crate) value_len: usize,
    /// The total number of quotas in its sets.
    pub(crate) quotas: usize,
    /// The group in which a node counts while no authority answers.
    pub(crate) fallback: Option<u16>,
    /// A quota of it counts in the windows of a calendar.
    pub(crate) is_by_calendar: bool,
}

/// The quotas of one rule or tier, and the position of their states in the group's value.
#[derive(Clone, Debug)]
pub struct QuotaSet {
    pub(crate) rule: u16,
    pub(crate) tier: Option<String>,
    /// These are a tenant's own quotas, which no policy contains.
    pub(crate) of_tenant: bool,
    /// Identity of the rule and the tier by their names alone, whatever their quotas are.
    pub(crate) stable_id: u64,
    /// Identity of the rule and its quotas, whatever the layout of their states is. Surfaces use it
    /// as the set's identifier.
    pub(crate) record_id: u32,
    /// The version of the states: the latest that changed the layout of one of them.
    pub(crate) version: u8,
    /// The offset of the record's states in the value; `None` for a sparse value, where only the
    /// value shows it.
    pub(crate) offset: Option<usize>,
    /// Bytes of all states.
    pub(crate) len: usize,
    pub(crate) quotas: Vec<CompiledQuota>,
    /// The set in which a node counts while no authority answers.
    pub(crate) fallback: Option<u16>,
}

impl Group {
    /// The group of this key, before its sets are added.
    pub(crate) fn new(spec: GroupSpec) -> Self {
        Self {
            items: items(&spec.key).count(),
            is_plain: spec.key.iter().all(KeyPart::is_plain),
            spec,
            sets: Vec::new(),
            is_sparse: false,
            by_id: ById::default(),
            by_name: ById::default(),
            blank: Vec::new(),
            value_len: 0,
            quotas: 0,
            fallback: None,
            is_by_calendar: false,
        }
    }

    /// The identity of the key definition: it changes only with the definition. A store names its
    /// table after it.
    #[must_use]
    pub const fn identity(&self) -> u64 {
        self.spec.identity.0
    }

    /// The number of keys stored in Envoy: the largest `capacity` of the group's rules.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.spec.capacity
    }

    /// Worker: true when a count must be durable before the response is sent; one strict rule is
    /// enough.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.spec.strict
    }

    /// True when all nodes share one count, which an authority keeps
    /// ([`Scope::Fleet`](crate::Scope::Fleet)); such a group contains only rules of that scope.
    #[must_use]
    pub const fn is_fleet(&self) -> bool {
        self.spec.is_fleet
    }

    /// Worker: the number of objects over which the requests of one key are spread, each of which
    /// leases units of the key; `None` when the key's own object counts all requests.
    #[must_use]
    pub const fn shards(&self) -> Option<u32> {
        self.spec.shards
    }

    /// True when a quota of it counts in the windows of a calendar: its counts are decided at the
    /// time of a wall clock.
    #[must_use]
    pub const fn is_by_calendar(&self) -> bool {
        self.is_by_calendar
    }

    /// True when the key has no parts: all requests share one count.
    #[must_use]
    pub fn counts_all(&self) -> bool {
        self.spec.key.is_empty()
    }

    /// Bytes of one stored value, a multiple of 4; the maximum when it [is
    /// sparse](Group::is_sparse).
    #[must_use]
    pub const fn value_len(&self) -> usize {
        self.value_len
    }

    /// True when a stored value contains only the records that something was charged to.
    #[must_use]
    pub const fn is_sparse(&self) -> bool {
        self.is_sparse
    }

    /// The size of the table for this group's values, for as many keys as its capacity; for a
    /// fleet, the size for the values that a node stores for it.
    #[must_use]
    pub fn table_size(&self) -> TableSize {
        let answers = self.quotas.saturating_mul(LONGEST_ANSWER);
        let held = self.sets.len().saturating_mul(LONGEST_HOLDING).saturating_add(1);
        let held = held.saturating_add(answers);
        let value_len = if self.is_fleet() { held } else { self.value_len() };
        TableSize::new(self.capacity(), value_len)
    }

    /// Assigns each record its place in a value, or none when values are sparse.
    pub(crate) fn lay_out(&mut self, sets: &mut [QuotaSet]) {
        (self.value_len, self.quotas) = (0, 0);
        self.is_by_calendar = false;
        self.blank.clear();
        let (mut by_id, mut by_name) = (Vec::new(), Vec::new());
        for (index, place) in self.sets.iter().zip(0_u16..) {
            let Some(set) = sets.get_mut(usize::from(*index)) else { continue };
            let offset = self.value_len.saturating_add(RECORD_HEADER);
            self.value_len = offset.saturating_add(set.len);
            self.quotas = self.quotas.saturating_add(set.quotas.len());
            set.offset = Some(offset);
            let by_calendar = |quota: &CompiledQuota| quota.limiter.calendar().is_some();
            self.is_by_calendar |= set.quotas.iter().any(by_calendar);
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

    /// The place among its sets of the one whose record has this identity, in any version of its
    /// states.
    pub(crate) fn by_id(&self, id: u32) -> Option<usize> {
        self.by_id.find(id.into())
    }
}

impl QuotaSet {
    /// The quotas of a rule, or of one of its tiers, by their names. Their position in a value is
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

    /// The identity in a record with the states in the layout of `version`: that of the quotas,
    /// marked by the version. So states of other quotas are never read as these, nor are states of
    /// another layout, not even by code that does not know that layout.
    pub(crate) fn id_in(&self, version: u8) -> u32 {
        marked(self.record_id, version)
    }

    /// The identities in records with states of these quotas, in any layout.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        (1..=self.version).map(|version| self.id_in(version))
    }

    /// Bytes of all states in the layout of `version`; `None` when there is no such version.
    pub(crate) fn len_in(&self, version: u8) -> Option<usize> {
        let mut lengths = self.quotas.iter().map(|quota| quota.limiter.state_len_in(version));
        lengths.try_fold(0_usize, |sum, len| sum.checked_add(len?))
    }

    /// True when its quota denies every request: it counts nothing.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.quotas.first().is_some_and(|quota| quota.limiter.is_closed())
    }

    /// True when a request brings the limit of one of these quotas with it.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.quotas.iter().any(|quota| quota.limit_from.is_some())
    }

    /// True when one of these quotas has a penalty.
    #[must_use]
    pub fn has_penalty(&self) -> bool {
        self.quotas.iter().any(|quota| quota.limiter.penalty().is_some())
    }

    /// False when a state in `states` is inconsistent, which only damage causes
    /// ([`tollgate_core::Limiter::is_consistent`]). States of layout 1 have no sum.
    #[inline]
    pub(crate) fn is_consistent(&self, states: &[u8]) -> bool {
        let is_consistent = |quota: &CompiledQuota| {
            quota.state(states).is_none_or(|state| quota.limiter.is_consistent(state))
        };
        self.version == 1 || self.quotas.iter().all(is_consistent)
    }

    /// Bytes per key for these quotas.
    #[must_use]
    pub const fn record_len(&self) -> usize {
        self.len.saturating_add(RECORD_HEADER)
    }
}

/// Places in a list by identity, of a record or of a rule or tier by its name, in the order of the
/// identities: one of a thousand is found with ten comparisons.
#[derive(Clone, Debug, Default)]
pub(crate) struct ById(Vec<(u64, u16)>);

impl ById {
    fn new(mut all: Vec<(u64, u16)>) -> Self {
        sort_by(&mut all, |(one, _), (other, _)| one.cmp(other));
        Self(all)
    }

    /// The place with this identity; of several, the first in the given order.
    pub(crate) fn find(&self, id: u64) -> Option<usize> {
        let first = self.0.partition_point(|(one, _)| *one < id);
        let (found, place) = self.0.get(first)?;
        (*found == id).then_some(usize::from(*place))
    }
}

/// The identity of a rule's own quotas, or of its tier's, by their names. The length of each name
/// is hashed before it, so a rule's tier never has another rule's identity.
fn stable_id(rule: &str, tier: Option<&str>) -> u64 {
    match tier {
        None => stable_hash(&[rule.as_bytes()]),
        Some(tier) => stable_hash(&[rule.as_bytes(), tier.as_bytes()]),
    }
}

impl QuotaSet {
    /// The identity of the set while its quotas change: the hash of the names of its rule and its
    /// tier. A rule or a tier with another name is another set.
    #[must_use]
    pub const fn stable_id(&self) -> u64 {
        self.stable_id
    }

    /// Appends the set's parameters to `out` for [`StoredSet::read`]: 14 bytes, and 36 per quota.
    pub fn write_parameters(&self, out: &mut Vec<u8>) {
        write_parameters((self.stable_id, self.record_id, self.version), self.limiters(), out);
    }

    /// The hash of each quota's name and its limiter, in the order of their states.
    pub(crate) fn limiters(&self) -> impl ExactSizeIterator<Item = (u64, &Limiter)> {
        self.quotas.iter().map(|quota| (quota.name_hash, &quota.limiter))
    }

    /// The same set reduced to its parameters.
    #[must_use]
    pub fn to_stored(&self) -> StoredSet {
        let quotas = self.limiters().map(|(name, limiter)| (name, *limiter));
        StoredSet::new((self.stable_id, self.record_id, self.version), quotas)
    }
}
