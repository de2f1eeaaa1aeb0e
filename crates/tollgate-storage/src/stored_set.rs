//! The parameters of a quota set as bytes, stored next to its states: with them a store can read
//! states that another policy wrote, and carry the usage into the current quotas.
//!
//! Invariant: a set is identified by the names of its rule and its tier, a quota in it by its own
//! name. Whatever else changes, the usage of a client continues. Any bytes are accepted: the result
//! is a set or `None`. Deliberately not here: the key (another key definition is another group, and
//! starts empty), and the names themselves: they are hashed, and nothing that a client sends is
//! ever looked up by them.
//!
//! All numbers are little-endian: stable identity `u64`, record identity `u32`, version of the
//! states' layout `u8`, number of quotas `u8`, then per quota: hash of its name `u64` and its
//! limiter, as `limiter_bytes` writes it.

use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{ENCODING_VERSION, Limiter, Timestamp};

use crate::limiter_bytes::{
    LIMITER_LEN, STEPS_LEN, has_penalty, read_limiter, take, write_limiter,
};

/// Makes the identities of two versions differ in all their bits: 2^32 divided by the golden ratio,
/// which is odd.
const MARK: u32 = 0x9e37_79b9;

/// Bytes of a set before its quotas, of the hash of a name, and of each quota without a penalty.
const SET_LEN: usize = 14;
const NAME_LEN: usize = 8;
const QUOTA_LEN: usize = NAME_LEN + LIMITER_LEN;

/// The most quotas of one rule or tier.
pub const MAX_QUOTAS: usize = 16;

/// The bytes of which stored values in a table are a multiple.
pub const WORD: usize = 8;

/// A quota set reduced to its parameters, as written by `QuotaSet::write_parameters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSet {
    stable_id: u64,
    record_id: u32,
    version: u8,
    quotas: Vec<StoredQuota>,
}

/// One quota of a [`StoredSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredQuota {
    name_hash: u64,
    limiter: Limiter,
    /// The offset of its state in the states of its set, in the current layout.
    offset: usize,
}

impl StoredSet {
    /// The set with these identities and quotas (hash of the name, limiter), whose states follow
    /// each other in the layout `version`.
    #[must_use]
    pub fn new(
        (stable_id, record_id, version): (u64, u32, u8),
        quotas: impl IntoIterator<Item = (u64, Limiter)>,
    ) -> Self {
        let mut offset = 0_usize;
        let placed = quotas.into_iter().map(|(name_hash, limiter)| {
            let quota = StoredQuota { name_hash, limiter, offset };
            offset = offset.saturating_add(limiter.state_len());
            quota
        });
        Self { stable_id, record_id, version, quotas: placed.collect() }
    }

    /// Reads one set from the front of `bytes` and removes it. Returns `None`, with `bytes`
    /// unchanged, for bytes that `QuotaSet::write_parameters` does not write: an impossible
    /// quota, two quotas with one name, a layout that this version does not know. Any bytes are
    /// accepted.
    #[must_use]
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut rest = *bytes;
        let stable_id = u64::from_le_bytes(take(&mut rest)?);
        let record_id = u32::from_le_bytes(take(&mut rest)?);
        let [version, count] = take(&mut rest)?;
        if record_id == 0 || version == 0 || version > ENCODING_VERSION || count == 0 {
            return None;
        }
        let mut quotas: Vec<StoredQuota> = Vec::with_capacity(count.into());
        let mut offset = 0_usize;
        for _ in 0..count {
            let name_hash = u64::from_le_bytes(take(&mut rest)?);
            let limiter = read_limiter(&mut rest)?;
            if quotas.iter().any(|quota| quota.name_hash == name_hash) {
                return None;
            }
            quotas.push(StoredQuota { name_hash, limiter, offset });
            offset = offset.checked_add(limiter.state_len())?;
        }
        *bytes = rest;
        Some(Self { stable_id, record_id, version, quotas })
    }

    /// The length in bytes of the set at the front of `bytes`, and its number of quotas, without
    /// reading it.
    pub(crate) fn extent(bytes: &[u8]) -> Option<(usize, usize)> {
        let quotas = usize::from(*bytes.get(SET_LEN.checked_sub(1)?)?);
        let mut len = SET_LEN;
        for _ in 0..quotas {
            let limiter = bytes.get(len.checked_add(NAME_LEN)?..)?;
            let steps = if has_penalty(limiter)? { STEPS_LEN } else { 0 };
            len = len.checked_add(QUOTA_LEN)?.checked_add(steps)?;
        }
        Some((len, quotas))
    }

    /// The same set, with states in the current layout.
    pub(crate) fn in_current_layout(self) -> Self {
        let versions = self.quotas.iter().map(|quota| quota.limiter.state_version());
        Self { version: versions.max().unwrap_or(self.version), ..self }
    }

    /// Gives each quota that counts the limit of one request.
    pub(crate) fn limit(&mut self, limits: &[u64]) {
        for (quota, limit) in self.quotas.iter_mut().zip(limits) {
            quota.limiter = quota.limiter.within(*limit).unwrap_or(quota.limiter);
        }
    }

    /// Appends the bytes that it was read from to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_parameters((self.stable_id, self.record_id, self.version), self.limiters(), out);
    }

    /// See `QuotaSet::stable_id`.
    #[must_use]
    pub const fn stable_id(&self) -> u64 {
        self.stable_id
    }

    /// The identity of the rule and its quotas with all parameters, as in records.
    #[must_use]
    pub const fn record_id(&self) -> u32 {
        self.record_id
    }

    /// The quotas, in the order of their states.
    #[must_use]
    pub fn quotas(&self) -> &[StoredQuota] {
        &self.quotas
    }

    /// The hash of each quota's name and its limiter, in the order of their states.
    pub fn limiters(&self) -> impl ExactSizeIterator<Item = (u64, &Limiter)> {
        self.quotas.iter().map(|quota| (quota.name_hash, &quota.limiter))
    }

    /// Bytes of all states in the current layout.
    #[must_use]
    pub fn states_len(&self) -> usize {
        self.quotas.last().map_or(0, |last| last.offset.saturating_add(last.limiter.state_len()))
    }

    /// The time from which `states` decide as for a key never seen; [`Timestamp::ZERO`] for bytes
    /// that are not states of this set.
    #[must_use]
    pub fn idle_at(&self, states: &[u8]) -> Timestamp {
        let each = |quota: &StoredQuota| Some(quota.limiter.idle_at(quota.state(states)?));
        self.quotas.iter().filter_map(each).max().unwrap_or(Timestamp::ZERO)
    }

    /// The time until which a store keeps `states`: [`StoredSet::idle_at`], or by a calendar the
    /// end of the period in which its units are still reported ([`Limiter::reported_until`]).
    #[must_use]
    pub fn kept_until(&self, states: &[u8]) -> Timestamp {
        let each = |quota: &StoredQuota| Some(quota.limiter.reported_until(quota.state(states)?));
        self.quotas.iter().filter_map(each).max().unwrap_or(Timestamp::ZERO)
    }

    /// The version in which its states are written, that of the current layout.
    pub fn version(&self) -> u8 {
        let versions = self.quotas.iter().map(|quota| quota.limiter.state_version());
        versions.max().unwrap_or(1).max(self.version)
    }

    /// The identity in a record with the states in the layout of `version`.
    pub fn id_in(&self, version: u8) -> u32 {
        marked(self.record_id, version)
    }

    /// Converts the `stored` states from the layout that these parameters name to the current one,
    /// and repairs them ([`Limiter::repair`]); `None` for bytes of another length.
    #[must_use]
    pub fn current_states<'s>(&self, stored: &'s [u8]) -> Option<Cow<'s, [u8]>> {
        self.states_of(self.version, stored)
    }

    /// The `stored` states in the layout of `version`, converted to the current layout.
    pub fn states_of<'s>(&self, version: u8, stored: &'s [u8]) -> Option<Cow<'s, [u8]>> {
        let lens = self.quotas.iter().map(|quota| quota.limiter.state_len_in(version));
        let len = lens.into_iter().try_fold(0_usize, |sum, len| sum.checked_add(len?))?;
        if len != stored.len() {
            return None;
        }
        if self.quotas.iter().all(|quota| quota.limiter.state_version() <= version) {
            let mut states = Cow::Borrowed(stored);
            for quota in &self.quotas {
                if quota.state(&states).is_some_and(|state| !quota.limiter.is_consistent(state))
                    && let Some(state) = quota.state_mut(states.to_mut())
                {
                    quota.limiter.repair(state);
                }
            }
            return Some(states);
        }
        let (mut states, mut rest) = (vec![0; self.states_len()], stored);
        for quota in &self.quotas {
            let (state, others) = rest.split_at_checked(quota.limiter.state_len_in(version)?)?;
            let is_state = quota.limiter.convert(version, state, quota.state_mut(&mut states)?);
            rest = is_state.then_some(others)?;
        }
        Some(Cow::Owned(states))
    }
}

impl StoredQuota {
    /// The hash of the quota's name.
    #[must_use]
    pub const fn name_hash(&self) -> u64 {
        self.name_hash
    }

    /// The limiter that decides.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Where its state begins among the states of its set, in bytes.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Its state in the states of its set; `None` when these are too short.
    #[must_use]
    pub fn state<'s>(&self, states: &'s [u8]) -> Option<&'s [u8]> {
        states.get(self.offset..self.offset.checked_add(self.limiter.state_len())?)
    }

    /// The same, for writing.
    #[must_use]
    pub fn state_mut<'s>(&self, states: &'s mut [u8]) -> Option<&'s mut [u8]> {
        states.get_mut(self.offset..self.offset.checked_add(self.limiter.state_len())?)
    }
}

/// Writes to `out`, the states of the quotas `to` (hash of the name, limiter), the usage in
/// `states`, the states of `from`, at `now`.
///
/// Quotas are matched by name: the state of a quota with equal parameters keeps its bytes, the
/// state of a changed quota is [carried](Limiter::carry), and a new quota starts empty. Both are in
/// the current layout. If `states` or `out` has another length, the quotas outside it start empty.
pub fn carry_set<'l>(
    from: &StoredSet,
    states: &[u8],
    to: impl IntoIterator<Item = (u64, &'l Limiter)>,
    now: Timestamp,
    mut out: &mut [u8],
) {
    out.fill(0);
    for (name_hash, limiter) in to {
        let Some((state, rest)) = out.split_at_mut_checked(limiter.state_len()) else { return };
        let before = from.quotas.iter().find(|before| before.name_hash == name_hash);
        if let Some((before, earlier)) = before.and_then(|it| Some((it, it.state(states)?))) {
            limiter.carry(&before.limiter, earlier, now, state);
        }
        out = rest;
    }
}

/// Appends to `out` the parameters of a set with these quotas (name, limiter): 14 bytes, and 36 per
/// quota, 60 with a penalty. [`StoredSet::read`] reads them.
pub fn write_parameters<'a>(
    (stable_id, record_id, version): (u64, u32, u8),
    quotas: impl ExactSizeIterator<Item = (u64, &'a Limiter)>,
    out: &mut Vec<u8>,
) {
    let count = quotas.len();
    out.reserve(count.saturating_mul(QUOTA_LEN).saturating_add(SET_LEN));
    out.extend(stable_id.to_le_bytes());
    out.extend(record_id.to_le_bytes());
    // A set has at most 16 quotas.
    out.extend([version, u8::try_from(count).unwrap_or(u8::MAX)]);
    for (name_hash, limiter) in quotas {
        write_quota(name_hash, limiter, out);
    }
}

pub(crate) fn write_quota(name_hash: u64, limiter: &Limiter, out: &mut Vec<u8>) {
    out.extend(name_hash.to_le_bytes());
    write_limiter(limiter, out);
}

/// The form of `record_id` in a record of `version`: unchanged in the first version, and never 0,
/// which means no record.
pub fn marked(record_id: u32, version: u8) -> u32 {
    let later = u32::from(version).saturating_sub(1);
    (record_id ^ later.wrapping_mul(MARK)).max(1)
}
