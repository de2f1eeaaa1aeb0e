//! A policy in front of a service: allows, delays or denies a request, and settles it by its
//! response.
//!
//! Invariant: state is loaded, decided and stored under one lock, at one time that is read under
//! it. So no two requests are allowed for the same unit, a request of several keys is charged to
//! all of them or to none, and there is no race to lose. The lock is held for microseconds and
//! never across an await. Deliberately absent: queues. Requests that wait (`delay`) are decided
//! again when their time has come, in any order.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tollgate::waiting::Full;
use tollgate::{
    Disposition, Ending, Facts, Partition, Plan, Policy, Problems, ResponseFacts, Span, Timestamp,
};

use crate::table::Counts;

/// A policy and its counts.
#[derive(Debug)]
pub struct Gate {
    policy: Policy,
    counts: Mutex<Counts>,
    /// The start of time. The clock is monotonic: it cannot be set back.
    started: Instant,
    waiting: Semaphore,
}

/// A request that was decided: its plan, and its denial, if any.
#[derive(Debug)]
pub struct Decided {
    /// The plan, which contains the outcome.
    pub plan: Plan,
    /// `None` when the request is allowed; else the status of its denial.
    pub refused: Option<u16>,
}

impl Gate {
    /// The gate of a policy document.
    ///
    /// # Errors
    /// Lists every mistake in the document, with its place.
    pub fn new(document: &str) -> Result<Self, Problems> {
        let mut policy = tollgate::compile(document)?;
        policy.set_hash_key(secret());
        Ok(Self {
            counts: Mutex::new(Counts::new(&policy)),
            started: Instant::now(),
            waiting: Semaphore::new(policy.waiting().total.min(Semaphore::MAX_PERMITS)),
            policy,
        })
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The counts. Every request waits while the lock is held.
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules that apply to a request, and the keys they count by. A plan keeps no data of the
    /// request.
    pub fn plan(&self, facts: &impl Facts) -> Plan {
        let mut plan = Plan::new();
        self.policy.plan(facts, &mut plan);
        plan
    }

    /// Decides a request, and delays it if its rules require that. A client that leaves while its
    /// request waits for its place in a `leaky-queue` leaves that place unused.
    pub async fn decide(&self, mut plan: Plan) -> Decided {
        let arrived = Instant::now();
        loop {
            self.commit(&mut plan);
            let waited = span(arrived.elapsed());
            let (wait, is_let_go) = match plan.outcome(&self.policy).disposition_after(waited) {
                Disposition::Allow => return Decided { plan, refused: None },
                Disposition::Deny { status } => return Decided { plan, refused: Some(status) },
                Disposition::Delay(wait) => (wait, true),
                Disposition::Retry(wait) => (wait, false),
            };
            let Ok(_place) = self.waiting.try_acquire() else {
                return self.reject(plan, wait);
            };
            tokio::time::sleep(Duration::from_nanos(wait.as_nanos())).await;
            if is_let_go {
                return Decided { plan, refused: None };
            }
        }
    }

    /// Charges or refunds according to how the request ended.
    pub fn settle(&self, plan: &mut Plan, ending: Ending, response: &dyn ResponseFacts) {
        let is_deferred = plan.settlement(&self.policy).is_deferred();
        if is_deferred && plan.settle(&self.policy, ending, response) {
            self.commit(plan);
        }
    }

    /// Loads, decides and stores under one lock. This is exact because no other request runs in
    /// between.
    fn commit(&self, plan: &mut Plan) {
        let mut counts = self.counts();
        let now = self.now();
        plan.each_partition(|partition| {
            let stored = counts.get(partition.view());
            partition.load(&self.policy, stored);
        });
        plan.decide(&self.policy, now);
        for partition in plan.partitions().filter(Partition::changed) {
            counts.put(&self.policy, partition, now);
        }
    }

    /// Denies a request that would have to wait while too many requests wait, and returns the place
    /// that it received.
    fn reject(&self, mut plan: Plan, wait: Span) -> Decided {
        plan.waiting_mut(&self.policy).reject(Full::Worker(wait));
        let mut counts = self.counts();
        let now = self.now();
        plan.each_partition(|partition| {
            if partition.view().changed() {
                let stored = counts.get(partition.view());
                partition.load(&self.policy, stored);
                partition.refund(&self.policy, now);
                counts.put(&self.policy, partition.view(), now);
                partition.refunded(&self.policy, now);
            }
        });
        drop(counts);
        let refused = match plan.outcome(&self.policy).disposition() {
            Disposition::Deny { status } => Some(status),
            Disposition::Allow | Disposition::Delay(_) | Disposition::Retry(_) => None,
        };
        Decided { plan, refused }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(span(self.started.elapsed()).as_nanos())
    }
}

/// A secret that clients must not guess. It determines the hash of their key in responses (`pk`)
/// and the keys that a rule is enforced for (`enforce_percent`). It differs at each start; several
/// servers that should agree read it from their settings.
fn secret() -> [u8; 16] {
    let random = RandomState::new();
    let halves = u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1));
    halves.to_le_bytes()
}

fn span(time: Duration) -> Span {
    Span::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
