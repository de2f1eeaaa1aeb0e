//! The bucket in which a key's value is read and written while tables grow, found through buckets
//! of several levels.
//!
//! A policy that asks for a larger table must not forget any client, and all workers must agree
//! where a key is, including those that serve an old configuration until its connections are
//! drained. So a table only grows, and every bucket contains its own level. Invariant: at any time
//! exactly one bucket is the one that a key is decided in, for every worker:
//!
//! - A bucket of a higher level than the worker's sends the worker on to the key's bucket of that
//!   level.
//! - An absent upper half is made by the first worker that needs it. It raises the lower half to a
//!   level at which the key is no longer the lower half's own (compare and swap: a worker that
//!   meanwhile decided there has lost the race and reads again). Then it inserts the keys of the
//!   upper half, which no worker changes any more, under the upper half's name (insert if absent),
//!   and only then removes them from the lower half. An absent lower half is inserted raised;
//!   otherwise a slower worker could still insert it with a key that lives elsewhere.
//! - A full bucket is halved, if it can be, before any key has to leave it.
//!
//! In a table that has not grown all of this is one read. Deliberately absent: tables that shrink.
//! The host frees no memory, so there would be nothing to gain.

use core::num::NonZeroU64;

use tollgate_policy::Failure;
use tollgate_storage::table::{Bucket, Corrupt, Table, bucket_of, origin_of};

use crate::host::shared_data::{BucketRead, INSERT, SharedData, Written};

/// How many buckets are read for one key: two for each of 32 levels, or races that are lost.
const MAX_READS: u32 = 64;

/// The bucket that a key is decided in.
pub struct FoundBucket {
    /// Its number.
    pub bucket: u32,
    /// The number under which it may be replaced.
    pub cas: u32,
}

/// Finds the bucket of the key with this fingerprint, halving others on the way if the table has
/// grown. `bytes` are then its bytes; those of an empty bucket when it is absent.
///
/// # Errors
/// The host does not respond; a bucket's bytes are invalid (it was emptied); or too many races were
/// lost.
pub fn find(
    shared: &impl SharedData,
    table: &Table,
    fingerprint: NonZeroU64,
    bytes: &mut Vec<u8>,
) -> Result<FoundBucket, Failure> {
    let mut level = table.extent().level;
    for _ in 0..MAX_READS {
        let number = bucket_of(fingerprint, level);
        match shared.get_bucket(table, number, bytes) {
            BucketRead::Unreachable => return Err(Failure::Unreachable),
            BucketRead::Absent => {
                let halves = Halves { shared, table, level };
                if halves.none_lives_elsewhere(number)? {
                    bytes.clear();
                    bytes.extend_from_slice(&Bucket::empty(level));
                    return Ok(FoundBucket { bucket: number, cas: INSERT });
                }
            }
            BucketRead::Present(cas) => {
                let bucket = parse(shared, table, number, bytes, cas)?;
                level = level.max(bucket.level());
                if bucket_of(fingerprint, level) != number {
                    continue;
                }
                if let Some((upper, since)) = half_to_leave(table, number, level, &bucket) {
                    let halves = Halves { shared, table, level };
                    halves.split(upper, since, number, (bytes, cas))?;
                    continue;
                }
                return Ok(FoundBucket { bucket: number, cas });
            }
        }
    }
    Err(Failure::Contended)
}

/// The bucket that is read first for this key.
pub fn first(table: &Table, fingerprint: NonZeroU64) -> u32 {
    bucket_of(fingerprint, table.extent().level)
}

/// True when the key is decided in the bucket `number`, and nothing is to be done before: [`find`]
/// would find it.
pub fn is_settled(
    table: &Table,
    fingerprint: NonZeroU64,
    number: u32,
    bucket: &Bucket<'_>,
) -> bool {
    let level = table.extent().level.max(bucket.level());
    bucket_of(fingerprint, level) == number && half_to_leave(table, number, level, bucket).is_none()
}

/// The upper half that a full bucket is to be halved by, and the level since which it is one.
fn half_to_leave(table: &Table, number: u32, level: u8, bucket: &Bucket<'_>) -> Option<(u32, u8)> {
    let is_full = bucket.keys() >= table.size().ways();
    if is_full { bucket.upper_half(number, level) } else { None }
}

/// The bucket in `bytes`. Invalid bytes are replaced by an empty bucket, unless another worker was
/// faster.
fn parse<'b>(
    shared: &impl SharedData,
    table: &Table,
    bucket: u32,
    bytes: &'b [u8],
    cas: u32,
) -> Result<Bucket<'b>, Failure> {
    Bucket::parse(bytes).map_err(|Corrupt| {
        let empty = Bucket::empty(table.extent().level);
        let _ = shared.set_bucket(table, bucket, &empty, cas);
        Failure::Corrupt
    })
}

/// Buckets on their way to `level`.
struct Halves<'a, S> {
    shared: &'a S,
    table: &'a Table,
    level: u8,
}

impl<S: SharedData> Halves<'_, S> {
    /// True when no key of the absent `bucket` lives in another one. Otherwise, or when that is not
    /// known yet, this has brought the bucket, or one that it comes from, one step nearer to
    /// existing.
    fn none_lives_elsewhere(&self, bucket: u32) -> Result<bool, Failure> {
        let (mut upper, mut bytes) = (bucket, Vec::new());
        loop {
            let origin = origin_of(upper).filter(|(_, since)| *since > self.table.extent().base);
            let Some((lower, since)) = origin else {
                break; // never half of another: no worker has written there
            };
            match self.shared.get_bucket(self.table, lower, &mut bytes) {
                BucketRead::Unreachable => return Err(Failure::Unreachable),
                BucketRead::Absent => upper = lower,
                BucketRead::Present(cas) => {
                    if !self.split(upper, since, lower, (&bytes, cas))? {
                        return Ok(false);
                    }
                    break;
                }
            }
        }
        if upper == bucket {
            return Ok(true);
        }
        self.set(upper, &Bucket::empty(self.level), INSERT)?;
        Ok(false)
    }

    /// One step towards two halves: raises the lower one, or moves the keys of the upper one. True
    /// when no step remains.
    fn split(
        &self,
        upper: u32,
        since: u8,
        lower: u32,
        (bytes, cas): (&[u8], u32),
    ) -> Result<bool, Failure> {
        let bucket = parse(self.shared, self.table, lower, bytes, cas)?;
        let mut out = Vec::new();
        if bucket.level() < since {
            bucket.raised(self.level, &mut out);
            self.set(lower, &out, cas)?;
            return Ok(false);
        }
        if !bucket.part(self.level, |fingerprint| bucket_of(fingerprint, since) == upper, &mut out)
        {
            return Ok(true);
        }
        // Whichever worker inserts it, it exists afterwards, with these keys: no worker changes
        // them here any more.
        self.set(upper, &out, INSERT)?;
        bucket.part(bucket.level(), |fingerprint| bucket_of(fingerprint, since) != upper, &mut out);
        self.set(lower, &out, cas)?;
        Ok(false)
    }

    /// A lost race is not a failure: another worker took a step, and the bucket is read again.
    fn set(&self, bucket: u32, bytes: &[u8], cas: u32) -> Result<(), Failure> {
        match self.shared.set_bucket(self.table, bucket, bytes, cas) {
            Written::Done | Written::Lost => Ok(()),
            Written::Unreachable => Err(Failure::Unreachable),
        }
    }
}
