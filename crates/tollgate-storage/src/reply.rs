//! The replies: the decisions of a partition, or a version that is newer than the request's.
//!
//! Invariant: a reply is read completely or not at all; the format is in `wire`.

use alloc::vec::Vec;

use tollgate_core::{Decision, Timestamp};

use crate::counted_set::CountedSet;
use crate::counts::Counts;
use crate::due::Due;
use crate::request::Request;
use crate::stored_set::StoredSet;
use crate::wire::{
    BLOCKED, CHARGED, DECIDED, DECISION_LEN, HAS_STATES, NEWER, Reader, WireError, write_decision,
};

impl Counts {
    /// Appends the decisions of `asked` to `out`, with the states if they are reported.
    pub(crate) fn write_reply(&self, asked: &Request<'_>, at: Timestamp, out: &mut Vec<u8>) {
        let len = asked.decisions.len().saturating_mul(DECISION_LEN);
        out.reserve(len.saturating_add(asked.rules.len()).saturating_add(9));
        out.push(DECIDED);
        out.extend(at.as_nanos().to_le_bytes());
        let includes_states = !asked.omits_states && (asked.includes_states || asked.is_used_up());
        let mut decisions = asked.decisions.iter();
        for rule in &asked.rules {
            let is_charged = rule.charged.is_some() && !matches!(rule.due, Due::Settled(_));
            let kept = |set: &&CountedSet| set.quotas.parameters == rule.parameters;
            let kept_set = if includes_states { self.sets.iter().find(kept) } else { None };
            let flags = if kept_set.is_some() { HAS_STATES } else { 0 };
            let flags = flags | if rule.blocked_until.is_some() { BLOCKED } else { 0 };
            out.push(if is_charged { flags | CHARGED } else { flags });
            if let Some(until) = rule.blocked_until {
                out.extend(until.as_nanos().to_le_bytes());
            }
            for decision in decisions.by_ref().take(rule.quotas) {
                write_decision(decision, out);
            }
            out.extend_from_slice(kept_set.map_or(&[], |kept| &kept.states));
        }
    }
}

impl Request<'_> {
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
        let mut reply = Reply::read(reply)?;
        let mut decisions = self.decisions.iter_mut();
        for rule in &mut self.rules {
            let states_len = || Some(StoredSet::read(&mut &*rule.parameters)?.states_len());
            let own = decisions.by_ref().take(rule.quotas);
            let read = reply.rule(own, states_len)?;
            (rule.charged, rule.blocked_until) = (read.charged, read.blocked_until);
        }
        let at = reply.end()?;
        Ok(at)
    }
}

/// True when nothing with the same cost fits after this decision.
pub const fn is_used_up(decision: &Decision, cost: u64) -> bool {
    !decision.is_admitted() || decision.remaining < cost
}

/// A reply with decisions, read rule by rule in the order of the request.
pub struct Reply<'b> {
    bytes: Reader<'b>,
    at: Timestamp,
}

/// The reply to one rule, except for its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleReply<'b> {
    /// When it was charged, if it was.
    pub charged: Option<Timestamp>,
    /// The end of an operator's block of its key.
    pub blocked_until: Option<Timestamp>,
    /// The states of its quotas, if the reply contains them.
    pub states: Option<&'b [u8]>,
}

impl<'b> Reply<'b> {
    /// Reads the head of a reply.
    ///
    /// # Errors
    /// [`WireError::Newer`] when nothing was decided, because the states belong to a newer policy
    /// than the request's; [`WireError::Malformed`] for bytes that are not such a reply.
    pub fn read(reply: &'b [u8]) -> Result<Self, WireError> {
        let mut bytes = Reader(reply);
        match bytes.u8()? {
            DECIDED => {
                let at = Timestamp::from_nanos(bytes.u64()?);
                Ok(Self { bytes, at })
            }
            NEWER => {
                let version = bytes.u64()?;
                bytes.end()?;
                Err(WireError::Newer(version))
            }
            _ => Err(WireError::Malformed),
        }
    }

    /// Reads the next rule, with a decision for each of `decisions`. `states_len` is the length of
    /// its states in bytes.
    ///
    /// # Errors
    /// The bytes are not a reply to this rule.
    pub fn rule<'d>(
        &mut self,
        decisions: impl Iterator<Item = &'d mut Decision>,
        states_len: impl FnOnce() -> Option<usize>,
    ) -> Result<RuleReply<'b>, WireError> {
        let bytes = &mut self.bytes;
        let flags = bytes.u8()?;
        if flags & !(CHARGED | HAS_STATES | BLOCKED) != 0 {
            return Err(WireError::Malformed);
        }
        let is_set = |flag: u8| flags & flag != 0;
        let until = if is_set(BLOCKED) { Some(bytes.u64()?) } else { None };
        for decision in decisions {
            *decision = bytes.decision()?;
        }
        let states = match is_set(HAS_STATES) {
            true => Some(bytes.bytes(states_len().ok_or(WireError::Malformed)?)?),
            false => None,
        };
        let charged = is_set(CHARGED).then_some(self.at);
        Ok(RuleReply { charged, blocked_until: until.map(Timestamp::from_nanos), states })
    }

    /// The time of the decisions, at the end of the reply.
    ///
    /// # Errors
    /// Bytes are left.
    pub fn end(&self) -> Result<Timestamp, WireError> {
        self.bytes.end().map(|()| self.at)
    }
}
