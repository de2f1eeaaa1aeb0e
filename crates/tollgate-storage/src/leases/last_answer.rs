//! The authority's last response for a quota set of a request that it denied, quota by quota, and
//! its repetition by the node.
//!
//! Invariant: a repeated denial has the numbers of the original one, less the time that has passed
//! since. How long a node relies on a denial is decided elsewhere. If that is longer than the wait
//! of every quota, the quota with the longest wait denies for the rest. Deliberately absent: units
//! that grow back in the meantime. `remaining` of a quota that allows is unchanged, never more than
//! the units that are left.

use alloc::vec::Vec;
use core::cmp::Reverse;

use tollgate_core::{Decision, Limiter, Span, Timestamp, Verdict};

use crate::counted::Counter;
use crate::stored_set::MAX_QUOTAS;
use crate::wire::{Reader, WireError};

/// Represents a wait that never ends.
const NEVER: u64 = u64::MAX;

/// The authority's response for one quota set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectAnswer {
    /// `QuotaSet::stable_id`.
    pub set: u64,
    /// The cost of the request there.
    pub cost: u64,
    /// The decision of each of its quotas.
    pub decisions: Vec<Decision>,
    /// The request was denied, whichever rule of its keys denied it.
    pub is_of_denied: bool,
}

impl DirectAnswer {
    /// True when a quota of the set denied the request.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        self.decisions.iter().any(|decision| !decision.is_admitted())
    }
}

/// The decision of each quota of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAnswer {
    /// When it was received, by the node's clock: no earlier than the decision.
    pub(crate) at: Timestamp,
    /// The cost of the request.
    cost: u64,
    quotas: Vec<QuotaAnswer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QuotaAnswer {
    /// Zero when the quota allows, [`NEVER`] when no wait helps.
    denied_ns: u64,
    remaining: u64,
    reset_after: Span,
}

impl LastAnswer {
    pub(crate) fn new(at: Timestamp, cost: u64, decisions: &[Decision]) -> Self {
        let answer = |decision: &Decision| QuotaAnswer {
            denied_ns: match (decision.is_admitted(), decision.retry_after) {
                (true, _) => 0,
                (false, Some(wait)) => wait.as_nanos().clamp(1, NEVER.saturating_sub(1)),
                (false, None) => NEVER,
            },
            remaining: decision.remaining,
            reset_after: decision.reset_after,
        };
        Self { at, cost, quotas: decisions.iter().map(answer).collect() }
    }

    /// True when it may belong to `quotas`: another policy may have more or fewer.
    pub const fn is_of<Q: Counter>(&self, quotas: &[Q]) -> bool {
        self.quotas.len() == quotas.len()
    }

    /// The decisions of `quotas` for a request of `cost` at `now`. If it is still denied for
    /// `rest`, one of them denies.
    pub fn repeat<Q: Counter>(
        &self,
        quotas: &[Q],
        cost: u64,
        now: Timestamp,
        rest: Option<Span>,
    ) -> Vec<Decision> {
        let passed = now.since(self.at);
        let pairs = self.quotas.iter().zip(quotas);
        let mut decisions: Vec<Decision> = pairs
            .map(|(answer, quota)| answer.later(quota.limiter(), (self.cost, cost), passed))
            .collect();
        // Of those with an equal wait, or with none, the one with the fewest units left.
        let order = |answer: &QuotaAnswer| (answer.denied_ns, Reverse(answer.remaining));
        let longest = self.quotas.iter().enumerate().max_by_key(|(_, answer)| order(answer));
        if let (Some(rest), Some((longest, answer))) = (rest, longest)
            && decisions.iter().all(Decision::is_admitted)
            && let Some(decision) = decisions.get_mut(longest)
        {
            decision.verdict = Verdict::Deny;
            (decision.remaining, decision.retry_after) = (answer.remaining, Some(rest));
        }
        decisions
    }

    /// Appends it to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.quotas.len()).unwrap_or(u8::MAX));
        out.extend(self.at.as_nanos().to_le_bytes());
        out.extend(self.cost.to_le_bytes());
        for answer in &self.quotas {
            let reset = answer.reset_after.as_nanos();
            for number in [answer.denied_ns, answer.remaining, reset] {
                out.extend(number.to_le_bytes());
            }
        }
    }

    /// Reads the bytes of [`LastAnswer::encode`], or a 0 for none.
    pub(crate) fn read(bytes: &mut Reader<'_>) -> Result<Option<Self>, WireError> {
        let count = usize::from(bytes.u8()?);
        if count == 0 {
            return Ok(None);
        }
        if count > MAX_QUOTAS {
            return Err(WireError::Malformed);
        }
        let (at, cost) = (Timestamp::from_nanos(bytes.u64()?), bytes.u64()?);
        let mut quotas = Vec::with_capacity(count);
        for _ in 0..count {
            let (denied_ns, remaining) = (bytes.u64()?, bytes.u64()?);
            let reset_after = Span::from_nanos(bytes.u64()?);
            quotas.push(QuotaAnswer { denied_ns, remaining, reset_after });
        }
        Ok(Some(Self { at, cost, quotas }))
    }
}

impl QuotaAnswer {
    /// The decision for a request of cost `now`, when the response was for one of cost `then` and
    /// this much time has `passed`.
    fn later(&self, limiter: &Limiter, (then, now): (u64, u64), passed: Span) -> Decision {
        let admits = Decision {
            verdict: Verdict::Allow,
            limit: limiter.limit(),
            remaining: self.remaining,
            retry_after: None,
            reset_after: self.reset_after.saturating_sub(passed),
        };
        if now > limiter.capacity() || self.denied_ns == NEVER && now >= then {
            return Decision { verdict: Verdict::Deny, ..admits };
        }
        let mut wait = Span::from_nanos(if self.denied_ns == NEVER { 0 } else { self.denied_ns });
        if now > then && self.remaining < now {
            let answered = Decision { reset_after: self.reset_after, ..admits };
            wait = wait.max(limiter.soonest(&answered, now));
        }
        let rest = wait.saturating_sub(passed);
        if rest > Span::ZERO {
            return Decision { verdict: Verdict::Deny, retry_after: Some(rest), ..admits };
        }
        // It has waited for this many units.
        let remaining = if wait > Span::ZERO { self.remaining.max(now) } else { self.remaining };
        Decision { remaining, ..admits }
    }
}
