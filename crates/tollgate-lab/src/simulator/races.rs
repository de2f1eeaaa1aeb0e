//! Workers of one node that decide at the same time: each reads, takes some time, and writes only
//! if no other worker wrote meanwhile.
//!
//! Invariant: the order is that of the filter. Every value is read and all are decided together.
//! Then each is written by compare and swap, in order. A value that lost a race is read and decided
//! again, alone, up to [`MAX_TRIES`] times. If it is denied then, the earlier writes are undone.
//! Deliberately absent: races of requests that wait in a queue, and of the effects of a response:
//! these are written at once. A request that is read while others wait in a queue may pass them, if
//! it fits; the filter would put it behind them.

use std::mem;

use tollgate_core::Timestamp;
use tollgate_policy::{Disposition, Facts, Failure, Plan};

use crate::simulator::node::Node;
use crate::simulator::node_decision::{Arrival, NodeDecision, OriginResponse};
use crate::simulator::store::Place;

/// How often a write is tried, as in the filter.
const MAX_TRIES: u32 = 32;

/// A request that a worker has read and decided, and not written yet.
#[derive(Debug)]
pub(crate) struct Job {
    plan: Plan,
    places: Vec<Place>,
    /// The stored bytes when it was read.
    reads: Vec<Vec<u8>>,
    arrival: Arrival,
    /// Partitions before this one are written.
    next: usize,
    tries: u32,
    /// Writes that lost a race.
    pub(crate) lost: u64,
}

/// The next action of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It lost a race and has decided again: it will write later.
    Again,
    /// Everything is written.
    Done,
}

impl Node {
    /// A worker reads and decides a request at `now`, and writes nothing.
    pub(crate) fn begin(
        &mut self,
        facts: &impl Facts,
        now: Timestamp,
        response: OriginResponse,
    ) -> Job {
        self.settle(now);
        let arrival = Arrival { number: self.asked, at: now, response };
        self.asked = self.asked.saturating_add(1);
        self.tenants.plan(&self.policy, facts, now, &mut self.plan);
        self.load();
        let mut reads = vec![Vec::new(); self.plan.len()];
        for (partition, read) in self.plan.partitions().zip(&mut reads) {
            if let Some(place) = self.places.get(partition.index()) {
                self.store.copy(partition.group(), *place, read);
            }
        }
        self.plan.decide(&self.policy, now);
        let plan = mem::replace(&mut self.plan, self.spare.pop().unwrap_or_default());
        let places = mem::take(&mut self.places);
        Job { plan, places, reads, arrival, next: 0, tries: 0, lost: 0 }
    }

    /// The worker writes its decisions, until it loses a race.
    pub(crate) fn write(&mut self, job: &mut Job) -> Step {
        let now = job.arrival.at;
        self.settle(now);
        while let Some(partition) = job.plan.partition(job.next) {
            let place = job.places.get_mut(job.next);
            let (Some(place), Some(read)) = (place, job.reads.get_mut(job.next)) else { break };
            if !partition.changed() {
                job.next = job.next.saturating_add(1);
            } else if self.store.is_still(partition.group(), *place, read) {
                self.store.put(&self.policy, partition, place, now);
                (job.next, job.tries) = (job.next.saturating_add(1), 0);
            } else {
                let Some(mut partition) = job.plan.partition_mut(job.next) else { break };
                (job.lost, job.tries) = (job.lost.saturating_add(1), job.tries.saturating_add(1));
                let admits = job.tries < MAX_TRIES && {
                    *place = self.store.load(&self.policy, &mut partition);
                    self.store.copy(partition.group(), *place, read);
                    partition.redecide(&self.policy, now)
                };
                if admits {
                    return Step::Again;
                }
                if partition.view().is_only_punished() {
                    self.store.put(&self.policy, partition.view(), place, now);
                }
                if job.tries >= MAX_TRIES {
                    partition.fail(Failure::Contended);
                    job.tries = 0;
                    let disposition = job.plan.outcome(&self.policy).disposition();
                    if !matches!(disposition, Disposition::Deny { .. } | Disposition::Retry(_)) {
                        continue; // the rule allows such requests
                    }
                }
                self.take_back(job);
                break;
            }
        }
        Step::Done
    }

    /// Undoes the writes, and removes decisions that were not written from the plan.
    fn take_back(&mut self, job: &mut Job) {
        let now = job.arrival.at;
        let Self { policy, store, .. } = self;
        let Job { plan, places, next, .. } = job;
        plan.each_partition(|partition| {
            let index = partition.view().index();
            if !partition.view().changed() {
                return;
            }
            let is_written = index < *next;
            if is_written && let Some(place) = places.get_mut(index) {
                *place = store.load(policy, partition);
                partition.refund(policy, now);
                store.put(policy, partition.view(), place, now);
            } else {
                partition.refund(policy, now);
            }
            partition.refunded(policy, now);
        });
    }

    /// The decision on a request that is written.
    pub(crate) fn end(&mut self, job: Job) -> NodeDecision<'_> {
        self.settle(job.arrival.at);
        self.seated = None;
        let Job { plan, places, arrival, .. } = job;
        self.sit_down(plan);
        self.places = places;
        let fate = self.after(arrival, arrival.at);
        self.decided(arrival, fate, arrival.at)
    }
}
