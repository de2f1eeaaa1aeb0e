//! Decides a request on the stored counts: all or nothing, as `Plan::decide` does for one
//! partition.
//!
//! Invariant: the same quotas on the same states give the same bytes here and in a plan. The effect
//! of a rule on its record is defined in `counted` for both.

use alloc::vec;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::counted_set::CountedSet;
use crate::counts::Counts;
use crate::due::Due;
use crate::marks::{block, reset_at};
use crate::request::{Request, RequestRule};

impl Counts {
    /// Fills in the decisions of `asked` and charges it if it is allowed; true when something was
    /// charged or refunded.
    pub(crate) fn decide(&mut self, asked: &mut Request<'_>, now: Timestamp) -> bool {
        if !self.marks.is_empty() && !asked.settles {
            for rule in &mut asked.rules {
                rule.blocked_until = self.blocked_until(rule.rule, now);
            }
        }
        let mut admitted = true;
        self.each(asked, |kept, rule, decisions| {
            // The decision of a charge is needed to refund it.
            if !rule.due.is_settled() && kept.quotas.parameters == rule.parameters {
                kept.look(decisions, now, rule.decided_cost(), rule.longest);
                if let Some(until) = rule.blocked_until {
                    block(decisions, until.since(now));
                }
                admitted &= !(rule.binding && denies(decisions));
            }
        });
        // A request that a penalty of the key denies already is no offence.
        let is_penalised = asked.is_penalised();
        let mut is_changed = false;
        let marks = self.marks.clone();
        let settled = core::mem::take(&mut self.settled);
        self.each(asked, |kept, rule, decisions| {
            if let (Due::Settled(used), Some(at)) = (rule.due, rule.charged) {
                let was_reset = reset_at(&marks, rule.rule) >= at;
                let is_there = !was_reset && settled.may_give_back(at, now);
                is_changed |= settle(kept, rule, (at, used), is_there, decisions, now);
                return;
            }
            if rule.due == Due::Renewed {
                is_changed |= renew(kept, rule, decisions, now);
                return;
            }
            if kept.quotas.parameters != rule.parameters {
                is_changed |= charge_by_own(kept, rule, now);
                return;
            }
            if rule.due == Due::Reported {
                kept.counted(decisions).report(now, rule.cost);
                if let Some(until) = rule.blocked_until {
                    block(decisions, until.since(now));
                }
                is_changed = true;
                return;
            }
            let is_charged = admitted && rule.due == Due::Now && !denies(decisions);
            rule.charged = is_charged.then_some(now);
            is_changed |= is_charged;
            if is_charged {
                kept.charge(decisions, now, rule.cost);
                return;
            }
            if rule.blocked_until.is_none() {
                is_changed |= deny(kept, rule, is_penalised, decisions, now);
            }
            kept.leave(decisions, now);
        });
        self.settled = settled;
        is_changed
    }

    /// Refunds the charges of `asked`; true when there were any. If the states were carried to
    /// other quotas in the meantime, the charge stays: it is no longer the one that was made.
    pub(crate) fn take_back(&mut self, asked: &mut Request<'_>, now: Timestamp) -> bool {
        let mut is_changed = false;
        let marks = self.marks.clone();
        self.each(asked, |kept, rule, decisions| {
            let is_of_it = |at: &Timestamp| {
                let is_own =
                    kept.quotas.parameters == rule.parameters || kept.limits_requests_in_flight();
                is_own && reset_at(&marks, rule.rule) < *at
            };
            let Some(at) = rule.charged.filter(is_of_it) else { return };
            kept.counted(decisions).take_back(at, rule.cost, now);
            is_changed = true;
        });
        if is_changed {
            self.each(asked, |kept, rule, decisions| {
                if kept.quotas.parameters == rule.parameters {
                    kept.leave(decisions, now);
                    rule.charged = None;
                }
            });
        }
        is_changed
    }

    /// Calls `each` with every rule of `asked`, its stored set, and its decisions.
    fn each(
        &mut self,
        asked: &mut Request<'_>,
        mut each: impl FnMut(&mut CountedSet, &mut RequestRule<'_>, &mut [Decision]),
    ) {
        let Request { rules, decisions, .. } = asked;
        let mut rest = decisions.as_mut_slice();
        for rule in rules {
            let Some((own, others)) = rest.split_at_mut_checked(rule.quotas) else { return };
            if let Some(kept) = self.kept(rule.stable_id()) {
                if rule.limits.is_empty() || kept.quotas.parameters != rule.parameters {
                    each(kept, rule, own);
                } else {
                    kept.within(&rule.limits.clone(), |kept| each(kept, rule, own));
                }
            }
            rest = others;
        }
    }
}

/// Records the effects of a denial by a rule that is not charged: room that is waited for, and a
/// penalty. True when that changed something.
fn deny(
    kept: &mut CountedSet,
    rule: &RequestRule<'_>,
    is_penalised: bool,
    decisions: &mut [Decision],
    now: Timestamp,
) -> bool {
    let is_refused = rule.due == Due::Now && rule.binding && denies(decisions);
    let awaits = is_refused && kept.await_room(now, rule.cost);
    let starts = rule.punishes && !is_penalised;
    awaits | (starts && kept.counted(decisions).punish(now, rule.decided_cost(), true))
}

/// Confirms a request in flight, also by another limit, because what runs was carried to it; true
/// when it is counted.
fn renew(
    kept: &mut CountedSet,
    rule: &mut RequestRule<'_>,
    decisions: &mut [Decision],
    now: Timestamp,
) -> bool {
    let renewed = rule.charged.filter(|at| {
        kept.limits_requests_in_flight() && kept.counted(decisions).renew(*at, rule.cost, now)
    });
    rule.charged = renewed.map(|_| now);
    renewed.is_some()
}

/// Settles a charge, made `at`, of which `used` units were used; true when that changed something.
/// If it is not there any more, or was made under other quotas, only what exceeds it is debited: it
/// is unknown which part of the states belongs to it.
fn settle(
    kept: &mut CountedSet,
    rule: &RequestRule<'_>,
    (at, used): (Timestamp, u64),
    is_there: bool,
    decisions: &mut [Decision],
    now: Timestamp,
) -> bool {
    let is_own = kept.quotas.parameters == rule.parameters || kept.limits_requests_in_flight();
    if is_there && is_own {
        kept.counted(decisions).settle(at, rule.cost, used, now);
        return true;
    }
    let excess = used.saturating_sub(rule.cost);
    if excess > 0 {
        kept.debit(excess, now);
    }
    excess > 0
}

/// Charges by the response to states whose quotas have changed since the request, by the current
/// quotas; true when it fitted.
fn charge_by_own(kept: &mut CountedSet, rule: &mut RequestRule<'_>, now: Timestamp) -> bool {
    let mut decisions = vec![UNDECIDED; kept.quotas.set.quotas().len()];
    kept.look(&mut decisions, now, rule.cost, rule.longest);
    let is_charged = rule.due == Due::Now && !denies(&decisions);
    if is_charged {
        kept.charge(&mut decisions, now, rule.cost);
    }
    rule.charged = is_charged.then_some(now);
    is_charged
}

const UNDECIDED: Decision = Decision {
    verdict: Verdict::Deny,
    limit: 0,
    remaining: 0,
    retry_after: None,
    reset_after: Span::ZERO,
};

impl Request<'_> {
    /// True when the penalty of a rule that starts penalties denies it.
    fn is_penalised(&self) -> bool {
        let mut decisions = self.decisions.iter();
        self.rules.iter().any(|rule| {
            let own = decisions.by_ref().take(rule.quotas);
            // Consume all, so that the next rule finds its own.
            let penalties = own.filter(|it| it.verdict == Verdict::Penalty).count();
            rule.punishes && penalties > 0
        })
    }

    /// True when a binding rule of it denies.
    pub(crate) fn refuses(&self) -> bool {
        let mut decisions = self.decisions.iter();
        self.rules.iter().any(|rule| {
            let own = decisions.by_ref().take(rule.quotas);
            // Consume all, so that the next rule finds its own.
            let refusals = own.filter(|decision| !decision.is_admitted()).count();
            rule.binding && refusals > 0
        })
    }
}

fn denies(decisions: &[Decision]) -> bool {
    decisions.iter().any(|decision| !decision.is_admitted())
}
