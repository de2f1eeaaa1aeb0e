//! A plan that is kept while its request waits: small and countable, and the request can be denied.
//!
//! Invariant: a kept plan contains the data for deciding again and for the response: the keys, the
//! rules that apply and their costs and tiers as of arrival, never the request. Stored values are
//! loaded again.

use alloc::vec::Vec;

use tollgate_core::{Algorithm, Decision, Span, Timestamp, Verdict};

use crate::pipeline::applied::AppliedRule;
use crate::pipeline::partition::PartitionMut;
use crate::pipeline::plan::{Full, Plan, denies};
use crate::policy::compiled::Policy;
use crate::request::lazy::Buffers;
use tollgate_storage::Due;

use super::turn::Turn;

impl Plan {
    /// Makes the plan small, to keep it while its request waits. Load and decide it again
    /// afterwards.
    pub fn shrink(&mut self) {
        let Self { applied, partitions, decisions, candidates, buffers, .. } = self;
        partitions.shrink();
        applied.shrink_to_fit();
        decisions.shrink_to_fit();
        *candidates = Vec::new();
        *buffers = Buffers::default();
    }

    /// The line of spare times ([`Queue::spare`](super::Queue::spare)) from which a request that is
    /// not decided yet may get one: only if one `leaky-queue` is the only quota for it.
    #[must_use]
    pub fn spare_line(&self, policy: &Policy) -> Option<Turn> {
        let [applied] = self.applied.as_slice() else { return None };
        let [quota] = policy.quotas(applied) else { return None };
        let is_queue = quota.limiter.algorithm() == Algorithm::LeakyQueue;
        if !is_queue || !applied.is_enforced() || applied.due != Due::Now {
            return None;
        }
        let record = policy.line_of(applied)?;
        let rule = policy.rules.get(usize::from(applied.rule))?;
        let max = rule.longest_wait().unwrap_or(Span::MAX);
        let AppliedRule { cost, rank, .. } = *applied;
        Some(Turn { partition: applied.partition()?, record, cost, max, rank })
    }

    /// Bytes that the plan uses, including itself.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let of = |capacity: usize, size: usize| capacity.saturating_mul(size);
        [
            size_of::<Self>(),
            of(self.applied.capacity(), size_of::<AppliedRule>()),
            of(self.decisions.capacity(), size_of::<Decision>()),
            of(self.candidates.capacity(), size_of::<u16>()),
            self.partitions.capacity(),
            self.buffers.capacity(),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// Denies the request, which would have to wait and may not. Refund its charges afterwards.
    pub fn reject_waiting(&mut self, policy: &Policy, full: Full) {
        let Self { applied, decisions, rejected_waiting, .. } = self;
        *rejected_waiting = Some(full);
        for applied in applied.iter_mut().filter(|applied| applied.is_enforced()) {
            let own = decisions.get(applied.first_decision..).unwrap_or_default();
            let mut own = own.iter().take(policy.quotas(applied).len());
            let waits = own.any(|decision| matches!(decision.verdict, Verdict::Delay(_)));
            applied.rejected_waiting = waits || denies(applied, policy, decisions);
        }
    }

    /// The place in a `leaky-queue` of a request whose answer is
    /// [`Answer::Delay`](crate::Answer::Delay). `None` when it has places in several, so that no
    /// other request can use its time.
    #[must_use]
    pub fn place(&self, policy: &Policy) -> Option<Turn> {
        let mut found = None;
        for applied in self.applied.iter().filter(|applied| applied.charged.is_some()) {
            for reported in self.outcome(policy).of_rule(applied) {
                if let Verdict::Delay(_) = reported.decision.verdict {
                    let record = policy.line_of(applied)?;
                    let rule = policy.rules.get(usize::from(applied.rule))?;
                    let max = rule.longest_wait().unwrap_or(Span::MAX);
                    let AppliedRule { cost, rank, .. } = *applied;
                    let partition = applied.partition()?;
                    let place = Turn { partition, record, cost, max, rank };
                    if found.replace(place).is_some() {
                        return None;
                    }
                }
            }
        }
        found
    }

    /// Moves the place of a request to the time `at`, which [`PartitionMut::refund`] then releases.
    pub fn move_place(&mut self, policy: &Policy, at: Timestamp) {
        let Some(place) = self.place(policy) else { return };
        let Some(PartitionMut { stored, applied, decisions, .. }) =
            self.partition_mut(place.partition)
        else {
            return;
        };
        for applied in applied.iter().filter(|applied| applied.charged.is_some()) {
            let own = decisions.get_mut(applied.first_decision..).unwrap_or_default();
            for decision in own.iter_mut().take(policy.quotas(applied).len()) {
                if let Verdict::Delay(wait) = &mut decision.verdict {
                    *wait = at.since(stored.at);
                }
            }
        }
    }

    /// Decides a plan of one rule with one quota that already has a place, at `at`: one that was
    /// charged to a request that left. There is nothing to commit.
    pub fn decide_with_place(&mut self, policy: &Policy, now: Timestamp, at: Timestamp) {
        self.look(policy, now);
        let wait = at.since(now);
        if let ([applied], [decision]) =
            (self.applied.as_mut_slice(), self.decisions.as_mut_slice())
        {
            applied.charged = Some(now);
            decision.verdict =
                if wait == Span::ZERO { Verdict::Allow } else { Verdict::Delay(wait) };
            decision.retry_after = None;
        }
    }
}
