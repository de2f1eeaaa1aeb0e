//! What a plan and its outcome say about waiting: in which line, and how fast that moves.
//!
//! Invariant: only rules that are enforced and whose action is `delay` let a request wait, and a
//! line is for the quotas of one rule or tier and one key, because these are what it waits for.

use tollgate_core::{Algorithm, Span, Timestamp};

use crate::answer::outcome::Outcome;
use crate::pipeline::plan::{AppliedRule, Due, Plan};
use crate::policy::compiled::Policy;
use crate::policy::quota::CompiledQuota;

use super::pace::Pace;

/// A line that a request stands in, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The partition whose key it is.
    pub partition: usize,
    /// The identity of the rule or tier with its quotas.
    pub record: u32,
    /// What the request costs there.
    pub cost: u64,
    /// How long the rule lets it wait in all, from when it came.
    pub max: Span,
    /// Its priority among those that wait there: 0 goes first.
    pub rank: u8,
}

impl Turn {
    /// The key of the line, in the plan that the turn is of.
    #[must_use]
    pub fn key<'p>(&self, plan: &'p Plan) -> &'p [u8] {
        let partition = plan.partition(self.partition);
        debug_assert!(partition.is_some(), "a turn goes with the plan that it was made from");
        partition.map_or(&[], |partition| partition.key())
    }
}

impl Plan {
    /// The lines that this request has to stand in if others do; one for each rule that lets
    /// requests wait for their turn.
    pub fn turns<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = Turn> + 'a {
        self.applied.iter().filter_map(move |applied| turn(policy, applied))
    }

    /// What the quotas of a line say now: of a plan that was decided or looked at `at`; `None` when
    /// the line's value could not be used.
    #[must_use]
    pub fn pace(&self, policy: &Policy, of: &Turn, at: Timestamp) -> Option<Pace> {
        let applied = self.applied.iter().find(|applied| {
            applied.partition == Some(of.partition)
                && turn(policy, applied).is_some_and(|turn| turn.record == of.record)
        })?;
        let quotas = self.outcome(policy).of_rule(applied);
        let mut quotas = quotas.map(|r| (r.quota.limiter, *r.decision)).peekable();
        quotas.peek()?;
        Some(Pace::new(at, applied.cost, applied.due == Due::Later, quotas))
    }
}

impl Outcome<'_> {
    /// In which line a request stands whose answer is [`Answer::Retry`](crate::Answer::Retry): of
    /// several rules that make it wait the one that makes it wait longest. Its `max` is the
    /// shortest of theirs.
    #[must_use]
    pub fn turn(&self) -> Option<Turn> {
        let mut found: Option<(Span, Turn)> = None;
        for applied in &self.plan.applied {
            let denials = self.of_rule(applied).filter_map(|r| r.decision.retry_after);
            let (Some(wait), Some(turn)) = (denials.max(), turn(self.policy, applied)) else {
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

/// The line of a rule that lets requests wait for their turn. A `leaky-queue` gives out times
/// instead.
fn turn(policy: &Policy, applied: &AppliedRule) -> Option<Turn> {
    let rule = policy.rules.get(usize::from(applied.rule))?;
    let max = rule.longest_wait()?;
    let hands_out_times =
        |quota: &CompiledQuota| matches!(quota.limiter.algorithm(), Algorithm::LeakyQueue);
    if !applied.binding || policy.quotas(applied).iter().all(hands_out_times) {
        return None;
    }
    let record = policy.line_of(applied)?;
    let AppliedRule { cost, rank, .. } = *applied;
    Some(Turn { partition: applied.partition?, record, cost, max, rank })
}
