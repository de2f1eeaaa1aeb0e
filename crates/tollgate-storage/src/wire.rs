//! The wire format: the first bytes of requests and replies, and the encoding of decisions.
//!
//! Invariant: all numbers are little-endian. Any bytes are accepted: the result is a value or an
//! error.
//!
//! **Request**, format 2: `MAGIC`; the policy's version `u64`; the identity of the key's group
//! `u64`; flags `u8` (1: the count must be durable before the reply is sent, 2: it contains the
//! effects of a response, 8: it was planned with an entry of its
//! tenant, 16: the reply always contains the states, 32: the reply contains blocks but no states);
//! with the flag 8 the entry's revision `u64`, 0 for none; then per rule: flags `u8` (1 binding, 2
//! charged later, 4 settled by its response, 8 has a longest wait, 16 the request has limits of its
//! own, 32 reported: recorded whatever the decision is, 64 its denial starts the penalties of its
//! quotas, 128 it is still in flight and its charge is confirmed), the stable identity of the rule
//! `u64`, cost `u64`, with the flag 8 the longest wait `u64`, the parameters of its quotas
//! ([`StoredSet`](crate::StoredSet)); with the flag 16 the limit of this request in each quota
//! `u64`; with the flag 4 the units that it used `u64`, the time of its charge `u64` and per quota
//! the delay of the charge `u64`; with the flag 128 the time of its charge `u64`, and the reply
//! denies it when nothing counts it any more.
//!
//! **Reply**: 0 and the time of the decision `u64`, then per rule: flags `u8` (1 charged, 2 states
//! follow, 4 blocked), with the flag 4 the end of the block `u64`, and per quota: verdict `u8`,
//! delay, limit, remaining, `retry_after` (all ones: none) and `reset_after`, each `u64`; then,
//! with the flag 2, the states. The states are included when a binding rule would deny the same
//! request now, when the request asks for them, and with a charge that was refunded: the sender can
//! then deny later requests on its own, and report the decisions of the other counts with them
//! (`Denials`). Or 1 and a version `u64`: the states belong to that policy, which
//! is newer than the request's; nothing was charged. Or 4 and the tenant's entry, in the store's
//! own bytes: the request was planned with another one; nothing was charged. Or 5: a shard decided
//! it with the units that it holds (`leases::shard_reply`). Or 6: a request in flight was confirmed
//! or released (`in_flight`).
//!
//! A request that begins otherwise is of another version, and is refused as that
//! ([`WireError::OtherPolicy`]); it is never decided.

use alloc::vec::Vec;
use core::fmt;

use tollgate_core::{Decision, Span, Verdict};

use crate::bytes::Bytes;

/// The first bytes of a request of format 2.
pub(crate) const MAGIC: [u8; 8] = *b"tollgt\x00\x02";

/// The first bytes of a request that settles a cost; the rest is in `settle`.
pub(crate) const SETTLE: [u8; 8] = *b"tollgt\x00S";

/// The bytes before a request of format 2 that also concerns leases; the rest is in `leases`.
pub(crate) const LEASES: [u8; 8] = *b"tollgt\x00L";

/// The first bytes of a report about a request in flight; the rest is in `in_flight`.
pub(crate) const REPORTS: [u8; 8] = *b"tollgt\x00F";

/// Flag of a request: the count must be durable before the reply is sent.
pub const STRICT: u8 = 1;
/// Flag of a request: it contains the effects of a response.
pub const SETTLES: u8 = 2;
/// Flag of a request: it was planned with an entry of its tenant.
pub(crate) const UNDER: u8 = 8;
/// Flag of a request: the reply always contains the states.
pub const WITH_STATES: u8 = 16;
/// Flag of a request: the reply contains blocks but no states.
pub const WITHOUT_STATES: u8 = 32;

/// Flag of a rule in a request: its denial denies the request.
pub const BINDING: u8 = 1;
/// Flag of a rule in a request: charged later.
pub const LATER: u8 = 2;
/// Flag of a rule in a request: its response settled its charge, and the units that it used follow.
pub const USED: u8 = 4;
/// Flag of a rule in a request: it has a longest wait.
pub(crate) const WAITS: u8 = 8;
/// Flag of a rule in a request: the request has limits of its own, which follow the parameters.
pub const LIMITS: u8 = 16;
/// Flag of a rule in a request: recorded whatever the decision is.
pub const REPORTED: u8 = 32;
/// Flag of a rule in a request: its denial is final, and starts the penalties of its quotas.
pub const PUNISHES: u8 = 64;

/// Flag of a rule in a request: it is still in flight, and the time of its charge follows.
pub const RENEWED: u8 = 128;

/// The first byte of a reply.
pub(crate) const DECIDED: u8 = 0;
pub(crate) const NEWER: u8 = 1;
pub(crate) const SETTLED: u8 = 2;
pub(crate) const LEASED: u8 = 3;
/// First byte of a reply: the tenant's entry follows, and nothing was charged.
pub const OTHER_ENTRY: u8 = 4;
/// First byte of a reply: a shard decided with the units that it holds.
pub const HELD: u8 = 5;
/// First byte of a reply to a report about a request in flight.
pub(crate) const IN_FLIGHT: u8 = 6;

/// The result of a settlement.
pub(crate) const STANDS: u8 = 0;
pub(crate) const ANOTHER_COST: u8 = 1;
pub(crate) const TOO_OLD: u8 = 2;

/// Flags of a rule in a reply.
pub(crate) const CHARGED: u8 = 1;
pub(crate) const HAS_STATES: u8 = 2;
pub(crate) const BLOCKED: u8 = 4;

/// Bytes of one decision.
pub(crate) const DECISION_LEN: usize = 41;

const NO_WAIT: u64 = u64::MAX;

/// Why bytes from another process cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// They are not in this format.
    Malformed,
    /// They contain a rule that this policy does not have: the other side has another version.
    OtherPolicy,
    /// The states belong to a policy of this version, which is newer than the request's: nothing
    /// was charged, and the request must be planned again with that version.
    Newer(u64),
    /// The tenant has a different entry from the one with which the request was planned: nothing
    /// was charged. The partition has stored the entry (`Plan::outdated`); do not
    /// fail it for this.
    OtherEntry,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed request or reply"),
            Self::OtherPolicy => f.write_str("the other side has another version of the policy"),
            Self::Newer(version) => {
                write!(f, "the stored counts belong to version {version} of the policy")
            }
            Self::OtherEntry => f.write_str("the tenant has another entry"),
        }
    }
}

impl core::error::Error for WireError {}

/// Appends `decision` to `out`.
pub(crate) fn write_decision(decision: &Decision, out: &mut Vec<u8>) {
    let (verdict, delay) = match decision.verdict {
        Verdict::Allow => (0, Span::ZERO),
        Verdict::Delay(delay) => (1, delay),
        Verdict::Deny => (2, Span::ZERO),
        Verdict::Penalty => (3, Span::ZERO),
    };
    out.push(verdict);
    out.extend(delay.as_nanos().to_le_bytes());
    out.extend(decision.limit.to_le_bytes());
    out.extend(decision.remaining.to_le_bytes());
    out.extend(decision.retry_after.map_or(NO_WAIT, Span::as_nanos).to_le_bytes());
    out.extend(decision.reset_after.as_nanos().to_le_bytes());
}

/// Reads a message; bytes that end too early are malformed.
pub(crate) struct Reader<'b>(pub &'b [u8]);

impl<'b> Reader<'b> {
    fn next<T>(&mut self, read: impl Fn(&mut Bytes<'b>) -> Option<T>) -> Result<T, WireError> {
        let mut bytes = Bytes(self.0);
        let next = read(&mut bytes).ok_or(WireError::Malformed)?;
        self.0 = bytes.0;
        Ok(next)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'b [u8], WireError> {
        self.next(|bytes| bytes.take(len))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.next(Bytes::u8)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.next(Bytes::u16)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.next(Bytes::u32)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.next(Bytes::u64)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, WireError> {
        self.next(Bytes::u128)
    }

    pub(crate) fn decision(&mut self) -> Result<Decision, WireError> {
        let verdict = self.u8()?;
        let delay = Span::from_nanos(self.u64()?);
        Ok(Decision {
            verdict: match verdict {
                0 => Verdict::Allow,
                1 => Verdict::Delay(delay),
                2 => Verdict::Deny,
                3 => Verdict::Penalty,
                _ => return Err(WireError::Malformed),
            },
            limit: self.u64()?,
            remaining: self.u64()?,
            retry_after: Some(self.u64()?).filter(|n| *n != NO_WAIT).map(Span::from_nanos),
            reset_after: Span::from_nanos(self.u64()?),
        })
    }

    /// Fails when bytes are left.
    pub(crate) const fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Malformed) }
    }
}
