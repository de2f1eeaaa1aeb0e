//! What quotas a store's records may be of: the parameters of every set that was configured, kept
//! once beside a group's values.
//!
//! A record says its quotas by one identity. Whoever does not have these looks here what they were,
//! and whether they are earlier than its own (then what is used is carried into its own) or later
//! (then others follow a newer policy already, and the record is decided by its own quotas).
//!
//! Invariant: a set stands here before a record of it is written, and its generation says when it
//! was configured last, so all who read this agree which of two sets is the newer one. It is
//! bounded: the newest generation whole, and of earlier ones the newest. Any bytes are read as a
//! directory or as none. Deliberately not here: where the bytes lie, and how several writers agree.
//!
//! In bytes, little-endian: version `u8`, then per set, the earliest generation first: generation
//! `u64`, length of the rest `u16`, the [parameters](crate::QuotaSet::write_parameters), and per
//! quota the length of its name `u8` and the name.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::policy::stored_set::StoredSet;
use crate::stable_hash::stable_hash;

/// The version of these bytes.
const VERSION: u8 = 1;

/// Sets of earlier generations that are kept at least; as many as the newest generation has, if
/// that has more.
const MIN_EARLIER: usize = 256;

/// The sets whose records may lie in one group's values.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// The earliest generation first.
    sets: Vec<KnownSet>,
    /// What a record says, in each version of its states' layout: which set, and which version.
    by_id: BTreeMap<u32, (usize, u8)>,
}

/// A set, and when it was configured.
#[derive(Clone, Debug)]
pub(crate) struct KnownSet {
    pub(crate) generation: u64,
    pub(crate) set: StoredSet,
    /// The names of its quotas, in their order.
    names: Vec<String>,
}

/// What [`Directory::register`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The group's sets are the newest already: there is nothing to write.
    AsItIs,
    /// They are the newest now.
    Newest {
        /// How many earlier sets had to be forgotten: what is used under them begins anew.
        forgotten: usize,
    },
}

impl Directory {
    /// One that knows nothing.
    pub(crate) const NONE: Self = Self { sets: Vec::new(), by_id: BTreeMap::new() };

    /// Reads what [`Directory::write`] wrote; `None` for anything else. A set that this version
    /// does not know is left out.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (VERSION, mut rest) = bytes.split_first().map(|(version, rest)| (*version, rest))?
        else {
            return None;
        };
        let mut sets = Vec::new();
        while !rest.is_empty() {
            let (generation, after) = rest.split_first_chunk()?;
            let (len, after) = after.split_first_chunk()?;
            let (entry, others) = after.split_at_checked(u16::from_le_bytes(*len).into())?;
            sets.extend(KnownSet::read(u64::from_le_bytes(*generation), entry));
            rest = others;
        }
        // After the last generation there is none: nobody gets so far but by damage.
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
            let len = u16::try_from(entry.len()).unwrap_or(u16::MAX);
            out.extend(known.generation.to_le_bytes());
            out.extend(len.to_le_bytes());
            out.extend(entry);
        }
    }

    /// Makes the sets of `group` the newest generation, unless they are. Several who configure the
    /// same policy agree: the first one makes the generation, the others find it.
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

    /// How many sets stand in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sets.len()
    }

    /// True when nothing was ever registered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The set of a record with this identity, and the version of its states' layout.
    pub(crate) fn find(&self, id: u32) -> Option<(&KnownSet, u8)> {
        let (index, version) = self.by_id.get(&id)?;
        Some((self.sets.get(*index)?, *version))
    }

    /// The generation in which this set was configured last; 0 when it was not.
    pub(crate) fn generation_of(&self, set: &QuotaSet) -> u64 {
        let known = self.by_record_id(set.record_id).filter(|known| known.is(set));
        known.map_or(0, |known| known.generation)
    }

    fn by_record_id(&self, record_id: u32) -> Option<&KnownSet> {
        let (known, _) = self.find(record_id)?;
        (known.set.record_id() == record_id).then_some(known)
    }

    fn of(sets: Vec<KnownSet>) -> Self {
        let mut by_id = BTreeMap::new();
        for (index, known) in sets.iter().enumerate() {
            for version in 1..=known.set.version() {
                // Of two sets with one identity the later one.
                by_id.insert(known.set.id_in(version), (index, version));
            }
        }
        Self { sets, by_id }
    }
}

impl KnownSet {
    fn new(generation: u64, set: &QuotaSet) -> Self {
        let names = set.quotas.iter().map(|quota| quota.name.clone()).collect();
        Self { generation, set: set.to_stored(), names }
    }

    fn read(generation: u64, mut entry: &[u8]) -> Option<Self> {
        let set = StoredSet::read(&mut entry)?;
        let mut names = Vec::new();
        for quota in set.quotas() {
            let (len, rest) = entry.split_first()?;
            let (name, rest) = rest.split_at_checked(usize::from(*len))?;
            if stable_hash(&[name]) != quota.name_hash() {
                return None;
            }
            names.push(core::str::from_utf8(name).ok()?.into());
            entry = rest;
        }
        entry.is_empty().then_some(Self { generation, set, names })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.set.write(out);
        for name in &self.names {
            out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(name.as_bytes());
        }
    }

    fn is(&self, set: &QuotaSet) -> bool {
        self.set == set.to_stored()
    }

    /// This set in the place of `own`, which has the same name, with its states at `offset`.
    pub(crate) fn in_place_of(&self, own: &QuotaSet, offset: Option<usize>) -> QuotaSet {
        let quotas = self.set.quotas().iter().zip(&self.names).map(|(quota, name)| CompiledQuota {
            name: name.clone(),
            name_hash: quota.name_hash(),
            limiter: *quota.limiter(),
            window: quota.limiter().window(),
            offset: quota.offset(),
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
