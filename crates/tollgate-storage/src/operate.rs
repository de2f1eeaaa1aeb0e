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

use tollgate_core::{CalendarUsage, Decision, Holding, Limiter, Span, Timestamp};

use crate::counted_set::CountedSet;
use crate::counts::{Answered, Counts};
use crate::leases::clock::Clock;
use crate::leases::mutation::{self, Mutation};
use crate::stored_set::{StoredSet, carry_set};
use crate::wire::{DECIDED, Reader, WireError};

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
    /// Ends the block, and the penalty of each quota with its steps.
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

/// The use of one quota by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// The quota.
    pub limiter: Limiter,
    /// The decision for a request that costs nothing.
    pub decision: Decision,
    /// The end of the penalty that runs, and the number of its step, from 1.
    pub penalty: Option<(Timestamp, u64)>,
    /// The units that it holds, its debt and its requests in flight.
    pub holding: Holding,
}

impl KeyOperation {
    /// Appends to `out` the request to do this to the key of the group with this identity, under
    /// the rule and the sets of quotas with these identities: [`Counts::operate`] reads it.
    pub fn request(
        self,
        group: u64,
        rule: u64,
        sets: impl IntoIterator<Item = u64>,
        out: &mut Vec<u8>,
    ) {
        let (what, until) = match self {
            Self::Describe => (DESCRIBE, Timestamp::ZERO),
            Self::Reset => (RESET, Timestamp::ZERO),
            Self::Block(until) => (BLOCK, until),
            Self::Unblock => (UNBLOCK, Timestamp::ZERO),
        };
        out.extend(MAGIC);
        out.extend(group.to_le_bytes());
        out.push(what);
        out.extend(until.as_nanos().to_le_bytes());
        for identity in [rule].into_iter().chain(sets) {
            out.extend(identity.to_le_bytes());
        }
    }
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
            UNBLOCK => {
                let is_pardoned = self.pardon(&ids);
                self.block(rule, Timestamp::ZERO, now) || is_pardoned
            }
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
        let is_kept = |kept: &mut CountedSet| {
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

    /// Ends the penalties of these sets, and forgets their steps.
    fn pardon(&mut self, ids: &[u64]) -> bool {
        let mut is_changed = false;
        for kept in self.sets.iter_mut().filter(|kept| ids.contains(&kept.stable_id())) {
            is_changed |= kept.pardon();
        }
        is_changed
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
            let states = kept.states_with_leases(now);
            out.extend_from_slice(&kept.quotas.parameters);
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

    /// The use of each quota of `set`, as of [`KeyState::at`]; for quotas changed since the last
    /// use of the key, after carrying over the usage. `None` when the key has used nothing of them.
    #[must_use]
    pub fn of(&self, set: &StoredSet) -> Option<Vec<QuotaUse>> {
        Some(self.decide(set, &self.carried(set)?))
    }

    /// The use of the set with this stable identity, by the quotas that are stored; none when the
    /// key has used nothing of it.
    #[must_use]
    pub fn stored(&self, set: u64) -> Vec<QuotaUse> {
        let used = self.used_of(set);
        used.map_or_else(Vec::new, |(stored, states)| self.decide(stored, states))
    }

    /// The units that the key has used of each quota of `set` in its calendar's periods, as of
    /// [`KeyState::at`], carried as in [`KeyState::of`]; `None` for a quota without a calendar. A
    /// set of which the key has used nothing has used 0 units.
    #[must_use]
    pub fn usage(&self, set: &StoredSet) -> Vec<Option<CalendarUsage>> {
        let states = self.carried(set).unwrap_or_else(|| vec![0; set.states_len()]);
        let each = set.quotas().iter();
        each.map(|quota| quota.limiter().usage(quota.state(&states)?, self.at)).collect()
    }

    /// The stored quotas of the set with this stable identity, if the key has used any of it.
    #[must_use]
    pub fn stored_set(&self, set: u64) -> Option<&StoredSet> {
        self.used_of(set).map(|(stored, _)| stored)
    }

    /// The stored quotas of the set with this stable identity, and their states.
    fn used_of(&self, set: u64) -> Option<&(StoredSet, Vec<u8>)> {
        self.used.iter().find(|(stored, _)| stored.stable_id() == set)
    }

    /// The states of `set`, with the usage of the stored quotas carried over; `None` when the key
    /// has used nothing of it.
    fn carried(&self, set: &StoredSet) -> Option<Vec<u8>> {
        let (stored, states) = self.used_of(set.stable_id())?;
        let mut carried = vec![0; set.states_len()];
        carry_set(stored, states, set.limiters(), self.at, &mut carried);
        Some(carried)
    }

    fn decide(&self, set: &StoredSet, states: &[u8]) -> Vec<QuotaUse> {
        let each = set.quotas().iter().filter_map(|quota| {
            let (limiter, state) = (*quota.limiter(), quota.state(states)?);
            let decision = limiter.peek(state, self.at, 0);
            let penalty = limiter.penalty_at(state, self.at);
            let holding = limiter.holding(state, self.at);
            Some(QuotaUse { limiter, decision, penalty, holding })
        });
        each.collect()
    }
}
