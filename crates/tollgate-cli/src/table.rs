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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use tollgate_core::Timestamp;
    use tollgate_envoy::table::{self, Bucket};
    use tollgate_policy::{Policy, Surface};

    use super::*;

    /// A full bucket of the real table has the size that is printed.
    #[test]
    fn the_sizes_are_those_of_the_real_table() {
        for (limit, algorithm) in [(10, "gcra"), (3, "sliding-log"), (7, "sliding-buckets")] {
            let document = format!(
                r#"{{"version": 1, "rules": [{{"name": "r", "key": [], "capacity": 4,
                    "quotas": [{{"limit": {limit}, "window": "1m", "algorithm": "{algorithm}"}}]}}]}}"#
            );
            let policy = Policy::compile(&document, Surface::Envoy).unwrap();
            let group = &policy.groups()[0];
            let value = vec![0; group.value_len()];
            let mut bytes = Vec::new();
            for key in 1..=4 {
                let mut out = Vec::new();
                let way = (NonZeroU64::new(key).unwrap(), &value[..]);
                let bucket = Bucket::parse(&bytes).unwrap();
                bucket.with(way, Timestamp::ZERO, |_| Timestamp::MAX, &mut out);
                bytes = out;
            }
            let full = u64::try_from(bytes.len() + table::NAME_LEN).unwrap();
            assert_eq!(bytes_of_table(group), full, "{algorithm}");
        }
        assert_eq!(u64::try_from(table::WAYS), Ok(WAYS));
        assert_eq!(table::MAX_VALUE_LEN, MAX_VALUE_LEN);
    }
}
