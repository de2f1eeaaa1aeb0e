//! A partition decided elsewhere: what goes to a Durable Object, and what comes back.
//!
//! Invariant: no key and nothing that a client sent is in these bytes, only identities of rules and
//! costs; an object accepts a request only if it knows every rule in it, so that two versions of a
//! policy never decide by each other's quotas. All numbers are little-endian.
//!
//! Request: group identity `u64`, then per rule: record identity `u32`, flags `u8` (1 binding, 2
//! charged later), cost `u64`; with the flags 4, for a charge that is to be taken back: its time
//! `u64` and per quota its delay `u64`. Reply: time of the decision `u64`, then per rule: flags `u8`
//! (1 charged, 2 states follow), and per quota: verdict `u8`, delay, limit, remaining,
//! `retry_after` (all ones: none) and `reset_after`, each `u64`; then, with the flag 2, the states.
//!
//! The states are told when a binding rule of the partition would refuse the same request now:
//! whoever asked can then refuse by itself what comes next ([`Denials`](crate::Denials)).

use alloc::vec::Vec;
use core::fmt;

use tollgate_core::{Decision, Span, Timestamp, Verdict};

use crate::pipeline::partition::{Partition, PartitionMut};
use crate::pipeline::partitions::Status;
use crate::pipeline::plan::{AppliedRule, AppliedSet, Due, Plan};
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::record;

/// Why bytes from elsewhere cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// They are not of this format.
    Malformed,
    /// They name a rule that this policy does not have: the other side has another version.
    OtherPolicy,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed request or reply",
            Self::OtherPolicy => "the other side has another version of the policy",
        })
    }
}

impl core::error::Error for WireError {}

const NO_WAIT: u64 = u64::MAX;
const BINDING: u8 = 1;
const LATER: u8 = 2;
const GIVEN_BACK: u8 = 4;

/// Flags of a reply.
const CHARGED: u8 = 1;
const TOLD: u8 = 2;

impl Partition<'_> {
    /// Appends to `out` what an object needs to decide this partition of `plan`.
    pub fn request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, 0, out);
    }

    /// The same for an object that is to say what it would decide, and to charge nothing.
    pub fn peek_request(&self, policy: &Policy, out: &mut Vec<u8>) {
        self.write_request(policy, LATER, out);
    }

    /// The request with these flags on every rule, beside the rule's own.
    fn write_request(&self, policy: &Policy, flags: u8, out: &mut Vec<u8>) {
        let Some(group) = policy.groups.get(self.group()) else { return };
        out.extend(group.identity().to_le_bytes());
        for applied in self.rules() {
            if let Some(set) = policy.applied_set(applied) {
                out.extend(set.record_id.to_le_bytes());
                let binding = if applied.binding { BINDING } else { 0 };
                let due = match applied.due {
                    Due::Now | Due::Held => 0,
                    Due::Later => LATER,
                    Due::GivenBack => GIVEN_BACK,
                };
                out.push(binding | due | flags);
                out.extend(applied.cost.to_le_bytes());
                if applied.due == Due::GivenBack {
                    self.write_charge(policy, applied, out);
                }
            }
        }
    }

    fn write_charge(&self, policy: &Policy, applied: &AppliedRule, out: &mut Vec<u8>) {
        let at = applied.charged.unwrap_or_default();
        out.extend(at.as_nanos().to_le_bytes());
        for decision in self.decisions_of(policy, applied) {
            let charge = decision.charge(at, applied.cost);
            out.extend(charge.map_or(0, |charge| charge.delay.as_nanos()).to_le_bytes());
        }
    }
}

impl Plan {
    /// The plan of one partition, index 0, that a request asks for.
    ///
    /// # Errors
    /// The bytes are no request, or of a policy with other rules.
    pub fn from_request(policy: &Policy, bytes: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Reader(bytes);
        let identity = bytes.u64()?;
        let group = policy.groups.iter().position(|group| group.identity() == identity);
        let group = group.and_then(|i| u16::try_from(i).ok()).ok_or(WireError::OtherPolicy)?;
        let mut plan = Self::new();
        plan.partitions.add(group, 0..0);
        let mut verdicts = Vec::new();
        while !bytes.0.is_empty() {
            let (id, flags, cost) = (bytes.u32()?, bytes.u8()?, bytes.u64()?);
            let (set, found) = (0_u16..)
                .zip(&policy.sets)
                .find(|(_, set)| set.record_id == id)
                .ok_or(WireError::OtherPolicy)?;
            let rule = policy.rules.get(usize::from(found.rule)).ok_or(WireError::OtherPolicy)?;
            if rule.group != group
                || plan
                    .applied
                    .iter()
                    .any(|applied| policy.index_of(&applied.set) == usize::from(set))
            {
                return Err(WireError::Malformed);
            }
            let (due, charged) = match flags & !BINDING {
                0 => (Due::Now, None),
                LATER => (Due::Later, None),
                GIVEN_BACK => (Due::GivenBack, Some(Timestamp::from_nanos(bytes.u64()?))),
                _ => return Err(WireError::Malformed),
            };
            for _ in &found.quotas {
                let delay = charged.map(|_| bytes.u64()).transpose()?.unwrap_or(0);
                verdicts.push(match delay {
                    0 => Verdict::Allow,
                    _ => Verdict::Delay(Span::from_nanos(delay)),
                });
            }
            plan.applied.push(AppliedRule {
                rule: found.rule,
                set: AppliedSet::OfPolicy(set),
                cost,
                partition: Some(0),
                malformed: None,
                first_decision: 0,
                enforced: true,
                binding: flags & BINDING != 0,
                due,
                charged,
                rejected_waiting: false,
                is_unasked: false,
            });
        }
        plan.reserve_decisions(policy);
        for (decision, verdict) in plan.decisions.iter_mut().zip(verdicts) {
            // Of a charge that is to be taken back; any other is decided anew.
            decision.verdict = verdict;
        }
        Ok(plan)
    }

    /// Appends to `out` the decisions of its one partition, for [`PartitionMut::accept`].
    pub fn reply(&self, policy: &Policy, out: &mut Vec<u8>) {
        let Some(partition) = self.partition(0) else { return };
        out.extend(partition.stored.at.as_nanos().to_le_bytes());
        let tells = partition.is_used_up(policy);
        for applied in partition.rules() {
            let is_charged = applied.charged.is_some() && applied.due != Due::GivenBack;
            let states = partition.states(policy, applied).filter(|_| tells);
            let told = states.map_or(0, |_| TOLD);
            out.push(if is_charged { CHARGED | told } else { told });
            for decision in partition.decisions_of(policy, applied) {
                write_decision(decision, out);
            }
            out.extend_from_slice(states.unwrap_or_default());
        }
    }
}

impl<'p> Partition<'p> {
    /// True when an object told what is used up: [`Denials::hear`](crate::Denials::hear) it.
    #[must_use]
    pub const fn has_told(&self) -> bool {
        self.stored.status.is_decided() && !self.stored.value.is_empty()
    }

    /// The states that an object told of a rule's quotas; `None` when it told none, because the
    /// same request may be admitted.
    pub(crate) fn told(&self, set: &QuotaSet) -> Option<&'p [u8]> {
        record::appended(set, &self.stored.value)
    }

    /// True when a binding rule would refuse the same request if it came once more now.
    fn is_used_up(&self, policy: &Policy) -> bool {
        self.rules().any(|applied| self.uses_up(policy, applied))
    }

    /// True when this rule would.
    pub(crate) fn uses_up(&self, policy: &Policy, applied: &AppliedRule) -> bool {
        let mut decisions = self.decisions_of(policy, applied);
        let refuses = |d: &Decision| !d.is_admitted() || d.remaining < applied.cost;
        applied.binding && decisions.any(refuses)
    }

    fn states(&self, policy: &Policy, applied: &AppliedRule) -> Option<&'p [u8]> {
        record::states(policy.applied_set(applied)?, &self.stored.value)
    }
}

impl PartitionMut<'_> {
    /// Takes an object's reply as the decisions of this partition.
    ///
    /// # Errors
    /// The bytes are no reply to this partition's request: fail the partition then.
    pub fn accept(&mut self, policy: &Policy, reply: &[u8]) -> Result<(), WireError> {
        let mut bytes = Reader(reply);
        let at = Timestamp::from_nanos(bytes.u64()?);
        let mut status = Status::Uncharged;
        let Self { index, applied, decisions, stored, .. } = self;
        stored.value.clear();
        for applied in applied.iter_mut().filter(|applied| applied.counts_in(*index)) {
            let flags = bytes.u8()?;
            if flags & !(CHARGED | TOLD) != 0 {
                return Err(WireError::Malformed);
            }
            applied.charged = (flags & CHARGED != 0).then_some(at);
            if applied.charged.is_some() {
                status = Status::Charged;
            }
            let slots = decisions.get_mut(applied.first_decision..).unwrap_or_default();
            for slot in slots.iter_mut().take(policy.quotas(applied).len()) {
                *slot = bytes.decision()?;
            }
            if flags & TOLD != 0 {
                let set = policy.applied_set(applied).ok_or(WireError::OtherPolicy)?;
                record::append(set, bytes.slice(set.len)?, &mut stored.value);
            }
        }
        if !bytes.0.is_empty() {
            return Err(WireError::Malformed);
        }
        self.stored.at = at;
        self.stored.status = status;
        Ok(())
    }
}

fn write_decision(decision: &Decision, out: &mut Vec<u8>) {
    let (verdict, delay) = match decision.verdict {
        Verdict::Allow => (0, Span::ZERO),
        Verdict::Delay(delay) => (1, delay),
        Verdict::Deny => (2, Span::ZERO),
    };
    out.push(verdict);
    out.extend(delay.as_nanos().to_le_bytes());
    out.extend(decision.limit.to_le_bytes());
    out.extend(decision.remaining.to_le_bytes());
    out.extend(decision.retry_after.map_or(NO_WAIT, Span::as_nanos).to_le_bytes());
    out.extend(decision.reset_after.as_nanos().to_le_bytes());
}

/// Reads numbers from the front of bytes.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn slice(&mut self, len: usize) -> Result<&'b [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.take().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_le_bytes)
    }

    fn decision(&mut self) -> Result<Decision, WireError> {
        let verdict = self.u8()?;
        let delay = Span::from_nanos(self.u64()?);
        Ok(Decision {
            verdict: match verdict {
                0 => Verdict::Allow,
                1 => Verdict::Delay(delay),
                2 => Verdict::Deny,
                _ => return Err(WireError::Malformed),
            },
            limit: self.u64()?,
            remaining: self.u64()?,
            retry_after: Some(self.u64()?).filter(|n| *n != NO_WAIT).map(Span::from_nanos),
            reset_after: Span::from_nanos(self.u64()?),
        })
    }
}
