//! A fixed set-associative table: which way of which bucket holds a key. Pure functions over bytes.
//!
//! The host's store has no delete, no expiry and no listing, so one entry per client would let
//! anybody fill the memory. Here a key's hash names one of a fixed number of buckets, and a bucket
//! holds at most [`WAYS`] keys. Invariant: the table never holds more than `WAYS` x buckets values, and a way is
//! given to another key without loss as long as there is one that is free or idle.
//!
//! A bucket in bytes: the layout's version, then for every way in use the fingerprint (`u64`), the
//! value's length in words of eight bytes (`u16`) and the value; all little-endian. Each way says its own
//! length, so that values of an older policy stay readable beside new ones.
//!
//! Deliberately absent: host calls, and any knowledge of what a value means.

use core::hash::Hasher;
use core::num::NonZeroU64;

use siphasher::sip128::{Hasher128, SipHasher13};
use tollgate_core::Timestamp;

/// Keys a bucket holds. Four make a full bucket rare at half load and cost no more than one: a host
/// call's price hardly depends on the size of the value (facts: 8 B 707 ns, 256 B 724 ns).
pub const WAYS: usize = 4;

/// The version of a bucket's bytes; it is part of the bucket's name, too.
pub const LAYOUT_VERSION: u8 = 1;

/// The longest value of one way, in bytes: what its length field can say.
pub const MAX_VALUE_LEN: usize = 65_535 * WORD;

const WORD: usize = 8;

/// Bytes of a bucket's name: within the 22 that the host's strings hold without allocating.
pub const NAME_LEN: usize = 13;

/// The random key of the hash, agreed by all workers.
pub type Seed = [u8; 16];

/// Where a key belongs: its bucket, and what tells it from the others there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The bucket's number.
    pub bucket: u32,
    /// Never zero. Two keys share 64 random bits once in 10^19 pairs.
    pub fingerprint: NonZeroU64,
}

/// One group's table: its identity and how many buckets it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    identity: u64,
    buckets: u32,
}

impl Table {
    /// The table of the group `group` for `capacity` keys: that many divided by [`WAYS`] buckets, rounded up,
    /// at least one.
    ///
    /// All plugins with one `vm_id` share one map, so `scope`, the plugin's own name, is part of the
    /// identity: policies under different names never meet. It is deliberately not the policy's
    /// content, or else a new version would start from zero.
    pub fn new(scope: &[u8], group: u64, capacity: u32) -> Self {
        let mut hasher = SipHasher13::new_with_key(&Seed::default());
        hasher.write(scope);
        hasher.write_u64(group);
        Self { identity: hasher.finish(), buckets: capacity.div_ceil(4).max(1) }
    }

    /// The place of `key` under `seed`.
    pub fn slot(&self, seed: &Seed, key: &[u8]) -> Slot {
        let mut hasher = SipHasher13::new_with_key(seed);
        hasher.write(key);
        let hash = hasher.finish128();
        let bucket = hash.h1.checked_rem(u64::from(self.buckets)).unwrap_or(0);
        Slot {
            bucket: u32::try_from(bucket).unwrap_or(0),
            fingerprint: NonZeroU64::new(hash.h2).unwrap_or(NonZeroU64::MIN),
        }
    }

    /// The bucket's name in the host's store: version, the table's identity, the bucket's number.
    pub fn name(&self, bucket: u32) -> [u8; NAME_LEN] {
        let mut name = [LAYOUT_VERSION; NAME_LEN];
        let parts = self.identity.to_le_bytes().into_iter().chain(bucket.to_le_bytes());
        for (byte, part) in name.iter_mut().skip(1).zip(parts) {
            *byte = part;
        }
        name
    }
}

/// Bytes that are no bucket of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// What writing to a way would lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: it is the key's own way, a free one or an idle one.
    Nothing,
    /// The live state of another key, the one that would be forgotten first anyway.
    Live,
}

/// A bucket as read: a view of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket<'a> {
    ways: [Option<Way<'a>>; WAYS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way<'a> {
    fingerprint: NonZeroU64,
    value: &'a [u8],
}

impl<'a> Bucket<'a> {
    /// Reads a bucket; no bytes at all are an empty one.
    ///
    /// # Errors
    /// Another version, a length that does not add up, too many ways, or a fingerprint of zero.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let mut bucket = Self::default();
        let Some((version, mut rest)) = bytes.split_first() else { return Ok(bucket) };
        if *version != LAYOUT_VERSION {
            return Err(Corrupt);
        }
        for way in &mut bucket.ways {
            if rest.is_empty() {
                return Ok(bucket);
            }
            let (read, after) = Way::parse(rest).ok_or(Corrupt)?;
            *way = Some(read);
            rest = after;
        }
        if rest.is_empty() { Ok(bucket) } else { Err(Corrupt) }
    }

    /// The value of the key with this fingerprint.
    pub fn find(&self, fingerprint: NonZeroU64) -> Option<&'a [u8]> {
        let mut ways = self.ways.iter().flatten();
        ways.find(|way| way.fingerprint == fingerprint).map(|way| way.value)
    }

    /// Writes into `out` the bucket in which `fingerprint` has `value`, and says what that loses.
    ///
    /// The way is, in this order: the key's own, a free one, one that is idle at `now`, or the least
    /// restrictive live one (the first to become idle): losing it forgives the least.
    pub fn with(
        &self,
        (fingerprint, value): (NonZeroU64, &[u8]),
        now: Timestamp,
        idle_at: impl Fn(&[u8]) -> Timestamp,
        out: &mut Vec<u8>,
    ) -> Loss {
        let (chosen, loss) = self.choose(fingerprint, now, idle_at);
        out.clear();
        out.push(LAYOUT_VERSION);
        for (index, way) in self.ways.iter().enumerate() {
            if index == chosen {
                Way { fingerprint, value }.write(out);
            } else if let Some(way) = way {
                way.write(out);
            }
        }
        loss
    }

    fn choose(
        &self,
        fingerprint: NonZeroU64,
        now: Timestamp,
        idle_at: impl Fn(&[u8]) -> Timestamp,
    ) -> (usize, Loss) {
        let mut own = self.ways.iter();
        if let Some(index) = own.position(|way| way.is_some_and(|w| w.fingerprint == fingerprint)) {
            return (index, Loss::Nothing);
        }
        // A free way counts as idle since ever.
        let idle = |way: &Option<Way<'_>>| way.map_or(Timestamp::ZERO, |way| idle_at(way.value));
        let all = self.ways.iter().map(idle).enumerate();
        let (index, at) = all.min_by_key(|(_, at)| *at).unwrap_or_default();
        (index, if at <= now { Loss::Nothing } else { Loss::Live })
    }
}

impl<'a> Way<'a> {
    fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (fingerprint, rest) = bytes.split_first_chunk::<8>()?;
        let (words, rest) = rest.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_le_bytes(*words)).checked_mul(WORD)?;
        let (value, rest) = rest.split_at_checked(len)?;
        let fingerprint = NonZeroU64::new(u64::from_le_bytes(*fingerprint))?;
        Some((Self { fingerprint, value }, rest))
    }

    /// A value longer than [`MAX_VALUE_LEN`] would be cut; the configuration refuses such a policy.
    fn write(&self, out: &mut Vec<u8>) {
        let words = u16::try_from(self.value.len().div_ceil(WORD)).unwrap_or(u16::MAX);
        let len = usize::from(words).saturating_mul(WORD);
        out.extend_from_slice(&self.fingerprint.get().to_le_bytes());
        out.extend_from_slice(&words.to_le_bytes());
        out.extend(self.value.iter().copied().chain(core::iter::repeat(0)).take(len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // In these tests a value is its own idle time: one word.
    fn idle_at(value: &[u8]) -> Timestamp {
        Timestamp::from_nanos(u64::from_le_bytes(value[..8].try_into().unwrap()))
    }

    fn put(bucket: &[u8], fingerprint: u64, value: &[u8], now: u64) -> (Vec<u8>, Loss) {
        let mut out = vec![];
        let key = (NonZeroU64::new(fingerprint).unwrap(), value);
        let now = Timestamp::from_nanos(now);
        let loss = Bucket::parse(bucket).unwrap().with(key, now, idle_at, &mut out);
        (out, loss)
    }

    fn find(bucket: &[u8], fingerprint: u64) -> Option<&[u8]> {
        Bucket::parse(bucket).unwrap().find(NonZeroU64::new(fingerprint).unwrap())
    }

    fn full() -> Vec<u8> {
        let mut bytes = vec![];
        for (fingerprint, idle) in [(1_u64, 100_u64), (2, 50), (3, 200), (4, 300)] {
            let (next, loss) = put(&bytes, fingerprint, &idle.to_le_bytes(), 10);
            assert_eq!(loss, Loss::Nothing);
            bytes = next;
        }
        bytes
    }

    #[test]
    fn golden_bytes() {
        let (one, _) = put(&[], 0x1122, &7_u64.to_le_bytes(), 0);
        assert_eq!(one, [1, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(full().len(), 1 + WAYS * (8 + 2 + 8));
    }

    #[test]
    fn a_key_keeps_its_way() {
        let (bytes, loss) = put(&full(), 3, &999_u64.to_le_bytes(), 10);
        assert_eq!(loss, Loss::Nothing);
        assert_eq!(find(&bytes, 3), Some(&999_u64.to_le_bytes()[..]));
        for other in [1, 2, 4] {
            assert_eq!(find(&bytes, other), find(&full(), other));
        }
    }

    #[test]
    fn an_idle_way_is_taken_without_loss() {
        let (bytes, loss) = put(&full(), 5, &400_u64.to_le_bytes(), 50);
        assert_eq!((loss, find(&bytes, 2)), (Loss::Nothing, None));
        assert!([1, 3, 4, 5].iter().all(|key| find(&bytes, *key).is_some()));
    }

    #[test]
    fn the_least_restrictive_live_way_is_lost() {
        let (bytes, loss) = put(&full(), 5, &400_u64.to_le_bytes(), 49);
        assert_eq!((loss, find(&bytes, 2)), (Loss::Live, None));
        assert!([1, 3, 4, 5].iter().all(|key| find(&bytes, *key).is_some()));
    }

    #[test]
    fn values_of_several_lengths_live_side_by_side() {
        let (bytes, _) = put(&full(), 1, &[9; 24], 10);
        assert_eq!(find(&bytes, 1), Some(&[9; 24][..]));
        assert_eq!(find(&bytes, 4), Some(&300_u64.to_le_bytes()[..]));
    }

    #[test]
    fn no_bytes_are_an_empty_bucket() {
        assert_eq!(Bucket::parse(&[]), Ok(Bucket::default()));
        assert_eq!(Bucket::parse(&[LAYOUT_VERSION]), Ok(Bucket::default()));
    }

    #[test]
    fn every_cut_and_every_other_version_is_corrupt() {
        let bytes = full();
        for len in 1..bytes.len() {
            let whole_ways = (len - 1) % 18 == 0;
            assert_eq!(Bucket::parse(&bytes[..len]).is_ok(), whole_ways, "cut at {len}");
        }
        for version in (0..=255).filter(|v| *v != LAYOUT_VERSION) {
            let mut other = bytes.clone();
            other[0] = version;
            assert_eq!(Bucket::parse(&other), Err(Corrupt));
        }
        let mut zero = bytes.clone();
        zero[1..9].fill(0);
        assert_eq!(Bucket::parse(&zero), Err(Corrupt));
        let mut five = bytes;
        five.extend_from_within(1..19);
        assert_eq!(Bucket::parse(&five), Err(Corrupt));
    }

    #[test]
    fn a_table_has_a_quarter_as_many_buckets_as_keys() {
        for (capacity, buckets) in [(0, 1), (1, 1), (4, 1), (5, 2), (65_536, 16_384)] {
            assert_eq!(Table::new(b"", 0, capacity).buckets, buckets);
        }
        let last = Table::new(b"", 0, u32::MAX);
        assert_eq!(last.buckets, 1 << 30);
    }

    #[test]
    fn places_depend_on_the_seed_and_fill_the_table() {
        let table = Table::new(b"", 7, 1024);
        let mut used = [0_u32; 256];
        let mut moved = 0;
        for number in 0..10_000_u32 {
            let key = number.to_le_bytes();
            let slot = table.slot(&[1; 16], &key);
            used[usize::try_from(slot.bucket).unwrap()] += 1;
            moved += u32::from(table.slot(&[2; 16], &key).bucket != slot.bucket);
        }
        assert!(used.iter().all(|n| (10..80).contains(n)), "{used:?}");
        assert!(moved > 9_900);
    }

    #[test]
    fn tables_of_other_plugins_and_groups_have_other_names() {
        let name = |scope: &[u8], group| Table::new(scope, group, 64).name(0);
        assert_eq!(name(b"a", 1), name(b"a", 1));
        assert_ne!(name(b"a", 1), name(b"b", 1));
        assert_ne!(name(b"a", 1), name(b"a", 2));
    }

    #[test]
    fn a_name_says_version_group_and_bucket() {
        let table = Table { identity: 0x0807_0605_0403_0201, buckets: 64 };
        let name = table.name(0x0c0b_0a09);
        assert_eq!(name, [LAYOUT_VERSION, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }
}
