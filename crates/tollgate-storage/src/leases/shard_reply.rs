//! A shard's reply to a request that it decides on its own, and its decoding.
//!
//! All numbers are little-endian. [`HELD`]; the time `u64`; the 128 bits of the shard's memory
//! `u128`; then per rule: the result `u8` (0 not charged, 1 paid, 2 denied), the number of the
//! lease that paid it `u64`, the held units left `u64`, the rest of their life or the wait in
//! nanoseconds `u64`.
//!
//! Invariant: a reply is read completely or not at all. Its numbers for a rule are the units that
//! the shard holds, not those that the key has left.

use alloc::vec::Vec;

use tollgate_core::{Decision, Span, Timestamp};

use crate::counts::Counts;
use crate::request::Request;
use crate::wire::{HELD, Reader, WireError};

/// The result for one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldRule {
    /// No unit was taken for it.
    Free,
    /// Paid from the lease with this number.
    Paid {
        /// The number.
        number: u64,
    },
    /// It is denied again: it was denied recently.
    Denied,
}

/// The part of a reply for one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldWord {
    /// The result.
    pub what: HeldRule,
    /// Held units left.
    pub left: u64,
    /// The rest of their life, or how long to wait.
    pub rest: Span,
}

/// A recent denial by the key's object, repeated for the same request.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) request: Vec<u8>,
    pub(crate) reply: Vec<u8>,
    pub(crate) heard_at: Timestamp,
}

/// The time of a reply, and the memory that sent it.
pub type HeldHead = (Timestamp, u128);

/// Appends a reply to `out`.
pub(crate) fn write_held((at, table): HeldHead, words: &[HeldWord], out: &mut Vec<u8>) {
    out.push(HELD);
    out.extend(at.as_nanos().to_le_bytes());
    out.extend(table.to_le_bytes());
    for word in words {
        let (what, number) = match word.what {
            HeldRule::Free => (0, 0),
            HeldRule::Paid { number } => (1, number),
            HeldRule::Denied => (2, 0),
        };
        out.push(what);
        for number in [number, word.left, word.rest.as_nanos()] {
            out.extend(number.to_le_bytes());
        }
    }
}

/// Reads a reply with this number of rules.
///
/// # Errors
/// The bytes are not such a reply.
pub fn read_held(reply: &[u8], rules: usize) -> Result<(HeldHead, Vec<HeldWord>), WireError> {
    let mut bytes = Reader(reply);
    if bytes.u8()? != HELD {
        return Err(WireError::Malformed);
    }
    let head = (Timestamp::from_nanos(bytes.u64()?), bytes.u128()?);
    let mut words = Vec::with_capacity(rules);
    for _ in 0..rules {
        let (what, number) = (bytes.u8()?, bytes.u64()?);
        let what = match what {
            0 => HeldRule::Free,
            1 => HeldRule::Paid { number },
            2 => HeldRule::Denied,
            _ => return Err(WireError::Malformed),
        };
        let (left, rest) = (bytes.u64()?, Span::from_nanos(bytes.u64()?));
        words.push(HeldWord { what, left, rest });
    }
    bytes.end()?;
    Ok((head, words))
}

impl Refusal {
    /// The same at a later time: waits are shorter. It contains no states, which would belong to
    /// the earlier time.
    pub(crate) fn said_at(&self, now: Timestamp) -> Option<Vec<u8>> {
        let mut asked = Request::read(&self.request).ok()?;
        asked.read_reply(&self.reply).ok()?;
        let passed = now.since(self.heard_at);
        let sooner = |decision: &mut Decision| {
            let rest = |span: Span| span.saturating_sub(passed).max(Span::from_nanos(1));
            decision.retry_after = decision.retry_after.map(rest);
            decision.reset_after = decision.reset_after.saturating_sub(passed);
        };
        asked.decisions.iter_mut().for_each(sooner);
        let mut reply = Vec::new();
        Counts::default().write_reply(&asked, now, &mut reply);
        Some(reply)
    }
}
