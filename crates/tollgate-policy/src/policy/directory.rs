//! The quotas whose records a store may contain: the parameters of every set that was configured,
//! stored once per group, next to its values.
//!
//! A record identifies its quotas by one number. A policy without these quotas looks them up here,
//! and sees whether they are earlier than its own (then the usage is carried into its own record)
//! or later (then other nodes already use a newer policy, and the record's own quotas decide).
//!
//! Invariant: a set is written here before a record of it is written. Its generation shows when it
//! was last configured, so all readers agree which of two sets is newer. The directory is bounded:
//! all sets of the newest generation, and the newest ones of earlier generations. Any bytes are
//! accepted: the result is a directory or `None`. Deliberately not here: the place where the bytes
//! are stored, and the agreement between several writers.
//!
//! In bytes, little-endian: version `u8`, then per set, the earliest generation first: generation
//! `u64`, length of the rest `u16`, the [parameters](crate::QuotaSet::write_parameters), and per
//! quota the length of its name `u8` and the name. Where requests bring limits with them, then per
//! quota the limit of a request that brings none, `u64`.

use alloc::string::String;
use alloc::vec::Vec;

use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::stable_hash::stable_hash;
use tollgate_http_syntax::sort::sort_by;
use tollgate_storage::{Bytes, StoredSet, push_block};

/// The version of these bytes.
const VERSION: u8 = 1;

/// At least this many sets of earlier generations are kept; if the newest generation has more sets,
/// that many.
const MIN_EARLIER: usize = 256;

/// The sets that may have records in one group's values.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Sorted by generation, the earliest first.
    sets: Vec<KnownSet>,
    /// From the identity in a record, per version of its states' layout, to the set and the
    /// version. Sorted by identity.
    by_id: Vec<(u32, (usize, u8))>,
}

/// A set, and the generation in which it was last configured.
#[derive(Clone, Debug)]
pub(crate) struct KnownSet {
    pub(crate) generation: u64,
    pub(crate) set: StoredSet,
    /// The names of its quotas, in their order.
    names: Vec<String>,
    /// Where requests bring limits with them: the limit of one that brings none, per quota. A
    /// policy without these limits decides by it, and not by the highest one.
    defaults: Vec<u64>,
}

/// The result of [`Directory::register`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The group's sets are already the newest: nothing to write.
    AsItIs,
    /// They are the newest now.
    Newest {
        /// How many earlier sets were dropped: usage under them starts at zero.
        forgotten: usize,
    },
}

impl Directory {
    /// An empty directory.
    pub(crate) const NONE: Self = Self { sets: Vec::new(), by_id: Vec::new() };

    /// Reads the bytes of [`Directory::write`]; `None` for any other bytes. A set that this version
    /// does not know is left out.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes.strip_prefix(&[VERSION])?);
        let mut sets = Vec::new();
        while !rest.0.is_empty() {
            let (generation, entry) = (rest.u64()?, rest.block()?);
            sets.extend(KnownSet::read(generation, entry));
        }
        // No generation can follow the last one; only damaged bytes contain it.
        let has_next = sets.last().is_none_or(|known: &KnownSet| known.generation < u64::MAX);
        let is_sorted = sets.is_sorted_by_key(|known| known.generation);
        (has_next && is_sorted).then(|| Self::of(sets))
    }

    /// Appends its bytes to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        for known in &self.sets {
            let mut entry = Vec::new();
            known.write(&mut entry);
            // 16 quotas of at most 101 bytes each.
            out.extend(known.generation.to_le_bytes());
            push_block(&entry, out);
        }
    }

    /// Makes the sets of `group` the newest generation, unless they already are. Several writers
    /// that configure the same policy agree: the first one adds the generation, the others find it.
    pub fn register(&mut self, policy: &Policy, group: &Group) -> Registered {
        let own = || group.sets.iter().filter_map(|i| policy.sets.get(usize::from(*i)));
        let newest = self.sets.last().map_or(0, |known| known.generation);
        let is_newest = |known: &&KnownSet| known.generation == newest;
        let known = |set: &QuotaSet| {
            let known = self.by_record_id(set.record_id).filter(is_newest);
            known.is_some_and(|known| known.is(set))
        };
        if own().all(known) && own().count() == self.sets.iter().filter(is_newest).count() {
            return Registered::AsItIs;
        }
        let mut sets = core::mem::take(&mut self.sets);
        sets.retain(|known| own().all(|set| set.record_id != known.set.record_id()));
        let most = own().count().max(MIN_EARLIER);
        let forgotten = sets.len().saturating_sub(most);
        sets.drain(..forgotten);
        sets.extend(own().map(|set| KnownSet::new(newest.saturating_add(1), set)));
        *self = Self::of(sets);
        Registered::Newest { forgotten }
    }

    /// The number of sets in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sets.len()
    }

    /// True when no set was ever registered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The set of a record with this identity, and the version of its states' layout.
    pub(crate) fn find(&self, id: u32) -> Option<(&KnownSet, u8)> {
        // Of two sets with one identity, the later one.
        let after = self.by_id.partition_point(|(known, _)| *known <= id);
        let (known, (index, version)) = self.by_id.get(after.checked_sub(1)?)?;
        (*known == id).then_some(())?;
        Some((self.sets.get(*index)?, *version))
    }

    /// The generation in which this set was last configured; 0 when it never was.
    pub(crate) fn generation_of(&self, set: &QuotaSet) -> u64 {
        let known = self.by_record_id(set.record_id).filter(|known| known.is(set));
        known.map_or(0, |known| known.generation)
    }

    fn by_record_id(&self, record_id: u32) -> Option<&KnownSet> {
        let (known, _) = self.find(record_id)?;
        (known.set.record_id() == record_id).then_some(known)
    }

    fn of(sets: Vec<KnownSet>) -> Self {
        let mut by_id = Vec::new();
        for (index, known) in sets.iter().enumerate() {
            for version in 1..=known.set.version() {
                by_id.push((known.set.id_in(version), (index, version)));
            }
        }
        sort_by(&mut by_id, |(one, _), (other, _)| one.cmp(other));
        Self { sets, by_id }
    }
}

impl KnownSet {
    fn new(generation: u64, set: &QuotaSet) -> Self {
        let names = set.quotas.iter().map(|quota| quota.name.clone()).collect();
        Self { generation, set: set.to_stored(), names, defaults: defaults(set) }
    }

    fn read(generation: u64, mut entry: &[u8]) -> Option<Self> {
        let set = StoredSet::read(&mut entry)?;
        let (mut rest, mut names) = (Bytes(entry), Vec::new());
        for quota in set.quotas() {
            let len = rest.u8()?;
            let name = rest.take(len.into())?;
            if stable_hash(&[name]) != quota.name_hash() {
                return None;
            }
            names.push(core::str::from_utf8(name).ok()?.into());
        }
        let mut defaults = Vec::new();
        if !rest.0.is_empty() {
            for _ in set.quotas() {
                defaults.push(rest.u64()?);
            }
        }
        rest.0.is_empty().then_some(Self { generation, set, names, defaults })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.set.write(out);
        for name in &self.names {
            out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(name.as_bytes());
        }
        out.extend(self.defaults.iter().flat_map(|limit| limit.to_le_bytes()));
    }

    fn is(&self, set: &QuotaSet) -> bool {
        self.set == set.to_stored() && self.defaults == defaults(set)
    }

    /// This set as a replacement for `own`, which has the same name, with its states at `offset`.
    pub(crate) fn in_place_of(&self, own: &QuotaSet, offset: Option<usize>) -> QuotaSet {
        let mut defaults = self.defaults.iter();
        let quotas = self.set.quotas().iter().zip(&self.names).map(|(quota, name)| {
            let limiter = *quota.limiter();
            CompiledQuota {
                name: name.clone(),
                name_hash: quota.name_hash(),
                limiter: defaults.next().and_then(|it| limiter.within(*it)).unwrap_or(limiter),
                window: limiter.window(),
                offset: quota.offset(),
                limit_from: None,
                template: None,
            }
        });
        QuotaSet {
            rule: own.rule,
            tier: own.tier.clone(),
            of_tenant: own.of_tenant,
            stable_id: own.stable_id,
            record_id: self.set.record_id(),
            version: self.set.version(),
            offset,
            len: self.set.states_len(),
            quotas: quotas.collect(),
            fallback: None,
        }
    }
}

/// Per quota of `set` the limit of a request that brings none; empty where requests bring none.
fn defaults(set: &QuotaSet) -> Vec<u64> {
    if !set.varies() {
        return Vec::new();
    }
    let default = |quota: &CompiledQuota| match quota.limit_from() {
        Some(from) => from.default,
        None => u64::MAX,
    };
    set.quotas.iter().map(default).collect()
}
