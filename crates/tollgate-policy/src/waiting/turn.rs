//! The lines in which a plan and its outcome wait, and their pace.
//!
//! Invariant: only rules that are enforced and whose action is `delay` make a request wait. A line
//! is for the quotas of one rule or tier and one key, because the request waits for these.

use tollgate_core::{Algorithm, Span, Timestamp};

use crate::answer::outcome::Outcome;
use crate::pipeline::applied::AppliedRule;
use crate::pipeline::plan::Plan;
use crate::policy::compiled::Policy;
use crate::policy::quota::CompiledQuota;
use tollgate_storage::Due;

use super::pace::Pace;

/// A line in which a request waits, or would wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The partition with the key.
    pub partition: usize,
    /// The identity of the rule or tier with its quotas.
    pub record: u32,
    /// The cost of the request there.
    pub cost: u64,
    /// The longest time that the rule delays it in total, from its arrival.
    pub max: Span,
    /// Its priority among the waiters there: 0 goes first.
    pub rank: u8,
}

impl Turn {
    /// The key of the line, in the plan that the turn belongs to.
    #[must_use]
    pub fn key<'p>(&self, plan: &'p Plan) -> &'p [u8] {
        let partition = plan.partition(self.partition);
        debug_assert!(partition.is_some(), "a turn goes with the plan that it was made from");
        partition.map_or(&[], |partition| partition.key())
    }
}

impl Plan {
    /// The lines in which this request has to wait if others do; one for each rule that makes
    /// requests wait for their turn.
    pub fn turns<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = Turn> + 'a {
        self.applied.iter().filter_map(move |applied| turn(policy, applied))
    }

    /// The current pace of a line, from a plan that was decided or checked `at`; `None` when the
    /// line's value could not be used.
    #[must_use]
    pub fn pace(&self, policy: &Policy, of: &Turn, at: Timestamp) -> Option<Pace> {
        let applied = self.applied.iter().find(|applied| {
            applied.partition() == Some(of.partition)
                && turn(policy, applied).is_some_and(|turn| turn.record == of.record)
        })?;
        let quotas = self.outcome(policy).of_rule(applied);
        let mut quotas = quotas.map(|r| (r.quota.limiter, *r.decision)).peekable();
        quotas.peek()?;
        Some(Pace::new(at, applied.cost, applied.due == Due::Later, quotas))
    }
}

impl Outcome<'_> {
    /// The line of a request whose answer is [`Answer::Retry`](crate::Answer::Retry): of several
    /// rules that make it wait, the one with the longest wait. Its `max` is the shortest of theirs.
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

/// The line of a rule that makes requests wait for their turn. A `leaky-queue` assigns times
/// instead.
fn turn(policy: &Policy, applied: &AppliedRule) -> Option<Turn> {
    let rule = policy.rules.get(usize::from(applied.rule))?;
    let max = rule.longest_wait()?;
    let hands_out_times =
        |quota: &CompiledQuota| matches!(quota.limiter.algorithm(), Algorithm::LeakyQueue);
    if !applied.is_binding() || policy.quotas(applied).iter().all(hands_out_times) {
        return None;
    }
    let record = policy.line_of(applied)?;
    let AppliedRule { cost, rank, .. } = *applied;
    Some(Turn { partition: applied.partition()?, record, cost, max, rank })
}
