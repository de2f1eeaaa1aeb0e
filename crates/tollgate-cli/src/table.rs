//! How much memory a rule's table takes in Envoy.
//!
//! Invariant: the numbers are those of the filter's table, which a test compares to the real one.
//! What Envoy's own map adds to each entry is not counted: it is the host's and changes with it.

use tollgate_policy::Group;

/// Keys in one bucket.
const WAYS: u64 = 4;
/// A bucket's first byte: the version of its layout.
const BUCKET_HEADER: u64 = 1;
/// Before each value: a fingerprint of 8 bytes and a length of 2.
const WAY_HEADER: u64 = 10;
/// The unit in which values are stored.
const WORD: u64 = 8;
/// The bytes of a bucket's name.
const NAME_LEN: u64 = 13;
/// The longest value that a way can hold.
pub(crate) const MAX_VALUE_LEN: usize = 524_280;

/// Bytes that one key takes.
pub(crate) fn bytes_per_key(group: &Group) -> u64 {
    let value = u64::try_from(group.value_len()).unwrap_or(u64::MAX);
    value.div_ceil(WORD).saturating_mul(WORD).saturating_add(WAY_HEADER)
}

/// Bytes of the whole table when every way is taken, names included.
pub(crate) fn bytes_of_table(group: &Group) -> u64 {
    let buckets = u64::from(group.capacity()).div_ceil(WAYS).max(1);
    let bucket = NAME_LEN
        .saturating_add(BUCKET_HEADER)
        .saturating_add(WAYS.saturating_mul(bytes_per_key(group)));
    buckets.saturating_mul(bucket)
}
