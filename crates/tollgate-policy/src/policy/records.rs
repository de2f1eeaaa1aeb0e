//! The bytes of a stored value: records, one after the other, whatever they are of.
//!
//! A record is a header of 8 bytes (its identity, never 0, then the length of its states, both
//! little-endian `u32`) and the states. Invariant: any bytes are read, up to what is no record.

use alloc::vec::Vec;
use core::iter;

/// The unit in which values are stored, in bytes.
pub const WORD: usize = 8;

/// Bytes before a record's states.
pub(crate) const RECORD_HEADER: usize = 8;

/// True for bytes that a policy stored, this one or an earlier one: at least one record, and whole
/// ones. What is not was never a value, or was damaged, and a surface fails it with
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

/// Identity and states of every record, up to what is none.
pub(crate) fn records(stored: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = stored;
    iter::from_fn(move || {
        let (id, len) = record_header(rest)?;
        let (record, others) = rest.split_at_checked(RECORD_HEADER.checked_add(len)?)?;
        rest = others;
        Some((id, record.get(RECORD_HEADER..)?))
    })
}

/// So many bytes of `stored`, when nothing but the zeros follows that fill its last word.
pub(crate) fn filled(stored: &[u8], len: usize) -> Option<&[u8]> {
    let (value, rest) = stored.split_at_checked(len)?;
    (rest.len() < WORD && rest.iter().all(|byte| *byte == 0)).then_some(value)
}

/// Bytes of a record with these states.
pub(crate) const fn record_len(states: &[u8]) -> usize {
    states.len().saturating_add(RECORD_HEADER)
}

/// Appends what a record begins with: its identity, and the length of its states.
pub(crate) fn write_header(id: u32, len: usize, value: &mut Vec<u8>) {
    value.extend(id.to_le_bytes());
    value.extend(u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

/// Appends a record that nothing was charged to: all zero states.
pub(crate) fn write_zeros(id: u32, len: usize, value: &mut Vec<u8>) {
    write_header(id, len, value);
    value.extend(iter::repeat_n(0, len));
}

/// Identity and length of the record that begins `bytes`; `None` at the end or in zeros.
pub(crate) fn record_header(bytes: &[u8]) -> Option<(u32, usize)> {
    let (id, rest) = bytes.split_first_chunk::<4>()?;
    let (len, _) = rest.split_first_chunk::<4>()?;
    let id = u32::from_le_bytes(*id);
    (id != 0).then_some((id, usize::try_from(u32::from_le_bytes(*len)).ok()?))
}
