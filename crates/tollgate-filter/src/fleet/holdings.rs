//! The units of a fleet's key that the workers of this process hold: read, changed and committed in
//! the shared tables.
//!
//! Invariant: a change is committed over exactly the bytes that it was made on, and the clock was
//! read in the same attempt, after them: nothing is spent of an expired lease. Deliberately absent:
//! the change itself.

use core::num::NonZeroU64;

use tollgate_core::Timestamp;
use tollgate_policy::Failure;
use tollgate_storage::Holdings;
use tollgate_storage::table::{Bucket, Table};

use crate::counts::bucket_lookup;
use crate::counts::commit_stats::CommitStats;
use crate::counts::enforce::MAX_TRIES;
use crate::host::proxy::Proxy;
use crate::host::shared_data::Written;

/// The policy, group and key of holdings. Two policies that are in force at the same time, of two
/// listeners or one before and one after a change, may both have a first group, and the same key in
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldingsKey {
    /// The policy that lease requests contain.
    pub policy: u64,
    /// The group in that policy.
    pub group: usize,
    /// The key's fingerprint.
    pub fingerprint: NonZeroU64,
}

/// The result of one attempt.
pub enum Change<T> {
    /// This result, and the holdings are to be written.
    Write(T),
    /// This result, and the holdings stay unchanged.
    Keep(T),
}

/// Makes `act`'s change of the holdings of the key with this fingerprint, again after every lost
/// race.
///
/// # Errors
/// The host does not respond or has no clock, a bucket was emptied, or every race was lost.
pub fn change<H: Proxy, T>(
    host: &H,
    (table, fingerprint): (&Table, NonZeroU64),
    stats: &mut CommitStats,
    mut act: impl FnMut(&mut Holdings, Timestamp) -> Change<T>,
) -> Result<T, Failure> {
    let (mut value, mut bytes, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..MAX_TRIES {
        let place = bucket_lookup::find(host, table, fingerprint, &mut bytes)?;
        let now = host.now().ok_or(Failure::Unreachable)?;
        let bucket = Bucket::parse(&bytes).map_err(|_| Failure::Corrupt)?;
        let mut holdings = Holdings::decode(bucket.find(fingerprint).unwrap_or_default());
        let done = match act(&mut holdings, now) {
            Change::Keep(done) => return Ok(done),
            Change::Write(done) => done,
        };
        holdings.encode(&mut value);
        let lost =
            bucket.with((fingerprint, &value), table.size().ways(), Holdings::claim, &mut out);
        match host.set_bucket(table, place.bucket, &out, place.cas) {
            Written::Done => {
                stats.evictions = stats.evictions.saturating_add(lost.is_some().into());
                return Ok(done);
            }
            Written::Lost => stats.retries = stats.retries.saturating_add(1),
            Written::Unreachable => return Err(Failure::Unreachable),
        }
    }
    Err(Failure::Contended)
}
