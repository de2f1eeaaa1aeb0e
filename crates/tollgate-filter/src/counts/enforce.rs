//! One request against the shared tables: load, decide, commit, and take back charges that cannot
//! remain.
//!
//! Invariant: a value is only ever written over exactly the bytes it was decided on (compare and
//! swap, or insert if absent), so any number of workers together allow as many requests as one
//! would. Every loop is bounded, and after the bound the rule's `on_failure` applies.
//!
//! Deliberately absent: any decision; those are the policy's. Host calls are absent, too:
//! [`SharedData`] represents them.

use tollgate_core::Timestamp;
use tollgate_policy::{Disposition, Failure, Now, Partition, Plan};
use tollgate_storage::table::{Bucket, Seed, Table};

use crate::config::Config;
use crate::counts::bucket_lookup;
use crate::counts::commit_stats::CommitStats;
use crate::counts::scratch::{Read, Scratch};
use crate::host::shared_data::{INSERT, SharedData, Written};

/// How often a commit is tried: 32 losses in a row need 32 other commits to the same bucket within
/// some microseconds each; measured with four workers on one key, one in two hundred is lost once.
pub const MAX_TRIES: u32 = 32;

/// One request's work on the tables.
pub struct Enforcement<'a, S> {
    /// The host's map.
    pub shared: &'a S,
    /// The hash's key.
    pub seed: &'a Seed,
    /// The policy in force and its tables.
    pub config: &'a Config,
    /// The rules that apply to this request.
    pub plan: &'a mut Plan,
    /// Reused for every request.
    pub scratch: &'a mut Scratch,
    /// Read once for the request.
    pub now: Now,
}

/// The final result of a commit.
enum Commit {
    Done,
    /// Decided again after a lost race, and denied now.
    Denied,
    Failed(Failure),
}

impl<S: SharedData> Enforcement<'_, S> {
    /// Decides and commits; afterwards `plan.outcome()` is the result.
    pub fn run(&mut self) -> CommitStats {
        let mut stats = CommitStats::default();
        self.locate();
        let since = self.refund_version();
        if self.is_denied_from_cache(since) {
            stats.remembered = 1;
            return stats;
        }
        self.decide(&mut stats);
        self.remember_denial(since);
        for index in 0..self.plan.len() {
            if self.commit_one(index, &mut stats) {
                self.refund_committed(&mut stats);
                self.remember_denial(since);
                break;
            }
        }
        stats
    }

    /// Decides and commits partition `index` alone; the others are unchanged.
    pub fn run_one(&mut self, index: usize) -> CommitStats {
        let mut stats = CommitStats::default();
        self.locate();
        if let Err(failure) = self.load(index) {
            self.fail(index, failure, &mut stats);
        }
        let now = self.now_of(index);
        if let Some(mut partition) = self.plan.partition_mut(index) {
            partition.redecide(&self.config.policy, now);
        }
        self.commit_one(index, &mut stats);
        stats
    }

    /// Commits a partition that was decided; true when that denies the request.
    fn commit_one(&mut self, index: usize, stats: &mut CommitStats) -> bool {
        if !self.is_local(index) {
            return false;
        }
        if self.is(index, |partition| partition.is_only_punished()) {
            self.keep_penalties(index, stats);
            return false;
        }
        if !self.is_changed(index) {
            self.keep_carried(index, stats);
            return false;
        }
        match self.commit(index, stats) {
            Commit::Done => false,
            Commit::Denied => true,
            Commit::Failed(failure) => {
                self.fail(index, failure, stats);
                matches!(self.disposition(), Disposition::Deny { .. } | Disposition::Retry(_))
            }
        }
    }

    /// Decides. With a single key, it decides on the bytes that this worker wrote last: only a
    /// write proves them, so a decision that leads to no write, as a denial, is read and decided
    /// again. With several keys, one might be proved before another, and the request decided on
    /// values that never existed together.
    fn decide(&mut self, stats: &mut CommitStats) {
        if self.plan.len() == 1 && self.is_local(0) && self.use_prediction() {
            self.plan.decide(&self.config.policy, self.now);
            if self.is(0, |partition| partition.changed() && !partition.is_only_punished()) {
                return;
            }
        }
        self.load_all(stats);
        self.plan.decide(&self.config.policy, self.now);
    }

    fn load_all(&mut self, stats: &mut CommitStats) {
        for index in 0..self.plan.len() {
            if self.is_local(index)
                && let Err(failure) = self.load(index)
            {
                self.fail(index, failure, stats);
            }
        }
    }

    /// False where an authority counts for the fleet.
    fn is_local(&self, index: usize) -> bool {
        !self.config.has_fleet || self.is(index, |it| !it.is_fleet(&self.config.policy))
    }

    /// Charges the costs that a settled plan ([`Plan::settle`]) still owes, and returns the units
    /// that it held.
    pub fn charge(&mut self) -> CommitStats {
        let mut stats = CommitStats::default();
        self.locate();
        for index in 0..self.plan.len() {
            if self.is(index, |partition| partition.applies())
                && let Err(failure) = self.load(index)
            {
                self.fail(index, failure, &mut stats);
            }
        }
        self.plan.decide(&self.config.policy, self.now);
        for index in 0..self.plan.len() {
            if self.is(index, |partition| partition.applies() && partition.changed()) {
                // Costs that are used up by now, or cannot be written, are not charged: no client
                // waits for the result.
                if let Commit::Failed(failure) = self.commit(index, &mut stats) {
                    self.fail(index, failure, &mut stats);
                }
            }
        }
        stats
    }

    /// Loads every partition and charges none; `act` then gets the decision without the charge.
    pub fn look(&mut self, act: impl FnOnce(&mut Plan, &Config, Now)) -> CommitStats {
        let mut stats = CommitStats::default();
        self.locate();
        self.load_all(&mut stats);
        act(self.plan, self.config, self.now);
        for index in 0..self.plan.len() {
            self.keep_penalties(index, &mut stats);
        }
        stats
    }

    /// Takes back an earlier charge of a request that does not continue after all; false when the
    /// place that it waits for stays taken.
    pub fn take_back(&mut self, stats: &mut CommitStats) -> bool {
        let mut is_free = true;
        self.locate();
        for index in 0..self.plan.len() {
            if self.is_local(index) && self.is(index, |partition| partition.is_charged()) {
                is_free &= self.refund(index, stats);
            }
        }
        is_free
    }

    /// Takes back every charge of a request that is denied after all. A charge that was not
    /// committed yet is taken back in the plan alone; otherwise it would be taken out of other
    /// requests' charges when the request is denied later.
    pub fn refund_committed(&mut self, stats: &mut CommitStats) {
        for index in 0..self.plan.len() {
            if self.read(index).is_some_and(|read| read.committed) {
                self.refund(index, stats);
            } else if self.is_changed(index) {
                let now = self.now_of(index);
                let Some(mut partition) = self.plan.partition_mut(index) else { continue };
                partition.refund(&self.config.policy, now);
                partition.refunded(&self.config.policy, now);
            }
        }
    }

    /// The time for the counts of partition `index`.
    pub(crate) fn now_of(&self, index: usize) -> Timestamp {
        let group = self.plan.partition(index).map(|partition| partition.group());
        group.map_or(self.now.clock(), |group| self.now.of(&self.config.policy, group))
    }

    fn disposition(&self) -> Disposition {
        self.plan.outcome(&self.config.policy).disposition()
    }

    fn fail(&mut self, index: usize, failure: Failure, stats: &mut CommitStats) {
        stats.failures = stats.failures.saturating_add(1);
        if let Some(mut partition) = self.plan.partition_mut(index) {
            partition.fail(failure);
        }
    }

    pub(crate) fn read(&self, index: usize) -> Option<&Read> {
        self.scratch.reads.get(index)
    }

    /// True when partition `index` exists and `says` accepts it.
    pub(crate) fn is(&self, index: usize, says: impl FnOnce(Partition<'_>) -> bool) -> bool {
        self.plan.partition(index).is_some_and(says)
    }

    pub(crate) fn is_changed(&self, index: usize) -> bool {
        self.is(index, |partition| partition.changed())
    }

    /// Notes each partition's key in the tables; nothing is read yet.
    fn locate(&mut self) {
        self.scratch.reads.resize_with(self.plan.len(), Read::default);
        for partition in self.plan.partitions() {
            if let Some(read) = self.scratch.reads.get_mut(partition.index()) {
                read.fingerprint = Some(Table::fingerprint(self.seed, partition.key()));
                (read.is_predicted, read.committed) = (false, false);
                read.bytes.clear(); // until it is read, nothing can be written
            }
        }
    }

    /// Hands the value of the only key to the plan as this worker wrote it last; false when it is
    /// unknown, or has to be read for another reason.
    fn use_prediction(&mut self) -> bool {
        let Some(mut partition) = self.plan.partition_mut(0) else { return false };
        let group = partition.group();
        let Some(table) = self.config.tables.get(group) else { return false };
        let Some(read) = self.scratch.reads.first_mut() else { return false };
        let Some(fingerprint) = read.fingerprint else { return false };
        let number = bucket_lookup::first(table, fingerprint);
        let Some(predictions) = &mut self.scratch.predictions else { return false };
        let written = predictions.take(group, number, self.now.clock());
        let Some((bytes, cas)) = written else { return false };
        (read.bucket, read.bytes, read.cas) = (number, bytes, cas);
        let Ok(bucket) = Bucket::parse(&read.bytes) else { return false };
        read.is_predicted = bucket_lookup::is_settled(table, fingerprint, number, &bucket)
            && partition.load_own(&self.config.policy, bucket.find(fingerprint));
        read.is_predicted
    }

    /// Reads the partition's bucket and hands its value to the plan.
    pub(crate) fn load(&mut self, index: usize) -> Result<(), Failure> {
        let mut partition = self.plan.partition_mut(index).ok_or(Failure::Unreachable)?;
        let table = self.config.tables.get(partition.group());
        let table = table.ok_or(Failure::Unreachable)?;
        let read = self.scratch.reads.get_mut(index).ok_or(Failure::Unreachable)?;
        let fingerprint = read.fingerprint.ok_or(Failure::Unreachable)?;
        let found = bucket_lookup::find(self.shared, table, fingerprint, &mut read.bytes)
            .inspect_err(|_| read.bytes.clear())?;
        (read.bucket, read.cas) = (found.bucket, found.cas);
        read.is_predicted = false;
        if read.cas != INSERT
            && let Some(predictions) = &mut self.scratch.predictions
        {
            predictions.record_read(partition.group(), read.bucket, read.cas, self.now.clock());
        }
        let bucket = Bucket::parse(&read.bytes).map_err(|_| Failure::Corrupt)?;
        let (policy, value) = (&self.config.policy, bucket.find(fingerprint));
        if !partition.load_own(policy, value) {
            let known = self.config.directories.refresh(self.shared, partition.group(), table);
            let now = self.now.of(policy, partition.group());
            partition.load_with(policy, &known, value.unwrap_or_default(), now);
        }
        Ok(())
    }

    /// Writes the plan's value, and decides again after every lost race.
    fn commit(&mut self, index: usize, stats: &mut CommitStats) -> Commit {
        for _ in 0..MAX_TRIES {
            let is_predicted = self.read(index).is_some_and(|read| read.is_predicted);
            match self.write(index, stats) {
                Written::Done => return Commit::Done,
                Written::Unreachable => return Commit::Failed(Failure::Unreachable),
                Written::Lost if is_predicted => {}
                Written::Lost => stats.retries = stats.retries.saturating_add(1),
            }
            if let Err(failure) = self.load(index) {
                return Commit::Failed(failure);
            }
            let now = self.now_of(index);
            let Some(mut partition) = self.plan.partition_mut(index) else { break };
            if !partition.redecide(&self.config.policy, now) {
                self.keep_penalties(index, stats);
                return Commit::Denied;
            }
            if !self.is_changed(index) {
                return Commit::Done;
            }
        }
        Commit::Failed(Failure::Contended)
    }

    /// Takes one committed charge back; false when a place in it stays taken, or all of it. That
    /// happens after too many lost races; it is too strict for this client and never too lax.
    fn refund(&mut self, index: usize, stats: &mut CommitStats) -> bool {
        for _ in 0..MAX_TRIES {
            if self.load(index).is_err() {
                break;
            }
            let now = self.now_of(index);
            let Some(mut partition) = self.plan.partition_mut(index) else { break };
            let is_free = partition.refund(&self.config.policy, now);
            match self.write(index, stats) {
                Written::Done => {
                    self.set_committed(index, false);
                    self.record_refund(index);
                    if let Some(mut partition) = self.plan.partition_mut(index) {
                        partition.refunded(&self.config.policy, now);
                    }
                    return is_free;
                }
                Written::Unreachable => break,
                Written::Lost => stats.retries = stats.retries.saturating_add(1),
            }
        }
        stats.failures = stats.failures.saturating_add(1);
        false
    }

    /// One conditional write of the bucket that contains the plan's value.
    pub(crate) fn write(&mut self, index: usize, stats: &mut CommitStats) -> Written {
        let Some(partition) = self.plan.partition(index) else { return Written::Unreachable };
        let policy = &self.config.policy;
        let table = self.config.tables.get(partition.group());
        let group = policy.groups().get(partition.group());
        let read = self.scratch.reads.get(index);
        let (Some(table), Some(group), Some(read)) = (table, group, read) else {
            return Written::Unreachable;
        };
        let (Some(fingerprint), Ok(bucket)) = (read.fingerprint, Bucket::parse(&read.bytes)) else {
            return Written::Unreachable;
        };
        let way = (fingerprint, partition.value());
        let out = &mut self.scratch.out;
        let now = self.now.of(policy, partition.group());
        let claim_of = |value: &[u8]| {
            let of = (partition.group(), table);
            let known = self.config.directories.for_value(self.shared, policy, of, value);
            group.eviction_claim(policy, &known, value, now)
        };
        let before = bucket.keys();
        let lost = bucket.with(way, table.size().ways(), claim_of, out);
        let written = self.shared.set_bucket(table, read.bucket, out, read.cas);
        if written == Written::Done {
            stats.wrote(before, out, lost.map(|lost| lost.is_half_used()));
        }
        if let Some(predictions) = &mut self.scratch.predictions {
            if read.is_predicted {
                predictions.record_result(written == Written::Done);
            }
            if written == Written::Done {
                predictions.record_write(partition.group(), read.bucket, out, self.now.clock());
            }
        }
        if written == Written::Done {
            self.set_committed(index, true);
        }
        written
    }

    pub(crate) fn set_committed(&mut self, index: usize, committed: bool) {
        if let Some(read) = self.scratch.reads.get_mut(index) {
            read.committed = committed;
        }
    }
}
