//! The bytes of a stored value: records of any quotas, one after the other.
//!
//! A record is a header of 8 bytes (its identity, never 0, then the length of its states, both
//! little-endian `u32`) and the states.
//!
//! Invariant: any bytes are accepted; reading stops at the first bytes that are not a record.

use alloc::vec::Vec;
use core::iter;

/// The unit in which values are stored, in bytes.
pub use tollgate_storage::WORD;

/// Bytes before a record's states.
pub(crate) const RECORD_HEADER: usize = 8;

/// True for bytes that this policy or an earlier one stored: at least one record, and only whole
/// records. Other bytes were never a value or were damaged, and a surface fails the partition with
/// [`Failure::Corrupt`](crate::Failure::Corrupt).
#[must_use]
pub fn is_value(stored: &[u8]) -> bool {
    let mut rest = stored;
    while let Some((_, len)) = record_header(rest) {
        let Some(after) = len.checked_add(RECORD_HEADER).and_then(|end| rest.get(end..)) else {
            return false;
        };
        rest = after;
    }
    rest.is_empty() && !stored.is_empty()
}

/// Identity and states of every record, up to the first bytes that are not a record.
pub(crate) fn records(stored: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = stored;
    iter::from_fn(move || {
        let (id, len) = record_header(rest)?;
        let (record, others) = rest.split_at_checked(RECORD_HEADER.checked_add(len)?)?;
        rest = others;
        Some((id, record.get(RECORD_HEADER..)?))
    })
}

/// The first `len` bytes of `stored`, when only the zeros that fill its last word follow.
pub(crate) fn filled(stored: &[u8], len: usize) -> Option<&[u8]> {
    let (value, rest) = stored.split_at_checked(len)?;
    (rest.len() < WORD && rest.iter().all(|byte| *byte == 0)).then_some(value)
}

/// Bytes of a record with these states.
pub(crate) const fn record_len(states: &[u8]) -> usize {
    states.len().saturating_add(RECORD_HEADER)
}

/// Appends a record's header: its identity, and the length of its states.
pub(crate) fn write_header(id: u32, len: usize, value: &mut Vec<u8>) {
    value.extend(id.to_le_bytes());
    value.extend(u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

/// Appends a record with nothing charged to it: all states zero.
pub(crate) fn write_zeros(id: u32, len: usize, value: &mut Vec<u8>) {
    write_header(id, len, value);
    value.extend(iter::repeat_n(0, len));
}

/// Identity and length of the record at the start of `bytes`; `None` at the end or in zeros.
pub(crate) fn record_header(bytes: &[u8]) -> Option<(u32, usize)> {
    let (id, rest) = bytes.split_first_chunk::<4>()?;
    let (len, _) = rest.split_first_chunk::<4>()?;
    let id = u32::from_le_bytes(*id);
    (id != 0).then_some((id, usize::try_from(u32::from_le_bytes(*len)).ok()?))
}
