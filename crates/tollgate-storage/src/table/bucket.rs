//! A growing set-associative table: which bucket contains a key, and which key must leave a full
//! one. Pure functions over bytes.
//!
//! The host's store has no delete, no expiry and no listing, so one entry per client would let any
//! client fill the memory. Here a key's hash names one of 2^level buckets, and a bucket contains at
//! most [`TableSize::ways`] keys; the reason for that number is there. Invariant: the table never
//! contains more than `ways` x buckets values, and while a bucket has a free or an idle way nothing
//! is lost. A full bucket gives up the least claim. The caller determines claims, and the keyed
//! hash, which no client can choose, breaks ties.
//!
//! A bucket in bytes: the layout's version, the bucket's level, then for every way in use the
//! fingerprint (`u64`), the value's length in words of eight bytes (`u16`) and the value; all
//! little-endian. Each way contains its own length, so that values of an older policy stay readable
//! next to new ones.
//!
//! A key's bucket is the lowest `level` bits of its fingerprint, so a bucket can be halved without
//! knowing any key: bucket `b` of level `l` becomes `b` and `b + 2^l` of level `l + 1`. The
//! filter's `bucket_lookup.rs` does that, one bucket at a time and exactly, when a policy asks for
//! a larger table.
//!
//! Deliberately absent: host calls, and any knowledge of a value's meaning.

use alloc::vec::Vec;
use core::hash::Hasher;
use core::num::NonZeroU64;
use core::ops::Range;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::size::TableSize;
use crate::stored_set::WORD;

/// The version of a bucket's bytes; it is part of the bucket's name, too. Version 1 (four ways, a
/// number of buckets from the capacity, no level) is not read; the log reports it.
pub const LAYOUT_VERSION: u8 = 2;

/// The highest level that is read: more buckets would exceed the range of their numbers.
const MAX_LEVEL: u8 = 31;

/// The random key of the hash, agreed by all workers.
pub type Seed = [u8; 16];

/// One group's table: its identity, how many buckets it has, and how many keys one of them holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    identity: u64,
    size: TableSize,
    extent: Extent,
}

/// The number of a table's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The lowest level that any worker ever used: a bucket below 2^base was never half of another.
    pub base: u8,
    /// There are 2^level buckets.
    pub level: u8,
}

/// A key that is too long to be kept: without the seed no client finds another one with the same
/// digest.
pub fn digest(seed: &Seed, key: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_key(seed);
    hasher.write(key);
    hasher.finish128().as_bytes()
}

impl Table {
    /// The table of the group `group`, as large as its policy asks for.
    ///
    /// All plugins with one `vm_id` share one map, so `scope`, the plugin's own name, is part of
    /// the identity: policies under different names never meet. It is deliberately not the policy's
    /// content, or else a new version would start from zero.
    pub fn new(scope: &[u8], group: u64, size: TableSize) -> Self {
        let mut hasher = SipHasher13::new_with_key(&Seed::default());
        hasher.write(scope);
        hasher.write_u64(group);
        let level = size.level().min(MAX_LEVEL);
        Self { identity: hasher.finish(), size, extent: Extent { base: level, level } }
    }

    /// The same table with its real extent: it may have been larger before, or have grown since.
    pub const fn reaching(mut self, extent: Extent) -> Self {
        self.extent = extent;
        self
    }

    /// The same for all versions of a policy, and no other table's: a hash of scope and group.
    pub const fn identity(&self) -> u64 {
        self.identity
    }

    /// The size that the policy asks for.
    pub const fn size(&self) -> TableSize {
        self.size
    }

    /// Its extent.
    pub const fn extent(&self) -> Extent {
        self.extent
    }

    /// The fingerprint of `key`, under `seed`. Two keys share 64 random bits once in 10^19 pairs.
    pub fn fingerprint(seed: &Seed, key: &[u8]) -> NonZeroU64 {
        let mut hasher = SipHasher13::new_with_key(seed);
        hasher.write(key);
        NonZeroU64::new(hasher.finish128().h2).unwrap_or(NonZeroU64::MIN)
    }

    /// The bucket's name in the host's store: version, the table's identity, the bucket's number.
    pub fn name(&self, bucket: u32) -> [u8; TableSize::BUCKET_NAME] {
        let mut name = [LAYOUT_VERSION; TableSize::BUCKET_NAME];
        let parts = self.identity.to_le_bytes().into_iter().chain(bucket.to_le_bytes());
        for (byte, part) in name.iter_mut().skip(1).zip(parts) {
            *byte = part;
        }
        name
    }

    /// The name of the value that contains the table's extent.
    pub fn extent_name(&self) -> [u8; 9] {
        let mut name = [LAYOUT_VERSION; 9];
        for (byte, part) in name.iter_mut().skip(1).zip(self.identity.to_le_bytes()) {
            *byte = part;
        }
        name
    }

    /// The name of the value that contains the quotas that the table's values may be of. No other
    /// name of ours has this length.
    pub fn directory_name(&self) -> [u8; 10] {
        let mut name = [b'q'; 10];
        for (byte, part) in name.iter_mut().zip(self.extent_name()) {
            *byte = part;
        }
        name
    }

    /// The name of a value that is written, without any bytes, whenever a charge was taken back:
    /// its number shows whether one was. No other name of ours has this length.
    pub fn refunds_name(&self) -> [u8; 11] {
        let mut name = [b'r'; 11];
        for (byte, part) in name.iter_mut().zip(self.extent_name()) {
            *byte = part;
        }
        name
    }
}

impl Extent {
    /// Reads what [`Extent::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [LAYOUT_VERSION, base, level] if base <= level && level <= MAX_LEVEL => {
                Some(Self { base, level })
            }
            _ => None,
        }
    }

    /// The bytes that contain it.
    pub const fn to_bytes(self) -> [u8; 3] {
        [LAYOUT_VERSION, self.base, self.level]
    }
}

/// The bucket of a key in a table of this level.
pub fn bucket_of(fingerprint: NonZeroU64, level: u8) -> u32 {
    let buckets = 1_u64.checked_shl(level.into()).unwrap_or(u64::MAX);
    u32::try_from(fingerprint.get() & buckets.saturating_sub(1)).unwrap_or(u32::MAX)
}

/// The bucket that `bucket` is the upper half of, and the level from which on it is; `None` for the
/// first.
pub fn origin_of(bucket: u32) -> Option<(u32, u8)> {
    let top = bucket.checked_ilog2()?;
    let lower = bucket ^ 1_u32.checked_shl(top)?;
    Some((lower, u8::try_from(top.checked_add(1)?).ok()?))
}

/// Bytes that are not a bucket of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// A bucket as read: a view of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket<'a> {
    level: u8,
    keys: usize,
    ways: Ways<'a>,
}

/// The ways that are not read yet, all of them whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ways<'a>(&'a [u8]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way<'a> {
    fingerprint: NonZeroU64,
    value: &'a [u8],
}

impl<'a> Bucket<'a> {
    /// Reads a bucket.
    ///
    /// # Errors
    /// Another version, an impossible level, a length that does not add up, too many ways, or a
    /// fingerprint of zero.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let [LAYOUT_VERSION, level, ways @ ..] = bytes else { return Err(Corrupt) };
        let (mut rest, mut keys) = (ways, 0);
        while !rest.is_empty() {
            (_, rest) = Way::parse(rest).ok_or(Corrupt)?;
            keys = usize::saturating_add(keys, 1);
        }
        if keys > TableSize::MAX_WAYS || *level > MAX_LEVEL {
            return Err(Corrupt);
        }
        Ok(Self { level: *level, keys, ways: Ways(ways) })
    }

    /// The bytes of a bucket without keys.
    pub const fn empty(level: u8) -> [u8; 2] {
        [LAYOUT_VERSION, level]
    }

    /// Keys that belong to another bucket since this level do not belong to this one.
    pub const fn level(&self) -> u8 {
        self.level
    }

    /// The keys in it.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// The value of the key with this fingerprint.
    pub fn find(&self, fingerprint: NonZeroU64) -> Option<&'a [u8]> {
        let mut ways = self.ways;
        ways.find(|way| way.fingerprint == fingerprint).map(|way| way.value)
    }

    /// Writes the bucket to `out` with this key's value in it, and returns the lost claim: the
    /// least claim of a full bucket's other keys, if none was idle. `claim` is `None` for an idle
    /// value.
    ///
    /// A bucket that already holds more than `ways` keys keeps that many.
    pub fn with<C: Ord>(
        &self,
        (fingerprint, value): (NonZeroU64, &[u8]),
        ways: usize,
        claim: impl Fn(&[u8]) -> Option<C>,
        out: &mut Vec<u8>,
    ) -> Option<C> {
        let there = self.place(fingerprint);
        let (place, lost) = if there.is_empty() && self.keys >= ways {
            let claims = self.ways.map(|way| (claim(way.value), way.fingerprint));
            // Idle ways are `None`, which is less than any claim.
            let least = claims.min();
            least.map_or((there, None), |(lost, leaves)| (self.place(leaves), lost))
        } else {
            (there, None)
        };
        out.clear();
        out.extend_from_slice(&Self::empty(self.level));
        out.extend_from_slice(self.ways.0.get(..place.start).unwrap_or_default());
        Way { fingerprint, value }.write(out);
        out.extend_from_slice(self.ways.0.get(place.end..).unwrap_or_default());
        lost
    }

    /// The position of the way with this fingerprint in the bytes of all ways; nothing at their end
    /// if there is none.
    fn place(&self, fingerprint: NonZeroU64) -> Range<usize> {
        let all = self.ways.0.len();
        let mut ways = self.ways;
        let mut start = 0;
        while let Some(way) = ways.next() {
            let end = all.saturating_sub(ways.0.len());
            if way.fingerprint == fingerprint {
                return start..end;
            }
            start = end;
        }
        all..all
    }

    /// The upper half of this bucket, which has the number `bucket`, that one of its keys belongs
    /// to at `level`, and the level from which on it does.
    pub fn upper_half(&self, bucket: u32, level: u8) -> Option<(u32, u8)> {
        let mut ways = self.ways;
        let leaving = ways.find(|way| bucket_of(way.fingerprint, level) != bucket)?.fingerprint;
        let mut halves = (1..=level).map(|since| (bucket_of(leaving, since), since));
        halves.find(|(upper, _)| *upper > bucket)
    }

    /// Writes the bucket to `out` as one of `level`: keys that have another bucket there are only
    /// kept.
    pub fn raised(&self, level: u8, out: &mut Vec<u8>) {
        self.part(level, |_| true, out);
    }

    /// Writes a bucket of `level` to `out` with those of the keys that are `wanted`; true when
    /// there are any.
    pub fn part(&self, level: u8, wanted: impl Fn(NonZeroU64) -> bool, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.extend_from_slice(&Self::empty(level));
        let chosen = self.ways.filter(|way| wanted(way.fingerprint));
        chosen.map(|way| way.write(out)).count() > 0
    }
}

impl<'a> Iterator for Ways<'a> {
    type Item = Way<'a>;

    fn next(&mut self) -> Option<Way<'a>> {
        let (way, rest) = Way::parse(self.0)?;
        self.0 = rest;
        Some(way)
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

    /// A value of more than 65,535 words would be cut; the configuration rejects a policy with such
    /// values.
    fn write(&self, out: &mut Vec<u8>) {
        let words = u16::try_from(self.value.len().div_ceil(WORD)).unwrap_or(u16::MAX);
        let len = usize::from(words).saturating_mul(WORD);
        let value = self.value.get(..len).unwrap_or(self.value);
        out.extend_from_slice(&self.fingerprint.get().to_le_bytes());
        out.extend_from_slice(&words.to_le_bytes());
        out.extend_from_slice(value);
        out.resize(out.len().saturating_add(len.saturating_sub(value.len())), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const WAYS: usize = 4;

    // In these tests a value is its own claim: one word, idle at 0.
    fn claim(value: &[u8]) -> Option<u64> {
        let claim = u64::from_le_bytes(value[..8].try_into().unwrap());
        (claim > 0).then_some(claim)
    }

    fn put(bucket: &[u8], fingerprint: u64, value: &[u8]) -> (Vec<u8>, Option<u64>) {
        let mut out = vec![];
        let key = (NonZeroU64::new(fingerprint).unwrap(), value);
        let lost = Bucket::parse(bucket).unwrap().with(key, WAYS, claim, &mut out);
        (out, lost)
    }

    fn find(bucket: &[u8], fingerprint: u64) -> Option<&[u8]> {
        Bucket::parse(bucket).unwrap().find(NonZeroU64::new(fingerprint).unwrap())
    }

    fn filled(claims: [u64; WAYS]) -> Vec<u8> {
        let mut bytes = Bucket::empty(0).to_vec();
        for (fingerprint, claim) in (1..).zip(claims) {
            let (next, lost) = put(&bytes, fingerprint, &claim.to_le_bytes());
            assert_eq!(lost, None);
            bytes = next;
        }
        bytes
    }

    fn full() -> Vec<u8> {
        filled([100, 50, 200, 300])
    }

    fn keys(bytes: &[u8]) -> Vec<u64> {
        (1..10).filter(|key| find(bytes, *key).is_some()).collect()
    }

    #[test]
    fn golden_bytes() {
        let (one, _) = put(&Bucket::empty(3), 0x1122, &7_u64.to_le_bytes());
        assert_eq!(one, [2, 3, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(full().len(), 2 + WAYS * (8 + 2 + 8));
    }

    #[test]
    fn a_key_keeps_its_way() {
        let (bytes, lost) = put(&full(), 3, &999_u64.to_le_bytes());
        assert_eq!((lost, Bucket::parse(&bytes).unwrap().keys()), (None, WAYS));
        assert_eq!(find(&bytes, 3), Some(&999_u64.to_le_bytes()[..]));
        for other in [1, 2, 4] {
            assert_eq!(find(&bytes, other), find(&full(), other));
        }
    }

    #[test]
    fn an_idle_way_is_taken_without_loss() {
        let (bytes, lost) = put(&filled([100, 50, 0, 300]), 5, &1_u64.to_le_bytes());
        assert_eq!((lost, keys(&bytes)), (None, vec![1, 2, 4, 5]));
    }

    #[test]
    fn the_least_claim_is_lost() {
        let (bytes, lost) = put(&full(), 5, &1_u64.to_le_bytes());
        assert_eq!((lost, keys(&bytes)), (Some(50), vec![1, 3, 4, 5]));
    }

    // A client that sends keys does not know the hash's key, so no order of sending decides which
    // keys leave.
    #[test]
    fn equal_claims_leave_by_their_fingerprints() {
        for order in [[4, 2, 9, 3], [2, 3, 4, 9], [9, 4, 3, 2]] {
            let mut bytes = Bucket::empty(0).to_vec();
            for key in order {
                (bytes, _) = put(&bytes, key, &7_u64.to_le_bytes());
            }
            let (bytes, lost) = put(&bytes, 1, &7_u64.to_le_bytes());
            assert_eq!((lost, keys(&bytes)), (Some(7), vec![1, 3, 4, 9]), "{order:?}");
        }
    }

    // A policy with longer values has fewer keys in a bucket; existing keys stay.
    #[test]
    fn a_bucket_with_more_keys_than_now_keeps_them() {
        let mut out = vec![];
        let key = (NonZeroU64::new(5).unwrap(), &[1, 0, 0, 0, 0, 0, 0, 0][..]);
        let lost = Bucket::parse(&full()).unwrap().with(key, 2, claim, &mut out);
        assert_eq!((lost, keys(&out)), (Some(50), vec![1, 3, 4, 5]));
    }

    #[test]
    fn values_of_several_lengths_live_side_by_side() {
        let (bytes, _) = put(&full(), 1, &[9; 24]);
        assert_eq!(find(&bytes, 1), Some(&[9; 24][..]));
        assert_eq!(find(&bytes, 4), Some(&300_u64.to_le_bytes()[..]));
        let (bytes, _) = put(&bytes, 1, &[9; 12]);
        assert_eq!(find(&bytes, 1), Some(&[9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0][..]));
    }

    #[test]
    fn every_cut_and_every_other_version_is_corrupt() {
        let bytes = full();
        for len in 0..bytes.len() {
            let whole_ways = len >= 2 && (len - 2) % 18 == 0;
            assert_eq!(Bucket::parse(&bytes[..len]).is_ok(), whole_ways, "cut at {len}");
        }
        for version in (0..=255).filter(|v| *v != LAYOUT_VERSION) {
            let mut other = bytes.clone();
            other[0] = version;
            assert_eq!(Bucket::parse(&other), Err(Corrupt));
        }
        for level in 0..=255 {
            let mut other = bytes.clone();
            other[1] = level;
            assert_eq!(Bucket::parse(&other).is_ok(), level <= MAX_LEVEL);
        }
        let mut zero = bytes.clone();
        zero[2..10].fill(0);
        assert_eq!(Bucket::parse(&zero), Err(Corrupt));
        let mut many = bytes;
        while many.len() < 2 + TableSize::MAX_WAYS * 18 {
            many.extend_from_within(2..20);
        }
        assert!(Bucket::parse(&many).is_ok());
        many.extend_from_within(2..20);
        assert_eq!(Bucket::parse(&many), Err(Corrupt));
    }

    #[test]
    fn a_bucket_is_halved_by_its_keys_alone() {
        let bytes = full(); // keys 1 to 4 of bucket 0 at level 0
        let bucket = Bucket::parse(&bytes).unwrap();
        let of = |number| move |key| bucket_of(key, 1) == number;
        let mut halves = [vec![], vec![]];
        for (number, half) in (0..).zip(&mut halves) {
            assert!(bucket.part(1, of(number), half));
        }
        assert_eq!(halves.map(|half| keys(&half)), [vec![2, 4], vec![1, 3]]);
        assert_eq!(bucket.upper_half(0, 0), None);
        assert_eq!(bucket.upper_half(0, 2), Some((1, 1)));
        let mut raised = vec![];
        bucket.raised(7, &mut raised);
        assert_eq!((raised[1], &raised[2..]), (7, &bytes[2..]));
    }

    #[test]
    fn every_bucket_but_the_first_is_the_upper_half_of_one_below() {
        assert_eq!(origin_of(0), None);
        for (bucket, origin) in [(1, (0, 1)), (2, (0, 2)), (3, (1, 2)), (6, (2, 3)), (12, (4, 4))] {
            assert_eq!(origin_of(bucket), Some(origin));
        }
        for bucket in 1..5000 {
            let (lower, since) = origin_of(bucket).unwrap();
            let key = NonZeroU64::new(u64::from(bucket)).unwrap();
            assert_eq!((bucket_of(key, since), bucket_of(key, since - 1)), (bucket, lower));
        }
    }

    #[test]
    fn places_depend_on_the_seed_and_fill_the_table() {
        let mut used = [0_u32; 256];
        let mut moved = 0;
        for number in 0..10_000_u32 {
            let key = number.to_le_bytes();
            let bucket = |seed| bucket_of(Table::fingerprint(&seed, &key), 8);
            used[usize::try_from(bucket([1; 16])).unwrap()] += 1;
            moved += u32::from(bucket([1; 16]) != bucket([2; 16]));
        }
        assert!(used.iter().all(|n| (10..80).contains(n)), "{used:?}");
        assert!(moved > 9_900);
    }

    #[test]
    fn tables_of_other_plugins_and_groups_have_other_names() {
        let table = |scope: &[u8], group| Table::new(scope, group, TableSize::new(64, 8));
        let name = |scope: &[u8], group| table(scope, group).name(0);
        assert_eq!(name(b"a", 1), name(b"a", 1));
        assert_ne!(name(b"a", 1), name(b"b", 1));
        assert_ne!(name(b"a", 1), name(b"a", 2));
        assert_ne!(table(b"a", 1).extent_name(), table(b"a", 2).extent_name());
    }

    #[test]
    fn a_name_says_version_group_and_bucket() {
        let mut table = Table::new(b"", 0, TableSize::new(64, 8));
        table.identity = 0x0807_0605_0403_0201;
        let name = table.name(0x0c0b_0a09);
        assert_eq!(name, [LAYOUT_VERSION, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(table.extent_name(), name[..9]);
    }

    #[test]
    fn an_extent_is_read_as_written() {
        let extent = Extent { base: 3, level: 7 };
        assert_eq!(Extent::from_bytes(&extent.to_bytes()), Some(extent));
        for bytes in [&[][..], &[2, 3], &[2, 3, 7, 0], &[1, 3, 7], &[2, 7, 3], &[2, 3, 32]] {
            assert_eq!(Extent::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
