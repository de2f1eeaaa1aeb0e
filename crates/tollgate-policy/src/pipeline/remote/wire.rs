//! The numbers of the wire: what a request and a reply begin with, and how decisions stand in them.
//!
//! Invariant: all numbers are little-endian, and any bytes are read as something or as an error.
//!
//! **Request**, format 2: [`MAGIC`]; the policy's version `u64`; the identity of the key's group
//! `u64`; flags `u8` (1: the count must be durable before the answer leaves, 2: it is what a
//! response brought about, 4: no states are told, 8: it was planned with an entry of its tenant,
//! 16: the states are told in any case, 32: none are, but blocks); with the flag 8 the entry's
//! revision `u64`, 0 for none; then per rule: flags `u8` (1 binding, 2 charged later, 4 given
//! back, 8 waits at most, 16 held and used, 32 reported: recorded whatever is decided), the stable
//! identity of the rule `u64`, cost `u64`, with the flag 8 the longest wait `u64`, the parameters
//! of its quotas ([`StoredSet`](crate::StoredSet)), and with the flag 4 or 16, for a charge that is
//! to be taken back or was held: its time `u64` and per quota its delay `u64`.
//!
//! **Reply**: 0 and the time of the decision `u64`, then per rule: flags `u8` (1 charged, 2 states
//! follow, 4 blocked), with the flag 4 until when `u64`, and per quota: verdict `u8`, delay,
//! limit, remaining, `retry_after` (all ones: none) and `reset_after`, each `u64`; then, with the
//! flag 2, the states. These are told when a binding rule would refuse the same request now, when
//! the request wants them, and with a charge that was taken back: whoever asked can then refuse by
//! itself what comes next, and say beside it what the other counts would have said
//! ([`Denials`](crate::Denials)). Or 1 and a version `u64`: the states are of that policy, which is
//! newer than the request's; nothing was charged. Or 4 and the tenant's entry, in bytes of the
//! store's own: the request was planned with another one; nothing was charged. Or 5: what a shard
//! holds decided it (`leases::shard_reply`).
//!
//! **Format 1**, of code that had a policy on both sides: a request names group and rules by their
//! identities alone (`format_1`), its reply lacks the first byte and tells no states. Where format
//! 2 has its magic, format 1 has the identity of a group, so either side takes the other's for a
//! group that it does not know, and says so: never for something to decide.

use alloc::vec::Vec;
use core::fmt;

use tollgate_core::{Decision, Span, Verdict};

/// What a request of format 2 begins with.
pub(crate) const MAGIC: [u8; 8] = *b"tollgt\x00\x02";

/// What a request begins with that settles a cost: `settle` has the rest.
pub(crate) const SETTLE: [u8; 8] = *b"tollgt\x00S";

/// What stands before a request of format 2 that is about leases, too: `leases` has the rest.
pub(crate) const LEASES: [u8; 8] = *b"tollgt\x00L";

/// Flags of a request.
pub(crate) const STRICT: u8 = 1;
pub(crate) const SETTLES: u8 = 2;
pub(crate) const QUIET: u8 = 4;
pub(crate) const UNDER: u8 = 8;
pub(crate) const TELL: u8 = 16;
pub(crate) const UNTOLD: u8 = 32;

/// Flags of a rule in it.
pub(crate) const BINDING: u8 = 1;
pub(crate) const LATER: u8 = 2;
pub(crate) const GIVEN_BACK: u8 = 4;
pub(crate) const WAITS: u8 = 8;
pub(crate) const USED: u8 = 16;
pub(crate) const REPORTED: u8 = 32;

/// What a reply begins with.
pub(crate) const DECIDED: u8 = 0;
pub(crate) const NEWER: u8 = 1;
pub(crate) const SETTLED: u8 = 2;
pub(crate) const LEASED: u8 = 3;
pub(crate) const OTHER_ENTRY: u8 = 4;
pub(crate) const HELD: u8 = 5;

/// What became of a cost that was to be settled.
pub(crate) const STANDS: u8 = 0;
pub(crate) const ANOTHER_COST: u8 = 1;
pub(crate) const TOO_OLD: u8 = 2;

/// Flags of a rule in it.
pub(crate) const CHARGED: u8 = 1;
pub(crate) const TOLD: u8 = 2;
pub(crate) const BLOCKED: u8 = 4;

/// Bytes of one decision.
pub(crate) const DECISION_LEN: usize = 41;

const NO_WAIT: u64 = u64::MAX;

/// Why bytes from elsewhere cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// They are not of this format.
    Malformed,
    /// They name a rule that this policy does not have: the other side has another version.
    OtherPolicy,
    /// The states are of a policy of this version, which is newer than the request's: nothing was
    /// charged, and the request is to be planned anew under that version.
    Newer(u64),
    /// The tenant has another entry than the one that the request was planned with: nothing was
    /// charged. The partition has taken note of it ([`Plan::other_entry`](crate::Plan)), and is not
    /// to be failed for it.
    OtherEntry,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("malformed request or reply"),
            Self::OtherPolicy => f.write_str("the other side has another version of the policy"),
            Self::Newer(version) => {
                write!(f, "what is stored is of version {version} of the policy")
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
    };
    out.push(verdict);
    out.extend(delay.as_nanos().to_le_bytes());
    out.extend(decision.limit.to_le_bytes());
    out.extend(decision.remaining.to_le_bytes());
    out.extend(decision.retry_after.map_or(NO_WAIT, Span::as_nanos).to_le_bytes());
    out.extend(decision.reset_after.as_nanos().to_le_bytes());
}

/// Reads numbers from the front of bytes.
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'b [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.take().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, WireError> {
        self.take().map(u128::from_le_bytes)
    }

    pub(crate) fn decision(&mut self) -> Result<Decision, WireError> {
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

    /// Fails where bytes are left.
    pub(crate) const fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Malformed) }
    }
}
