//! The size of the table with a group's values, in a store that can neither delete nor list:
//! Envoy's.
//!
//! Invariant: the filter that creates the table, and `check`, which reports its size, both use this
//! module. `bucket.rs` defines the meaning of the bytes; nothing here reads or writes any. The
//! memory of the host's own map per bucket is not counted: it belongs to the host and changes with
//! it.

use crate::stored_set::WORD;

/// Bytes before a bucket's first value.
const BUCKET_HEADER: usize = 2;
/// Bytes before each value in a bucket.
const WAY_HEADER: usize = 10;

/// Keys of a bucket with long values, where more keys would cost every request too many bytes.
const FEW_WAYS: usize = 8;
/// Up to this number of bytes per key a bucket has [`TableSize::MAX_WAYS`]: a full bucket then has
/// at most 8 KiB.
const MANY_UP_TO: usize = 512;
/// The least number of places per key of the capacity; the actual number is less than twice this.
const ROOM: u64 = 2;

/// The size of one group's table.
///
/// Keys fall into buckets by chance, so a table with exactly as many places as keys loses some keys
/// while other places stay free. The table below shows the keys that are lost (percent) when the
/// table contains as many keys as its capacity; in brackets, half as many. Columns: keys per
/// bucket. Rows: places per key of the capacity.
///
/// | places | 4 | 8 | 16 | 32 |
/// |---|---|---|---|---|
/// | 1 | 19.5 (3.76) | 14.0 (0.84) | 9.9 (0.08) | 7.0 (0.00) |
/// | 1.5 | 8.0 (1.11) | 3.2 (0.09) | 0.90 (0.00) | 0.13 (0.00) |
/// | 2 | 3.8 (0.43) | 0.84 (0.01) | **0.08 (0.00)** | 0.00 (0.00) |
/// | 3 | 1.1 (0.11) | 0.09 (0.00) | 0.00 (0.00) | 0.00 (0.00) |
///
/// The choice is sixteen keys and two places: a place that is not taken takes no bytes, so the room
/// costs only when a flood fills it, and a bucket of sixteen short values is still read and written
/// at the price of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    ways: usize,
    level: u8,
    bytes_per_key: usize,
}

impl TableSize {
    /// The most keys of a bucket.
    pub const MAX_WAYS: usize = 16;
    /// Bytes of a bucket's name.
    pub const BUCKET_NAME: usize = 13;

    /// For `capacity` keys with values of `value_len` bytes: the number of buckets is a power of
    /// two, so that a table grows by splitting each bucket in half.
    #[must_use]
    pub fn new(capacity: u32, value_len: usize) -> Self {
        let value = value_len.div_ceil(WORD).saturating_mul(WORD);
        let bytes_per_key = value.saturating_add(WAY_HEADER);
        let ways = if bytes_per_key <= MANY_UP_TO { Self::MAX_WAYS } else { FEW_WAYS };
        let places = u64::from(capacity).saturating_mul(ROOM);
        let buckets = places.div_ceil(wide(ways).max(1)).max(1).next_power_of_two();
        let level = u8::try_from(buckets.trailing_zeros()).unwrap_or(u8::MAX);
        Self { ways, level, bytes_per_key }
    }

    /// The most keys of a bucket.
    #[must_use]
    pub const fn ways(&self) -> usize {
        self.ways
    }

    /// The number of buckets, as a power of two: at level 3 there are 8.
    #[must_use]
    pub const fn level(&self) -> u8 {
        self.level
    }

    /// The number of keys that a table of `level` is guaranteed to have been sized for.
    #[must_use]
    pub fn capacity_of(&self, level: u8) -> u64 {
        let places = 1_u64.checked_shl(level.into()).unwrap_or(0).saturating_mul(wide(self.ways));
        places.checked_div(ROOM).unwrap_or(0)
    }

    /// Bytes per key.
    #[must_use]
    pub fn bytes_per_key(&self) -> u64 {
        wide(self.bytes_per_key)
    }

    /// Bytes of the whole table when every place is taken, names included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let values = self.bytes_per_key.saturating_mul(self.ways);
        let bucket = values.saturating_add(Self::BUCKET_NAME).saturating_add(BUCKET_HEADER);
        1_u64.checked_shl(self.level.into()).unwrap_or(0).saturating_mul(wide(bucket))
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_two_to_four_times_the_capacity() {
        for capacity in [4, 5, 8, 9, 1000, 1024, 1025, 65_535, 65_536, 65_537, 100_000, 16_777_216]
        {
            for value_len in [8, 16, 500, 502, 503, 600, 8200] {
                let size = TableSize::new(capacity, value_len);
                let places = size.capacity_of(size.level()) * 2;
                assert!(places >= u64::from(capacity) * 2, "{capacity}: {places}");
                let least = 16 + u64::from(capacity) * 4;
                assert!(places < least, "{capacity}: {places}");
            }
        }
    }

    #[test]
    fn long_values_have_fewer_neighbours() {
        assert_eq!(TableSize::new(65_536, 16).ways(), 16);
        assert_eq!(TableSize::new(65_536, 496).ways(), 16);
        assert_eq!(TableSize::new(65_536, 497).ways(), 8);
    }

    #[test]
    fn sizes() {
        let size = TableSize::new(65_536, 16);
        assert_eq!((size.level(), size.bytes_per_key()), (13, 26));
        assert_eq!(size.bytes(), 8192 * (13 + 2 + 16 * 26));
        assert_eq!(size.capacity_of(13), 65_536);
    }
}
