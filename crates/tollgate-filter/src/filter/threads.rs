//! Hosts in which several threads of one process serve a configuration, and in which calls are sent
//! by another thread than the one that asks for them.
//!
//! Invariant: work that a thread hands over is done by one thread. Deliberately absent: which
//! threads there are; the host knows.

use tollgate_core::Timestamp;

use super::Filter;
use crate::fleet::authority_client::lease_work::LeaseWork;
use crate::fleet::lease_request::LeaseRequest;
use crate::follow::other_threads::Urgency;
use crate::host::calls::NotSent;
use crate::host::proxy::Proxy;
use crate::host::timer::TimerUser;
use crate::root::Root;

impl<H: Proxy> Filter<H> {
    /// The call with this number, which the context `id` made, could not be sent after all.
    pub fn on_call_not_sent(&self, id: u32, call: u32, why: NotSent) {
        let Some(root) = self.root(id) else { return };
        let now = self.host.now().unwrap_or_default();
        if self.answer_follower(&root, call, Err(why), now) {
            return;
        }
        if why != NotSent::Full {
            // No response is being handed over, so the authority has not responded.
            return self.on_call_answered(id, call, 0);
        }
        let Some(unsent) = root.authority.take_unsent(call, now) else { return };
        let LeaseRequest { policy, keys, stream } = unsent;
        let mut keys = Some(keys);
        if let Some(stream) = stream {
            self.give_turn(stream, |held| held.wait_for_room(keys.take().unwrap_or_default(), now));
        }
        if let Some(keys) = keys {
            root.authority.cancel(&policy, keys);
        }
        root.authority.settle(now, &policy);
    }

    /// True when the call was the follower's.
    pub(super) fn answer_follower(
        &self,
        root: &Root<H>,
        call: u32,
        response: Result<usize, NotSent>,
        now: Timestamp,
    ) -> bool {
        let Some(follower) = root.follower() else { return false };
        let is_its = follower.answered(call, response, now);
        if is_its {
            root.timer.set(TimerUser::Policy, follower.next_call_at(), now);
        }
        is_its
    }

    /// True when a root makes calls: it follows a server, or counts for a fleet.
    pub fn makes_calls(&self, id: u32) -> bool {
        let Some(root) = self.root(id) else { return false };
        let has_fleet = || root.policy().is_some_and(|policy| policy.has_fleet());
        root.follower().is_some() || has_fleet()
    }

    /// True when a root follows a server.
    pub fn follows(&self, id: u32) -> bool {
        self.root(id).is_some_and(|root| root.follower().is_some())
    }

    /// Puts the policy that another thread has stored in force for a root, whose context is the
    /// current one; false when another worker compiles, so that it has to be asked again.
    pub fn take_stored_policy(&self, id: u32, urgency: Urgency) -> bool {
        let Some(root) = self.root(id) else { return true };
        let (Some(follower), Some(now)) = (root.follower(), self.host.now()) else { return true };
        let Ok(policy) = follower.take_stored(urgency, now) else { return false };
        policy.into_iter().for_each(|policy| root.put(policy));
        true
    }

    /// Takes the lease work that a root has left while no client request waits, for another
    /// thread; `None` when there is none.
    pub fn take_lease_work(&self, id: u32) -> Option<LeaseWork> {
        self.root(id)?.authority.take_work()
    }

    /// Continues the work of another thread for this root. Work under a policy that was replaced
    /// more than once is dropped: its leases end by their time.
    pub fn adopt_lease_work(&self, id: u32, work: LeaseWork) {
        let Some(root) = self.root(id) else { return };
        let Some(policy) = root.policy() else { return };
        let now = self.host.now().unwrap_or_default();
        let known: Vec<_> = [policy.clone()].into_iter().chain(root.earlier()).collect();
        root.authority.adopt(work, &known);
        root.authority.settle(now, &policy);
    }
}
