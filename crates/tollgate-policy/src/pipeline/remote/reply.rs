//! The replies: the decisions of a partition, or a version that is newer than the request's.
//!
//! Invariant: a reply is read completely or not at all; the format is in `wire`.

use alloc::vec::Vec;

use tollgate_core::{Decision, Timestamp};

use crate::pipeline::partition::{Partition, PartitionMut};
use crate::pipeline::partitions::{Failure, Status};
use crate::pipeline::plan::AppliedRule;
use crate::pipeline::remote::asked::Asked;
use crate::pipeline::remote::counts::Counts;
use crate::pipeline::remote::kept::Kept;
use crate::pipeline::remote::wire::{
    BLOCKED, CHARGED, DECIDED, DECISION_LEN, HELD, NEWER, OTHER_ENTRY, Reader, TOLD, WireError,
    write_decision,
};
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::record;
use crate::policy::stored_set::StoredSet;

impl Counts {
    /// Appends the decisions of `asked` to `out`, with the states if they are reported.
    pub(crate) fn write_reply(&self, asked: &Asked<'_>, at: Timestamp, out: &mut Vec<u8>) {
        let len = asked.decisions.len().saturating_mul(DECISION_LEN);
        out.reserve(len.saturating_add(asked.rules.len()).saturating_add(9));
        out.push(DECIDED);
        out.extend(at.as_nanos().to_le_bytes());
        let is_silent = asked.is_quiet || asked.is_untold;
        let tells = !is_silent && (asked.tells || asked.is_used_up());
        let mut decisions = asked.decisions.iter();
        for rule in &asked.rules {
            let is_charged = rule.charged.is_some() && !rule.due.is_settled();
            let kept = |kept: &&Kept| kept.parameters == rule.parameters;
            let told = if tells { self.sets.iter().find(kept) } else { None };
            let flags = if told.is_some() { TOLD } else { 0 };
            // Earlier code does not know the flag: it would treat the reply as invalid instead of
            // as a denial.
            let blocked_until = rule.blocked_until.filter(|_| !asked.is_quiet);
            let flags = flags | if blocked_until.is_some() { BLOCKED } else { 0 };
            out.push(if is_charged { flags | CHARGED } else { flags });
            if let Some(until) = blocked_until {
                out.extend(until.as_nanos().to_le_bytes());
            }
            for decision in decisions.by_ref().take(rule.quotas) {
                write_decision(decision, out);
            }
            out.extend_from_slice(told.map_or(&[], |kept| &kept.states));
        }
    }
}

impl Asked<'_> {
    /// True when a binding rule would deny the same request if it were repeated now.
    fn is_used_up(&self) -> bool {
        let mut decisions = self.decisions.iter();
        self.rules.iter().any(|rule| {
            let mut own = decisions.by_ref().take(rule.quotas);
            // Consume all, so that the next rule finds its own.
            let is_used_up =
                own.by_ref().filter(|d| is_used_up(d, rule.decided_cost())).count() > 0;
            rule.binding && is_used_up
        })
    }

    /// Reads the decisions from a reply to this request; returns the time of the decision.
    pub(crate) fn read_reply(&mut self, reply: &[u8]) -> Result<Timestamp, WireError> {
        let (mut bytes, at) = decided(reply)?;
        let mut decisions = self.decisions.iter_mut();
        for rule in &mut self.rules {
            let flags = flags(&mut bytes)?;
            rule.charged = (flags & CHARGED != 0).then_some(at);
            rule.blocked_until = blocked_until(flags, &mut bytes)?;
            for decision in decisions.by_ref().take(rule.quotas) {
                *decision = bytes.decision()?;
            }
            if flags & TOLD != 0 {
                let set = StoredSet::read(&mut &*rule.parameters).ok_or(WireError::Malformed)?;
                bytes.bytes(set.states_len())?;
            }
        }
        bytes.end()?;
        Ok(at)
    }
}

impl PartitionMut<'_> {
    /// Uses an object's reply as the decisions of this partition.
    ///
    /// # Errors
    /// [`WireError::Newer`] when the states belong to a newer policy than this plan's; for other
    /// errors the bytes are not a reply to this partition's request. Fail the partition then. With
    /// [`WireError::OtherEntry`] it has already failed and stored the entry.
    pub fn accept(&mut self, policy: &Policy, reply: &[u8]) -> Result<(), WireError> {
        if let Some((&OTHER_ENTRY, entry)) = reply.split_first()
            && self.stored.under.is_some()
        {
            self.fail(Failure::OtherEntry);
            self.stored.value.clear();
            self.stored.value.extend_from_slice(entry);
            return Err(WireError::OtherEntry);
        }
        if reply.first() == Some(&HELD) {
            return self.accept_held(policy, reply);
        }
        let (mut bytes, at) = decided(reply)?;
        let mut status = Status::Uncharged;
        let Self { index, applied, decisions, stored, .. } = self;
        stored.value.clear();
        for applied in applied.iter_mut().filter(|applied| applied.counts_in(*index)) {
            let flags = flags(&mut bytes)?;
            applied.charged = (flags & CHARGED != 0).then_some(at);
            applied.is_leased = false;
            applied.blocked_until = blocked_until(flags, &mut bytes)?;
            if applied.charged.is_some() {
                status = Status::Charged;
            }
            let slots = decisions.get_mut(applied.first_decision..).unwrap_or_default();
            for slot in slots.iter_mut().take(policy.quotas(applied).len()) {
                *slot = bytes.decision()?;
            }
            if flags & TOLD != 0 {
                let set = policy.applied_set(applied).ok_or(WireError::OtherPolicy)?;
                record::append(set, bytes.bytes(set.len)?, &mut stored.value);
            }
        }
        bytes.end()?;
        self.stored.at = at;
        self.stored.status = status;
        Ok(())
    }
}

impl<'p> Partition<'p> {
    /// True when an object reported used-up states: pass them to
    /// [`Denials::hear`](crate::Denials::hear).
    #[must_use]
    pub const fn has_told(&self) -> bool {
        self.stored.status.is_decided() && !self.stored.value.is_empty()
    }

    /// The reported states of a rule's quotas; `None` when there are none, because the same request
    /// may be allowed.
    pub(crate) fn told(&self, set: &QuotaSet) -> Option<&'p [u8]> {
        record::appended(set, &self.stored.value)
    }

    /// True when this rule would deny the same request if it were repeated now.
    pub(crate) fn uses_up(&self, policy: &Policy, applied: &AppliedRule) -> bool {
        let mut decisions = self.decisions_of(policy, applied);
        applied.binding && decisions.any(|decision| is_used_up(decision, applied.decided_cost()))
    }
}

/// True when nothing with the same cost fits after this decision.
const fn is_used_up(decision: &Decision, cost: u64) -> bool {
    !decision.is_admitted() || decision.remaining < cost
}

/// The rest of `reply` after its head, and the time of the decision.
fn decided(reply: &[u8]) -> Result<(Reader<'_>, Timestamp), WireError> {
    let mut bytes = Reader(reply);
    match bytes.u8()? {
        DECIDED => {
            let at = Timestamp::from_nanos(bytes.u64()?);
            Ok((bytes, at))
        }
        NEWER => {
            let version = bytes.u64()?;
            bytes.end()?;
            Err(WireError::Newer(version))
        }
        _ => Err(WireError::Malformed),
    }
}

fn flags(bytes: &mut Reader<'_>) -> Result<u8, WireError> {
    let flags = bytes.u8()?;
    if flags & !(CHARGED | TOLD | BLOCKED) == 0 { Ok(flags) } else { Err(WireError::Malformed) }
}

/// The end of the block of the rule's key, if the flags contain one.
fn blocked_until(flags: u8, bytes: &mut Reader<'_>) -> Result<Option<Timestamp>, WireError> {
    if flags & BLOCKED == 0 {
        return Ok(None);
    }
    bytes.u64().map(Timestamp::from_nanos).map(Some)
}
