//! The workers of a node: until when each is busy, and which requests wait for a worker.
//!
//! Invariant: workers take requests in the order of arrival, and no worker is idle while one waits.
//! Writes at the same instant happen in the order in which they were started. At most [`MAX_LINE`]
//! requests wait for a worker. A request beyond that is decided at once, as by a single worker that
//! is never busy.

use std::collections::{BTreeMap, VecDeque};

use tollgate_core::{Span, Timestamp};

use crate::simulator::races::Job;
use crate::simulator::traffic::Request;

/// The most requests that wait for a worker of a node.
const MAX_LINE: usize = 100_000;

/// The workers of one node.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    idle: u64,
    work: Span,
    begun: u64,
    /// By the true time at which they write, then by the order in which they started.
    busy: BTreeMap<(Timestamp, u64), (Request, Job)>,
    /// Requests for the next idle worker.
    line: VecDeque<Request>,
}

impl WorkerPool {
    pub(crate) const fn new(workers: u64, work: Span) -> Self {
        Self { idle: workers, work, begun: 0, busy: BTreeMap::new(), line: VecDeque::new() }
    }

    /// True when a request is decided at once, so that no other request comes in between: a
    /// decision takes no time, or too many requests wait for a worker.
    pub(crate) fn is_instant(&self) -> bool {
        self.work == Span::ZERO || self.line.len() >= MAX_LINE
    }

    /// When the next worker writes.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.busy.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes a request if a worker is idle; otherwise the request waits for one.
    pub(crate) fn takes(&mut self, request: Request) -> bool {
        if self.idle == 0 {
            self.line.push_back(request);
            return false;
        }
        self.idle = self.idle.saturating_sub(1);
        true
    }

    /// A worker has read at `now`, and will write later.
    pub(crate) fn work(&mut self, request: Request, job: Job, now: Timestamp) {
        self.begun = self.begun.saturating_add(1);
        self.busy.insert((now.saturating_add(self.work), self.begun), (request, job));
    }

    /// The job that is written next.
    pub(crate) fn pop(&mut self) -> Option<(Request, Job)> {
        self.busy.pop_first().map(|(_, job)| job)
    }

    /// A worker has finished. Returns the request that it takes next, if one waits.
    pub(crate) fn done(&mut self) -> Option<Request> {
        let next = self.line.pop_front();
        if next.is_none() {
            self.idle = self.idle.saturating_add(1);
        }
        next
    }
}
