//! The quotas of one rule or tier and the states of one record: check, charge and refund.
//!
//! Invariant: the effect of a request on a record is defined only here. A plan, which has the
//! quotas from its policy, uses it, and so do counts elsewhere ([`Counts`](crate::Counts)), which
//! have the quotas from their row. The modules named `decide` select which of several rules are
//! charged: all or none.

use tollgate_core::{Charge, Decision, Limiter, Span, Timestamp, Verdict};

use crate::stored_set::StoredQuota;

/// A quota whose state has a position in a record.
pub trait Counter {
    /// The limiter that decides.
    fn limiter(&self) -> &Limiter;

    /// Its state in the states of its record.
    fn state_in<'v>(&self, states: &'v mut [u8]) -> Option<&'v mut [u8]>;
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
pub struct Counted<'a, Q> {
    /// The quotas.
    pub quotas: &'a [Q],
    /// Their states.
    pub states: &'a mut [u8],
    /// One decision per quota.
    pub decisions: &'a mut [Decision],
}

impl<Q: Counter> Counted<'_, Q> {
    /// Fills in the decisions without charging; a wait longer than `longest` is a denial.
    pub fn look(&mut self, now: Timestamp, cost: u64, longest: Option<Span>) {
        self.each(|limiter, state, decision| {
            *decision = at_most(limiter.peek(state, now, cost), longest);
        });
    }

    /// Charges every quota.
    pub fn charge(&mut self, now: Timestamp, cost: u64) {
        self.each(|limiter, state, decision| *decision = limiter.check(state, now, cost));
    }

    /// Sets the decisions to the remaining units without the request. Denials are unchanged.
    pub fn leave(&mut self, now: Timestamp) {
        self.each(|limiter, state, decision| {
            if decision.is_admitted() {
                *decision = limiter.peek(state, now, 0);
            }
        });
    }

    /// Starts the penalty of each quota that denies `cost`, if it `may_start`: in a decision that
    /// is final and would have charged. True when one started. A quota whose penalty runs by now,
    /// also because another process started it, reports its end.
    pub fn punish(&mut self, now: Timestamp, cost: u64, may_start: bool) -> bool {
        let mut has_started = false;
        self.each(|limiter, state, decision| {
            if decision.is_admitted() || limiter.penalty().is_none() {
                return;
            }
            has_started |= may_start && limiter.punish(state, now, cost);
            let decided = limiter.peek(state, now, cost);
            if decided.verdict == Verdict::Penalty {
                *decision = decided;
            } else if decision.verdict == Verdict::Penalty {
                // It started in a value that was not committed.
                let retry_after = Some(decided.retry_after.unwrap_or(Span::ZERO));
                *decision = Decision { verdict: Verdict::Deny, retry_after, ..decided };
            }
        });
        has_started
    }

    /// True when the penalty of a quota runs.
    pub fn is_penalised(&mut self, now: Timestamp) -> bool {
        let mut is_penalised = false;
        self.each(|limiter, state, _| is_penalised |= limiter.penalty_at(state, now).is_some());
        is_penalised
    }

    /// Records `units` that were already used. Quotas that allowed one unit before report their
    /// remaining units, the others report when they will allow one.
    pub fn report(&mut self, now: Timestamp, units: u64) {
        self.each(|limiter, state, decision| {
            limiter.debit(state, units, now);
            *decision = limiter.peek(state, now, u64::from(!decision.is_admitted()));
        });
    }

    /// Removes `cost`, which was charged `at`, from the states at `now`, using the decisions.
    /// Everything else is unchanged, so that it can also be removed from newer states. False when a
    /// place in the queue stays taken: a `leaky-queue` can only release its last place.
    pub fn take_back(&mut self, at: Timestamp, cost: u64, now: Timestamp) -> bool {
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

    /// Settles `cost`, which was charged `at`, of which `used` units are used. A quota without a
    /// decision that charged it replaced the one that did: nothing comes back there, and only what
    /// was used above the cost is recorded. Call it once: a second call removes units that another
    /// request holds.
    pub fn settle(&mut self, at: Timestamp, cost: u64, used: u64, now: Timestamp) {
        self.each(|limiter, state, decision| match decision.charge(at, cost) {
            // What runs was carried to it.
            None if limiter.max_age().is_some() => {
                limiter.refund(state, Charge { at, cost, delay: Span::ZERO }, now);
            }
            Some(charge) => limiter.settle(state, charge, used, now),
            None => limiter.debit(state, used.saturating_sub(cost), now),
        });
    }

    /// Confirms at `now` that a request in flight, which was charged `cost` or last confirmed `at`,
    /// still runs. False when nothing counts it any more: then the decisions are denials.
    pub fn renew(&mut self, at: Timestamp, cost: u64, now: Timestamp) -> bool {
        let mut is_counted = true;
        self.each(|limiter, state, decision| {
            let charge = Charge { at, cost, delay: Span::ZERO };
            let is_renewed = limiter.renew(state, charge, now);
            is_counted &= is_renewed;
            let verdict = if is_renewed { Verdict::Allow } else { Verdict::Deny };
            *decision = Decision { verdict, ..limiter.peek(state, now, 0) };
        });
        is_counted
    }

    /// Counts a request in flight that was confirmed too late, whether or not it fits; the
    /// decisions stay denials.
    pub fn count_again(&mut self, cost: u64, now: Timestamp) {
        self.each(|limiter, state, _| limiter.count_again(state, now, cost));
    }

    /// Calls `each` with every quota: its limiter, its state, its decision.
    fn each(&mut self, mut each: impl FnMut(&Limiter, &mut [u8], &mut Decision)) {
        for (quota, decision) in self.quotas.iter().zip(self.decisions.iter_mut()) {
            if let Some(state) = quota.state_in(self.states) {
                each(quota.limiter(), state, decision);
            }
        }
    }
}

/// `decision`, but a wait longer than `longest` becomes a denial until the wait is short enough.
fn at_most(decision: Decision, longest: Option<Span>) -> Decision {
    match (decision.verdict, longest) {
        (Verdict::Delay(wait), Some(longest)) if wait > longest => {
            let retry_after = Some(wait.saturating_sub(longest));
            Decision { verdict: Verdict::Deny, retry_after, ..decision }
        }
        _ => decision,
    }
}
