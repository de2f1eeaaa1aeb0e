//! The reply to a request for one partition, as its decisions.
//!
//! Invariant: a reply is read completely or not at all; the format is in `tollgate_storage::wire`.

use tollgate_core::{Decision, Verdict};
use tollgate_storage::wire::{HELD, OTHER_ENTRY, WireError};
use tollgate_storage::{HeldRule, Reply, is_used_up, read_held};

use crate::pipeline::applied::{AppliedRule, Basis};
use crate::pipeline::partition::{Partition, PartitionMut};
use crate::pipeline::partitions::{Failure, Status};
use crate::policy::compiled::Policy;
use crate::policy::group::QuotaSet;
use crate::policy::record;

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
        let mut reply = Reply::read(reply)?;
        let mut status = Status::Uncharged;
        let Self { index, applied, decisions, stored, .. } = self;
        stored.value.clear();
        for applied in applied.iter_mut().filter(|applied| applied.counts_in(*index)) {
            let set = policy.applied_set(applied).ok_or(WireError::OtherPolicy)?;
            let slots = decisions.get_mut(applied.first_decision..).unwrap_or_default();
            let read = reply.rule(slots.iter_mut().take(set.quotas.len()), || Some(set.len))?;
            if let Some(states) = read.states {
                record::append(set, states, &mut stored.value);
            }
            if read.charged.is_some() {
                status = Status::Charged;
            }
            applied.charged = read.charged;
            applied.basis = read.blocked_until.map_or(Basis::Count, Basis::Block);
        }
        let at = reply.end()?;
        self.stored.at = at;
        self.stored.status = status;
        Ok(())
    }

    /// Uses a shard's reply as the decisions of this partition.
    fn accept_held(&mut self, policy: &Policy, reply: &[u8]) -> Result<(), WireError> {
        let rules = self.view().rules().count();
        let ((at, _), words) = read_held(reply, rules)?;
        let Self { index, applied, decisions, stored, .. } = self;
        stored.value.clear();
        let mut status = Status::Uncharged;
        let applied = applied.iter_mut().filter(|applied| applied.counts_in(*index));
        for (applied, word) in applied.zip(words) {
            let is_denied = word.what == HeldRule::Denied;
            let is_paid = matches!(word.what, HeldRule::Paid { .. });
            applied.charged = is_paid.then_some(at);
            applied.basis = Basis::Lease;
            if is_paid {
                status = Status::Charged;
            }
            let slots = decisions.get_mut(applied.first_decision..).unwrap_or_default();
            for (slot, quota) in slots.iter_mut().zip(policy.quotas(applied)) {
                let verdict = if is_denied { Verdict::Deny } else { Verdict::Allow };
                *slot = Decision {
                    verdict,
                    limit: quota.limiter().limit(),
                    remaining: word.left,
                    retry_after: is_denied.then_some(word.rest),
                    reset_after: word.rest,
                };
            }
        }
        stored.at = at;
        stored.status = status;
        Ok(())
    }
}

impl<'p> Partition<'p> {
    /// True when an object reported used-up states: pass them to
    /// [`Denials::record_reply`](crate::Denials::record_reply).
    #[must_use]
    pub const fn has_states(&self) -> bool {
        self.stored.status.is_decided() && !self.stored.value.is_empty()
    }

    /// The reported states of a rule's quotas; `None` when there are none, because the same request
    /// may be allowed.
    pub(crate) fn states_of(&self, set: &QuotaSet) -> Option<&'p [u8]> {
        record::appended(set, &self.stored.value)
    }

    /// True when this rule would deny the same request if it were repeated now.
    pub(crate) fn uses_up(&self, policy: &Policy, applied: &AppliedRule) -> bool {
        let mut decisions = self.decisions_of(policy, applied);
        applied.is_binding()
            && decisions.any(|decision| is_used_up(decision, applied.decided_cost()))
    }
}
