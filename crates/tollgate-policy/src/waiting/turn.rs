//! The lines in which a request waits.
//!
//! Invariant: only rules that are enforced and whose action is `delay` make a request wait. A line
//! is for the quotas of one rule or tier and one key, because the request waits for these. A limit
//! on requests in flight next to them is in the same line, so that no request passes another one
//! between the two.

use tollgate_core::{Algorithm, Span};

use crate::answer::outcome::Outcome;
use crate::pipeline::applied::AppliedRule;
use crate::pipeline::in_flight::{PLACE_LOOK, RequestInFlight};
use crate::pipeline::plan::Plan;
use crate::policy::compiled::Policy;
use crate::policy::quota::CompiledQuota;

/// A line in which a request waits, or would wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The partition with the key.
    pub partition: usize,
    /// The identity of the rule or tier with its quotas, or of its limit on requests in flight.
    pub record: u32,
    /// The cost of the request there.
    pub cost: u64,
    /// The longest time that the rule delays it in total, from its arrival.
    pub max: Span,
    /// Its priority among the waiters there: 0 goes first.
    pub rank: u8,
}

impl Turn {
    /// The lines in which requests may wait for the place of a request in flight that has ended.
    pub fn freed_by<'p>(
        policy: &'p Policy,
        ended: &'p RequestInFlight,
    ) -> impl Iterator<Item = Self> + 'p {
        ended.plan().applied.iter().filter_map(|applied| {
            let max = policy.rules.get(usize::from(applied.rule))?.longest_wait()?;
            Self::of(policy, applied, max)
        })
    }

    /// The line for the quotas in which a rule counts. `None` when the request has no key there.
    pub(super) fn of(policy: &Policy, applied: &AppliedRule, max: Span) -> Option<Self> {
        let record = policy.line_of(applied)?;
        let AppliedRule { cost, rank, .. } = *applied;
        Some(Self { partition: applied.partition()?, record, cost, max, rank })
    }

    /// The key of the line, in the plan that the turn belongs to.
    #[must_use]
    pub fn key<'p>(&self, plan: &'p Plan) -> &'p [u8] {
        let partition = plan.partition(self.partition);
        debug_assert!(partition.is_some(), "a turn goes with the plan that it was made from");
        partition.map_or(&[], |partition| partition.key())
    }
}

impl Outcome<'_> {
    /// The line of a request whose disposition is
    /// [`Disposition::Retry`](crate::Disposition::Retry): of several rules that make it wait, the
    /// one with the longest wait. Its `max` is the shortest of theirs.
    #[must_use]
    pub fn turn(&self) -> Option<Turn> {
        let mut found: Option<(Span, Turn)> = None;
        for applied in &self.plan.applied {
            let denials = self.of_rule(applied).filter_map(|r| r.next_look(PLACE_LOOK));
            let (Some(wait), Some(turn)) = (denials.max(), turn(self.policy, self.plan, applied))
            else {
                continue;
            };
            found = Some(match found {
                None => (wait, turn),
                Some((longest, other)) => {
                    let max = turn.max.min(other.max);
                    let (wait, turn) = if wait > longest { (wait, turn) } else { (longest, other) };
                    (wait, Turn { max, ..turn })
                }
            });
        }
        found.map(|(_, turn)| turn)
    }
}

/// The line of a rule that makes requests wait for their turn. A `leaky-queue` assigns times
/// instead.
pub(super) fn turn(policy: &Policy, plan: &Plan, applied: &AppliedRule) -> Option<Turn> {
    let rule = policy.rules.get(usize::from(applied.rule))?;
    let max = rule.longest_wait()?;
    let hands_out_times =
        |quota: &CompiledQuota| matches!(quota.limiter.algorithm(), Algorithm::LeakyQueue);
    if !applied.is_binding() || policy.quotas(applied).iter().all(hands_out_times) {
        return None;
    }
    let own = Turn::of(policy, applied, max)?;
    let Some(other) = other_half(policy, plan, applied) else { return Some(own) };
    if rule.limits_requests_in_flight() {
        return Some(Turn { cost: other.cost, ..own });
    }
    Some(Turn { record: policy.line_of(other)?, ..own })
}

/// A rule of the document that has quotas and a limit on requests in flight is two here, one after
/// the other: the other one, if it binds the request, too.
fn other_half<'p>(
    policy: &Policy,
    plan: &'p Plan,
    applied: &AppliedRule,
) -> Option<&'p AppliedRule> {
    let rule = policy.rules.get(usize::from(applied.rule))?;
    let is_second = rule.limits_requests_in_flight();
    let other = if is_second { applied.rule.checked_sub(1) } else { applied.rule.checked_add(1) }?;
    policy.rules.get(usize::from(other)).filter(|it| it.is_part_of(rule))?;
    let is_other = |it: &&AppliedRule| {
        it.rule == other && it.is_binding() && it.partition() == applied.partition()
    };
    plan.applied.iter().find(is_other)
}
