//! A plan whose request waits, or would have to: its lines, its place in a queue, and its denial
//! when it may not wait.
//!
//! Invariant: a plan that is kept contains the data for deciding again and for the response: the
//! keys, the rules that apply and their costs and tiers as of arrival, never the request. Stored
//! values are loaded again.

use tollgate_core::{Algorithm, Span, Timestamp, Verdict};

use crate::pipeline::applied::AppliedRule;
use crate::pipeline::now::Now;
use crate::pipeline::partition::PartitionMut;
use crate::pipeline::plan::{Full, Plan, denies};
use crate::policy::compiled::Policy;
use crate::policy::rule::Rule;
use tollgate_storage::Due;

use super::pace::Pace;
use super::turn::{Turn, turn};

/// The lines and places of a plan's request: [`Plan::waiting`].
#[derive(Clone, Copy, Debug)]
pub struct WaitingPlan<'p> {
    plan: &'p Plan,
    policy: &'p Policy,
}

/// The same, to be changed: [`Plan::waiting_mut`].
#[derive(Debug)]
pub struct WaitingPlanMut<'p> {
    plan: &'p mut Plan,
    policy: &'p Policy,
}

impl Plan {
    /// The lines and places of a request that waits, or would have to.
    #[must_use]
    pub const fn waiting<'p>(&'p self, policy: &'p Policy) -> WaitingPlan<'p> {
        WaitingPlan { plan: self, policy }
    }

    /// The same, to be changed.
    pub const fn waiting_mut<'p>(&'p mut self, policy: &'p Policy) -> WaitingPlanMut<'p> {
        WaitingPlanMut { plan: self, policy }
    }
}

impl<'p> WaitingPlan<'p> {
    /// True when a rule that applies gets reports (`"cost": "reported"`) of units that were already
    /// used. They are recorded whatever the decision is: decide the plan once, and delay nothing.
    #[must_use]
    #[inline]
    pub fn is_decided_once(&self) -> bool {
        self.plan.reports()
    }

    /// The lines in which this request has to wait if others do; one for each rule that makes
    /// requests wait for their turn.
    pub fn turns(&self) -> impl Iterator<Item = Turn> + use<'p> {
        let Self { plan, policy } = *self;
        plan.applied.iter().filter_map(move |applied| turn(policy, plan, applied))
    }

    /// The current pace of a line, from a plan that was decided or checked `at`; `None` when the
    /// line's value could not be used.
    #[must_use]
    pub fn pace(&self, of: &Turn, at: Timestamp) -> Option<Pace> {
        let is_in_line = |applied: &&AppliedRule| {
            applied.partition() == Some(of.partition)
                && turn(self.policy, self.plan, applied).is_some_and(|it| it.record == of.record)
        };
        // A limit on requests in flight is in the line of the quotas next to it.
        let in_line = self.plan.applied.iter().filter(is_in_line);
        let deferred = in_line.clone().any(|applied| applied.due == Due::Later);
        let quotas = in_line.flat_map(|applied| self.plan.outcome(self.policy).of_rule(applied));
        let mut quotas = quotas.map(|r| (r.quota.limiter, *r.decision)).peekable();
        quotas.peek()?;
        Some(Pace::new(at, of.cost, deferred, quotas))
    }

    /// The line of spare times ([`Queue::spare`](super::Queue::spare)) from which a request that is
    /// not decided yet may get one: only if one `leaky-queue` is the only quota for it.
    #[must_use]
    pub fn spare_line(&self) -> Option<Turn> {
        let [applied] = self.plan.applied.as_slice() else { return None };
        let [quota] = self.policy.quotas(applied) else { return None };
        let is_queue = quota.limiter.algorithm() == Algorithm::LeakyQueue;
        if !is_queue || !applied.is_enforced() || applied.due != Due::Now {
            return None;
        }
        self.place_by(applied)
    }

    /// The place in a `leaky-queue` of a request whose disposition is
    /// [`Disposition::Delay`](crate::Disposition::Delay). `None` when it has places in several, so
    /// that no other request can use its time.
    #[must_use]
    pub fn place(&self) -> Option<Turn> {
        let mut found = None;
        for applied in self.plan.applied.iter().filter(|applied| applied.charged.is_some()) {
            for reported in self.plan.outcome(self.policy).of_rule(applied) {
                if let Verdict::Delay(_) = reported.decision.verdict
                    && found.replace(self.place_by(applied)?).is_some()
                {
                    return None;
                }
            }
        }
        found
    }

    /// The place that a rule gives, which may be later than its action allows to wait.
    fn place_by(&self, applied: &AppliedRule) -> Option<Turn> {
        let rule = self.policy.rules.get(usize::from(applied.rule))?;
        Turn::of(self.policy, applied, rule.longest_wait().unwrap_or(Span::MAX))
    }
}

impl WaitingPlanMut<'_> {
    /// Computes the decisions at `now` without charging: for a request that has to wait in a line
    /// anyway ([`WaitingPlan::turns`]), to check whether another rule denies it.
    pub fn look(&mut self, now: impl Into<Now>) {
        self.plan.look(self.policy, now.into());
    }

    /// Denies the request, which would have to wait and may not. Refund its charges afterwards.
    pub fn reject(&mut self, full: Full) {
        let Plan { applied, decisions, rejected_waiting, .. } = &mut *self.plan;
        *rejected_waiting = Some(full);
        // A request that went behind others at once may not have met the full limit.
        let is_denied =
            applied.iter().any(|it| it.is_enforced() && denies(it, self.policy, decisions));
        let in_vain = full == Full::NoPlace && !is_denied;
        for applied in applied.iter_mut().filter(|applied| applied.is_enforced()) {
            let own = decisions.get(applied.first_decision..).unwrap_or_default();
            let mut own = own.iter().take(self.policy.quotas(applied).len());
            let waits = own.any(|decision| matches!(decision.verdict, Verdict::Delay(_)));
            let rule = self.policy.rules.get(usize::from(applied.rule));
            let in_vain = in_vain && applied.due == Due::InFlight;
            let waits = waits || in_vain && rule.is_some_and(Rule::is_waited_for);
            applied.rejected_waiting = waits || denies(applied, self.policy, decisions);
        }
    }

    /// Moves the place of a request to the time `at`, which [`PartitionMut::refund`] then releases.
    pub fn move_place(&mut self, at: Timestamp) {
        let Some(place) = self.plan.waiting(self.policy).place() else { return };
        let Some(PartitionMut { stored, applied, decisions, .. }) =
            self.plan.partition_mut(place.partition)
        else {
            return;
        };
        for applied in applied.iter().filter(|applied| applied.charged.is_some()) {
            let own = decisions.get_mut(applied.first_decision..).unwrap_or_default();
            for decision in own.iter_mut().take(self.policy.quotas(applied).len()) {
                if let Verdict::Delay(wait) = &mut decision.verdict {
                    *wait = at.since(stored.at);
                }
            }
        }
    }

    /// Decides a plan of one rule with one quota that takes the spare place `at`, which was charged
    /// to a request that left. There is nothing to commit.
    pub fn take_place(&mut self, now: impl Into<Now>, at: Timestamp) {
        let now: Now = now.into();
        self.look(now);
        let wait = at.since(now.clock());
        let now = self.plan.partition(0).map(|it| now.of(self.policy, it.group()));
        if let ([applied], [decision]) =
            (self.plan.applied.as_mut_slice(), self.plan.decisions.as_mut_slice())
        {
            applied.charged = now;
            decision.verdict =
                if wait == Span::ZERO { Verdict::Allow } else { Verdict::Delay(wait) };
            decision.retry_after = None;
        }
    }
}
