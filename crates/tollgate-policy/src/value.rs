//! Stored values: the records of a group's rules, one after the other.
//!
//! A record is a header of 8 bytes (the identity of the rule and its quotas, then the length of
//! its states, both little-endian `u32`) and the states. Invariant: a record is read only by the
//! quotas that wrote it, so changing one rule never resets or misreads another's states; whatever
//! bytes are loaded, what is decided on has the current layout.

use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::compile::{Group, Policy, QuotaSet};

/// Bytes before a record's states.
pub(crate) const RECORD_HEADER: usize = 8;

impl Group {
    /// The time from which everything in `value` decides like never seen, so that a store may
    /// forget it without loss. Any bytes are accepted; records of other rules do not count.
    #[must_use]
    pub fn idle_at(&self, policy: &Policy, value: &[u8]) -> Timestamp {
        let mut latest = Timestamp::ZERO;
        for set in self.sets.iter().filter_map(|i| policy.sets.get(usize::from(*i))) {
            // Wherever it lies: a value may be of an earlier policy's layout.
            let Some(states) = states(set, value).or_else(|| find(value, set)) else { continue };
            for meter in &set.meters {
                if let Some(state) = meter.state(states) {
                    latest = latest.max(meter.limiter.idle_at(state));
                }
            }
        }
        latest
    }
}

/// Brings `stored` into the current layout of `group`, in `value`; nothing stored is all zero states.
pub(crate) fn load(policy: &Policy, group: &Group, stored: &[u8], value: &mut Vec<u8>) {
    value.clear();
    if is_current(policy, group, stored) {
        value.extend_from_slice(stored);
        return;
    }
    for set in group.sets.iter().filter_map(|i| policy.sets.get(usize::from(*i))) {
        value.extend(set.record_id.to_le_bytes());
        value.extend(u32::try_from(set.len).unwrap_or(u32::MAX).to_le_bytes());
        match find(stored, set) {
            Some(states) => value.extend_from_slice(states),
            None => value.resize(value.len().saturating_add(set.len), 0),
        }
    }
}

/// The states of `set` in a value of the current layout.
pub(crate) fn states<'v>(set: &QuotaSet, value: &'v [u8]) -> Option<&'v [u8]> {
    let header = set.offset.checked_sub(RECORD_HEADER)?;
    let (id, _) = record_header(value.get(header..)?)?;
    if id != set.record_id {
        return None;
    }
    value.get(set.offset..set.offset.checked_add(set.len)?)
}

/// The states of `set` in a value of the current layout, to be written.
pub(crate) fn states_mut<'v>(set: &QuotaSet, value: &'v mut [u8]) -> Option<&'v mut [u8]> {
    value.get_mut(set.offset..set.offset.checked_add(set.len)?)
}

/// True when every record lies where the current layout has it.
fn is_current(policy: &Policy, group: &Group, stored: &[u8]) -> bool {
    stored.len() == group.value_len
        && group.sets.iter().all(|i| {
            policy.sets.get(usize::from(*i)).is_some_and(|set| states(set, stored).is_some())
        })
}

/// The states of `set` wherever its record is.
fn find<'s>(stored: &'s [u8], set: &QuotaSet) -> Option<&'s [u8]> {
    let mut rest = stored;
    while let Some((id, len)) = record_header(rest) {
        let states = rest.get(RECORD_HEADER..RECORD_HEADER.checked_add(len)?)?;
        if id == set.record_id && len == set.len {
            return Some(states);
        }
        rest = rest.get(RECORD_HEADER.checked_add(len)?..)?;
    }
    None
}

/// Identity and length of the record that begins `bytes`; `None` at the end or in zeros.
fn record_header(bytes: &[u8]) -> Option<(u32, usize)> {
    let (id, rest) = bytes.split_first_chunk::<4>()?;
    let (len, _) = rest.split_first_chunk::<4>()?;
    let id = u32::from_le_bytes(*id);
    (id != 0).then_some((id, usize::try_from(u32::from_le_bytes(*len)).ok()?))
}
