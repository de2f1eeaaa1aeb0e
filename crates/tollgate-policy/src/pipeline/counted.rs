//! The quotas of one rule or tier over the states of one record: looked at, charged, given back.
//!
//! Invariant: what a request does to a record is here once, for a plan, which knows the quotas by
//! its policy, and for what counts elsewhere ([`Counts`](crate::Counts)), which knows them by what
//! it stored. Which of several rules are charged is `decide`'s and theirs: all or nothing.

use tollgate_core::{Decision, Limiter, Span, Timestamp, Verdict};

use crate::policy::quota::CompiledQuota;
use crate::policy::stored_set::StoredQuota;

/// A quota with a place in its record.
pub(crate) trait Counter {
    /// What decides.
    fn limiter(&self) -> &Limiter;

    /// Its state among the states of its record.
    fn state_in<'v>(&self, states: &'v mut [u8]) -> Option<&'v mut [u8]>;
}

impl Counter for CompiledQuota {
    fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    fn state_in<'v>(&self, states: &'v mut [u8]) -> Option<&'v mut [u8]> {
        self.state_mut(states)
    }
}

impl Counter for StoredQuota {
    fn limiter(&self) -> &Limiter {
        self.limiter()
    }

    fn state_in<'v>(&self, states: &'v mut [u8]) -> Option<&'v mut [u8]> {
        self.state_mut(states)
    }
}

/// The quotas of one rule, the states of its record, and a decision for each quota.
pub(crate) struct Counted<'a, Q> {
    pub(crate) quotas: &'a [Q],
    pub(crate) states: &'a mut [u8],
    pub(crate) decisions: &'a mut [Decision],
}

impl<Q: Counter> Counted<'_, Q> {
    /// Fills the decisions as they would be; a wait above `longest` is a denial.
    pub(crate) fn look(&mut self, now: Timestamp, cost: u64, longest: Option<Span>) {
        self.each(|limiter, state, decision| {
            *decision = at_most(limiter.peek(state, now, cost), longest);
        });
    }

    /// Charges every quota.
    pub(crate) fn charge(&mut self, now: Timestamp, cost: u64) {
        self.each(|limiter, state, decision| *decision = limiter.check(state, now, cost));
    }

    /// Says what the quotas have left without the request. Denials stay as they are.
    pub(crate) fn leave(&mut self, now: Timestamp) {
        self.each(|limiter, state, decision| {
            if decision.is_admitted() {
                *decision = limiter.peek(state, now, 0);
            }
        });
    }

    /// Records `units` that were used already. Quotas that admitted one unit before say what is
    /// left now, the others for how long one is denied now.
    pub(crate) fn report(&mut self, now: Timestamp, units: u64) {
        self.each(|limiter, state, decision| {
            limiter.debit(state, units, now);
            *decision = limiter.peek(state, now, u64::from(!decision.is_admitted()));
        });
    }

    /// Takes `cost` that was charged `at` out of the states at `now`, as the decisions say, and
    /// leaves everything else as it is: so that it can be taken out of newer states once more.
    /// False when a place that was waited for stays taken: a `leaky-queue` takes back its last one
    /// only.
    pub(crate) fn take_back(&mut self, at: Timestamp, cost: u64, now: Timestamp) -> bool {
        let mut is_free = true;
        self.each(|limiter, state, decision| {
            if let Some(charge) = decision.charge(at, cost) {
                let next_free_at = limiter.idle_at(state);
                limiter.refund(state, charge, now);
                is_free &= !matches!(decision.verdict, Verdict::Delay(_))
                    || limiter.idle_at(state) != next_free_at;
            }
        });
        is_free
    }

    /// Settles `cost` that was charged `at`, of which `used` units are used. Once: twice, it takes
    /// what another request holds.
    pub(crate) fn settle(&mut self, at: Timestamp, cost: u64, used: u64, now: Timestamp) {
        self.each(|limiter, state, decision| {
            if let Some(charge) = decision.charge(at, cost) {
                limiter.settle(state, charge, used, now);
            }
        });
    }

    /// Calls `each` with every quota: its parameters, its state, its decision.
    fn each(&mut self, mut each: impl FnMut(&Limiter, &mut [u8], &mut Decision)) {
        for (quota, decision) in self.quotas.iter().zip(self.decisions.iter_mut()) {
            if let Some(state) = quota.state_in(self.states) {
                each(quota.limiter(), state, decision);
            }
        }
    }
}

/// `decision`, but a wait longer than `longest` is a denial until it is short enough.
fn at_most(decision: Decision, longest: Option<Span>) -> Decision {
    match (decision.verdict, longest) {
        (Verdict::Delay(wait), Some(longest)) if wait > longest => {
            let retry_after = Some(wait.saturating_sub(longest));
            Decision { verdict: Verdict::Deny, retry_after, ..decision }
        }
        _ => decision,
    }
}
