//! Rules that count by the same key, and their quotas: what one stored value is made of.
//!
//! Invariant: the records of a group lie one after the other in the order of its sets; `offset` and `len` say where.

use alloc::string::String;
use alloc::vec::Vec;

use crate::document::key::Key;
use crate::policy::quota::Meter;

/// Bytes before a record's states.
pub(crate) const RECORD_HEADER: usize = 8;

/// The rules that count by the same key: what is stored for one key lies in one value, so that it
/// is loaded, decided and committed at once.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) key: Key,
    pub(crate) identity: u64,
    pub(crate) capacity: u32,
    pub(crate) strict: bool,
    pub(crate) sets: Vec<u16>,
    pub(crate) value_len: usize,
}

/// The quotas of one rule or tier, and where their states lie in the group's value.
#[derive(Clone, Debug)]
pub struct QuotaSet {
    pub(crate) rule: u16,
    pub(crate) tier: Option<String>,
    /// Identity of the rule and its quotas: states of other quotas are never read as these.
    pub(crate) record_id: u32,
    /// Where the record's states begin in the value.
    pub(crate) offset: usize,
    /// Bytes of all states.
    pub(crate) len: usize,
    pub(crate) meters: Vec<Meter>,
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
