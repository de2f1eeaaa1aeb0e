//! An operator's actions on one key: describe its usage, reset it, block it until a time.
//!
//! Invariant: every operation may be repeated: the second time changes nothing. Nothing is decided
//! or charged. Leased units are reported as used, since they may be spent. The key itself is not in
//! these bytes; the sender knows where it is counted.
//!
//! Request: [`MAGIC`]; the identity of the key's group `u64`; the operation `u8` (1 describe, 2
//! reset, 3 block, 4 end a block), the end of the block `u64`, the rule's stable identity `u64`,
//! then the stable identities of all quotas that it may count in, each `u64`. Reply: 0, the time
//! `u64`, the end of the block or 0 `u64`, the newest version of the policy that was seen `u64`,
//! then the usage of each set: its parameters, the length of its states `u32`, the states.

use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Decision, Limiter, Span, Timestamp};

use crate::pipeline::key_hashes::pk;
use crate::pipeline::remote::counts::{Answered, Counts};
use crate::pipeline::remote::kept::Kept;
use crate::pipeline::remote::leases::clock::Clock;
use crate::pipeline::remote::leases::mutation::{self, Mutation};
use crate::pipeline::remote::wire::{DECIDED, Reader, WireError};
use crate::policy::compiled::Policy;
use crate::policy::group::{Group, QuotaSet};
use crate::policy::quota::CompiledQuota;
use crate::policy::stored_set::{StoredQuota, StoredSet, carry_set};
use crate::request::given_key::GivenKey;
use crate::stable_hash::stable_hash;

/// The first bytes of an operator's request.
const MAGIC: [u8; 8] = *b"tollgt\x00K";

const DESCRIBE: u8 = 1;
const RESET: u8 = 2;
const BLOCK: u8 = 3;
const UNBLOCK: u8 = 4;

/// The longest block: 366 days from its start.
pub const MAX_BLOCK: Span = Span::from_secs(366 * 86_400);

/// An operation on one key of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOperation {
    /// Reports the usage.
    Describe,
    /// Resets the usage; a block stays.
    Reset,
    /// Denies the key until this time, at most [`MAX_BLOCK`] from now.
    Block(Timestamp),
    /// Ends the block.
    Unblock,
}

/// The usage of one key under one rule, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    /// The time by the clock of the process that counts.
    pub at: Timestamp,
    /// The end of an operator's block.
    pub blocked_until: Option<Timestamp>,
    /// The newest version of the policy that was seen there; 0 when versions are not counted.
    pub version: u64,
    used: Vec<(StoredSet, Vec<u8>)>,
}

impl GivenKey {
    /// Appends to `out` the request to the process that counts this key: [`Counts::operate`].
    pub fn request(&self, policy: &Policy, operation: KeyOperation, out: &mut Vec<u8>) {
        let (what, until) = match operation {
            KeyOperation::Describe => (DESCRIBE, Timestamp::ZERO),
            KeyOperation::Reset => (RESET, Timestamp::ZERO),
            KeyOperation::Block(until) => (BLOCK, until),
            KeyOperation::Unblock => (UNBLOCK, Timestamp::ZERO),
        };
        let group = policy.groups.get(self.group).map_or(0, Group::identity);
        let rule = u16::try_from(self.rule).unwrap_or(u16::MAX);
        out.extend(MAGIC);
        out.extend(group.to_le_bytes());
        out.push(what);
        out.extend(until.as_nanos().to_le_bytes());
        out.extend(policy.stable_id_of(rule).to_le_bytes());
        for set in policy.quota_sets_of(self.rule) {
            out.extend(set.stable_id().to_le_bytes());
        }
        let name = policy.rules.get(self.rule).map_or("", |rule| rule.name());
        out.extend(tenants_id(name).to_le_bytes());
    }

    /// The hash of the key that is reported to clients as `pk`; [`pk_text`](crate::pk_text) formats
    /// it.
    #[must_use]
    pub fn pk(&self, policy: &Policy) -> u64 {
        pk(self.bytes(), &policy.response)
    }
}

/// The identity of a tenant's own quotas in a rule.
pub(crate) fn tenants_id(rule: &str) -> u64 {
    // Three names: neither a rule's own quotas nor a tier have this identity, whatever their names.
    stable_hash(&[rule.as_bytes(), b"", b"tenant"])
}

impl Counts {
    /// Executes an operator's request on this key at `now`.
    ///
    /// # Errors
    /// The bytes are not an operator's request; nothing is changed then.
    pub fn operate(
        &mut self,
        request: &[u8],
        clock: impl Into<Clock>,
    ) -> Result<Answered, WireError> {
        let clock = clock.into();
        let mut bytes = Reader(request);
        if bytes.bytes(MAGIC.len())? != MAGIC {
            return Err(WireError::Malformed);
        }
        let (group, what) = (bytes.u64()?, bytes.u8()?);
        let (until, rule) = (Timestamp::from_nanos(bytes.u64()?), bytes.u64()?);
        let mut ids = Vec::new();
        while !bytes.0.is_empty() {
            ids.push(bytes.u64()?);
        }
        let (now, is_ended) = self.advance(&clock);
        let is_changed = match what {
            DESCRIBE => false,
            RESET => self.reset(rule, &ids, now),
            BLOCK => self.block(rule, until.min(now.saturating_add(MAX_BLOCK)), now),
            UNBLOCK => self.block(rule, Timestamp::ZERO, now),
            _ => return Err(WireError::Malformed),
        };
        if is_changed {
            self.group = group;
        }
        let mut reply = Vec::new();
        self.describe(rule, &ids, now, &mut reply);
        Ok(Answered { reply, is_changed: is_changed || is_ended })
    }

    /// Resets the usage. Leases stay: their units are spent whatever happens here.
    fn reset(&mut self, rule: u64, ids: &[u64], now: Timestamp) -> bool {
        if !self.sets.iter().any(|kept| ids.contains(&kept.stable_id())) {
            return false;
        }
        let is_kept = |kept: &mut Kept| {
            let is_out = !kept.leases.all.is_empty() && !mutation::is(Mutation::ResetForgets);
            if is_out && ids.contains(&kept.stable_id()) {
                kept.states.fill(0);
                kept.before = None;
            }
            is_out || !ids.contains(&kept.stable_id())
        };
        self.sets.retain_mut(is_kept);
        if let Some(mark) = self.mark(rule, now) {
            mark.reset_at = now;
        }
        true
    }

    /// Denies `rule` until this time; a time in the past ends a block.
    fn block(&mut self, rule: u64, until: Timestamp, now: Timestamp) -> bool {
        let before = self.blocked_until(rule, now);
        let after = Some(until).filter(|until| *until > now);
        if before == after {
            return false;
        }
        if let Some(mark) = self.mark(rule, now) {
            mark.blocked_until = after.unwrap_or_default();
        }
        true
    }

    fn describe(&self, rule: u64, ids: &[u64], now: Timestamp, out: &mut Vec<u8>) {
        let until = self.blocked_until(rule, now).unwrap_or_default();
        out.push(DECIDED);
        for number in [now.as_nanos(), until.as_nanos(), self.version] {
            out.extend(number.to_le_bytes());
        }
        for kept in self.sets.iter().filter(|kept| ids.contains(&kept.stable_id())) {
            let states = kept.states_beside_leases(now);
            out.extend_from_slice(&kept.parameters);
            out.extend(u32::try_from(states.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend(states);
        }
    }
}

impl KeyState {
    /// Reads the reply of [`Counts::operate`].
    ///
    /// # Errors
    /// The bytes are not such a reply.
    pub fn read(reply: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Reader(reply);
        if bytes.u8()? != DECIDED {
            return Err(WireError::Malformed);
        }
        let at = Timestamp::from_nanos(bytes.u64()?);
        let until = Timestamp::from_nanos(bytes.u64()?);
        let blocked_until = Some(until).filter(|until| *until > at);
        let mut state = Self { at, blocked_until, version: bytes.u64()?, used: Vec::new() };
        while !bytes.0.is_empty() {
            let set = StoredSet::read(&mut bytes.0).ok_or(WireError::Malformed)?;
            let len = usize::try_from(bytes.u32()?).map_err(|_| WireError::Malformed)?;
            let states = bytes.bytes(len)?.to_vec();
            if states.len() != set.states_len() {
                return Err(WireError::Malformed);
            }
            state.used.push((set, states));
        }
        Ok(state)
    }

    /// The decision of each quota of `set` for a request that costs nothing, as of
    /// [`KeyState::at`]; for quotas changed since the last use of the key, after carrying over the
    /// usage. `None` when the key has used nothing of them.
    #[must_use]
    pub fn decisions(&self, set: &QuotaSet) -> Option<Vec<Decision>> {
        let (stored, states) = self.used.iter().find(|(s, _)| s.stable_id() == set.stable_id())?;
        let today = set.to_stored();
        let mut carried = vec![0; today.states_len()];
        carry_set(stored, states, &today, self.at, &mut carried);
        let decide = |quota: &CompiledQuota| {
            quota.state(&carried).map(|state| quota.limiter.peek(state, self.at, 0))
        };
        Some(set.quotas.iter().filter_map(decide).collect())
    }

    /// The quotas that the key has used under the rule and that are in no set of `policy`, if any:
    /// a tenant's own. Each is its limiter and its decision.
    pub fn of_tenant(&self, policy: &Policy, rule: usize) -> Vec<(Limiter, Decision)> {
        let name = policy.rules.get(rule).map_or("", |rule| rule.name());
        let id = tenants_id(name);
        let Some((stored, states)) = self.used.iter().find(|(set, _)| set.stable_id() == id) else {
            return Vec::new();
        };
        let decide = |quota: &StoredQuota| {
            let state = quota.state(states)?;
            Some((*quota.limiter(), quota.limiter().peek(state, self.at, 0)))
        };
        stored.quotas().iter().filter_map(decide).collect()
    }
}
