//! Rows and requests of earlier code, where both sides had a policy.
//!
//! Invariant: their identities are looked up in the deployed policy, as in that code. Unknown
//! identities are an error, never guessed. So a deployment of the current code resets no key, and
//! while it spreads, current objects answer requests from earlier fronts.
//!
//! Request: group identity `u64`, then per rule: record identity `u32`, flags `u8` and cost `u64`,
//! and with the flag 4 its time and delays as in format 2. Reply: format 2 without its first byte.
//! Row: group identity `u64`, alarm `u64`, then the group's value (`record`).

use alloc::borrow::Cow;
use alloc::vec::Vec;

use tollgate_core::Timestamp;

use crate::pipeline::remote::asked::settles;
use crate::pipeline::remote::counts::{Answered, Counts};
use crate::pipeline::remote::kept::Kept;
use crate::pipeline::remote::wire::{
    BINDING, DECIDED, GIVEN_BACK, LATER, LEASES, MAGIC, QUIET, Reader, STRICT, WAITS, WireError,
};
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::record;
use crate::policy::records::is_value;

impl Counts {
    /// True for a request that [`Counts::answer`] reads; any other is of format 1 or invalid.
    #[must_use]
    pub fn reads(request: &[u8]) -> bool {
        request.starts_with(&MAGIC) || request.starts_with(&LEASES) || settles(request)
    }

    /// The counts in a row of format 1, as far as `policy` contains their quotas; `None` for bytes
    /// that are not such a row.
    #[must_use]
    pub fn decode_format_1(row: &[u8], policy: &Policy) -> Option<Self> {
        let (group, rest) = row.split_first_chunk()?;
        let (alarm_at, value) = rest.split_first_chunk()?;
        if !is_value(value) {
            return None;
        }
        let kept = |set: &QuotaSet| {
            let states = record::find(value, set).map(Cow::into_owned)?;
            Some(Kept::new(set.to_stored(), states))
        };
        Some(Self {
            group: u64::from_le_bytes(*group),
            alarm_at: Timestamp::from_nanos(u64::from_le_bytes(*alarm_at)),
            sets: policy.sets.iter().filter_map(kept).collect(),
            ..Self::default()
        })
    }

    /// [`Counts::answer`] to a request of format 1, in that format.
    ///
    /// # Errors
    /// The bytes are not a request, or contain an identity that `policy` does not have; nothing is
    /// changed then.
    pub fn answer_format_1(
        &mut self,
        policy: &Policy,
        request: &[u8],
        now: Timestamp,
    ) -> Result<Answered, WireError> {
        self.answer(&upgraded(policy, request)?, now).and_then(downgraded)
    }

    /// [`Counts::refund`] of a request of format 1, in that format.
    ///
    /// # Errors
    /// The bytes are not a request, or not a reply to it; nothing is refunded then.
    pub fn refund_format_1(
        &mut self,
        policy: &Policy,
        request: &[u8],
        reply: &[u8],
        now: Timestamp,
    ) -> Result<Answered, WireError> {
        let reply = [&[DECIDED], reply].concat();
        self.refund(&upgraded(policy, request)?, &reply, now).and_then(downgraded)
    }
}

/// The same request in format 2, without a version of the policy.
fn upgraded(policy: &Policy, request: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut bytes = Reader(request);
    let group = bytes.u64()?;
    let known = policy.groups.iter().find(|known| known.identity() == group);
    let is_strict = known.ok_or(WireError::OtherPolicy)?.is_strict();
    let mut out = Vec::new();
    out.extend(MAGIC);
    out.extend(0_u64.to_le_bytes());
    out.extend(group.to_le_bytes());
    out.push(if is_strict { QUIET | STRICT } else { QUIET });
    while !bytes.0.is_empty() {
        upgrade_rule(policy, group, &mut bytes, &mut out)?;
    }
    Ok(out)
}

fn upgrade_rule(
    policy: &Policy,
    group: u64,
    bytes: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let (id, flags, cost) = (bytes.u32()?, bytes.u8()?, bytes.u64()?);
    let set = policy.sets.iter().find(|set| set.record_id == id).ok_or(WireError::OtherPolicy)?;
    let rule = policy.rules.get(usize::from(set.rule)).ok_or(WireError::OtherPolicy)?;
    let of_rule = policy.groups.get(usize::from(rule.group)).map(Group::identity);
    if of_rule != Some(group) || flags & !(BINDING | LATER | GIVEN_BACK) != 0 {
        return Err(WireError::Malformed);
    }
    let longest = rule.longest_wait();
    out.push(flags | if longest.is_some() { WAITS } else { 0 });
    out.extend(policy.stable_id_of(set.rule).to_le_bytes());
    out.extend(cost.to_le_bytes());
    if let Some(longest) = longest {
        out.extend(longest.as_nanos().to_le_bytes());
    }
    set.write_parameters(out);
    if flags & GIVEN_BACK != 0 {
        let len = set.quotas.len().saturating_add(1).saturating_mul(size_of::<u64>());
        out.extend_from_slice(bytes.bytes(len)?);
    }
    Ok(())
}

/// The same reply in format 1, which contains decisions only.
fn downgraded(answered: Answered) -> Result<Answered, WireError> {
    match answered.reply.split_first() {
        Some((&DECIDED, reply)) => Ok(Answered { reply: reply.to_vec(), ..answered }),
        _ => Err(WireError::OtherPolicy),
    }
}
