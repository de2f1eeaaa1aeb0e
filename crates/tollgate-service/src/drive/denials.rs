//! What the replies of a drive change in the cached denials of a surface, and when a cached denial
//! decides instead of a count that did not reply.
//!
//! Invariant: only a reply that was used is remembered, and a count whose refund has no readable
//! reply is forgotten, because the remembered counts may contain the refunded charge. Deliberately
//! absent: the lock around the denials, which the surface holds for one step at a time; and which
//! denials are remembered, and for how long ([`Denials`]).

use alloc::vec::Vec;

use tollgate_core::Timestamp;
use tollgate_policy::{Denials, Plan, Policy};

use crate::drive::charging::Drive;
use crate::drive::requests::{MissingReply, ReplyOutcome, Request, RequestId};

/// The cached denials of a surface, behind a lock of its own.
pub trait DenialCache {
    /// Calls `step` with them; `None` where no denial is remembered.
    fn with<T>(&self, step: impl FnOnce(&mut Denials) -> T) -> Option<T>;
}

impl Drive {
    /// [Takes](Drive::receive) the reply to a request, and remembers what it shows. A denial is
    /// dated to `at`: when the count replied, or earlier, by the surface's clock. Returns true when
    /// there is a reply that cannot be read, which is to be counted.
    pub fn receive_and_remember(
        &mut self,
        (policy, plan): (&Policy, &mut Plan),
        id: RequestId,
        reply: Result<Vec<u8>, MissingReply>,
        denials: &impl DenialCache,
        at: impl FnOnce() -> Timestamp,
    ) -> bool {
        let Some(Request { partition: i, .. }) = self.request(id) else { return false };
        let is_reply = reply.is_ok();
        match self.receive(policy, plan, id, reply) {
            ReplyOutcome::Used => {
                if is_reply && plan.partition(i).is_some_and(|partition| partition.has_states()) {
                    denials.with(|denials| denials.record_reply(policy, plan, i, at()));
                }
                false
            }
            ReplyOutcome::LostRefund => {
                denials.with(|denials| denials.forget_partition(policy, plan, i));
                is_reply
            }
            ReplyOutcome::Misread => is_reply,
            ReplyOutcome::Unexpected => false,
        }
    }

    /// While a denial is being [confirmed](Drive::suspect): finds out whether it decides if its
    /// count does not reply. `times` are when the request came, and now.
    pub fn recall_denial(
        &mut self,
        (policy, plan): (&Policy, &Plan),
        denials: &impl DenialCache,
        times: impl FnOnce() -> (Timestamp, Timestamp),
    ) {
        if let Some(i) = self.suspect() {
            let stands_in = denials.with(|it| it.would_stand_in_for(policy, plan, i, times()));
            self.trust_denial(stands_in.unwrap_or(false));
        }
    }

    /// Ends a decision that is [done](crate::drive::Next::Done): forgets denials that no reply
    /// confirmed. True when a cached denial decides, because a count did not reply: the charges are
    /// [withdrawn](Drive::withdraw), and the drive continues until it is done again. During an
    /// overload none decides. `times` are when the request came, and now.
    pub fn conclude(
        &mut self,
        (policy, plan): (&Policy, &mut Plan),
        denials: &impl DenialCache,
        times: impl FnOnce() -> (Timestamp, Timestamp),
    ) -> bool {
        let may_stand_in = plan.has_failed() && !self.is_overload();
        let stands_in = denials.with(|denials| {
            denials.close(policy, plan);
            may_stand_in && denials.overrules_failure(policy, plan, times())
        });
        let stands_in = stands_in.unwrap_or(false);
        if stands_in {
            self.withdraw();
        }
        stands_in
    }
}
