//! A policy that another thread of the process has fetched and stored: taken up without a request
//! to the server.
//!
//! Invariant: the stored policy is compiled by one worker at a time, except by a worker that would
//! otherwise decide on a policy that was replaced long ago.

use tollgate_core::Timestamp;

use super::{Follower, Step};
use crate::active_policy::ActivePolicy;
use crate::follow::compile_lock::CompileLock;
use crate::host::proxy::Proxy;

/// What became of the stored policy.
pub enum Taken<H> {
    /// It is in force here already, or cannot be.
    Nothing,
    /// Another worker compiles: look again.
    Later,
    /// It is in force from now on.
    Policy(ActivePolicy<H>),
}

/// Whether a worker may wait until no other worker compiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The policy was stored just now: it may.
    New,
    /// The policy was stored long ago: it compiles at once.
    Late,
}

impl<H: Proxy> Follower<H> {
    /// True when this thread requests the policy from the server.
    pub fn fetches(&self) -> bool {
        self.host.fetches_policies()
    }

    /// Takes up the stored policy, if it is another one than that in force here. The current
    /// context is the root.
    pub fn take_stored(&self, urgency: Urgency, now: Timestamp) -> Taken<H> {
        let Some(stored) = self.stored.get(&self.host) else { return Taken::Nothing };
        let in_force = self.tag.take();
        let is_in_force = in_force == stored.tag;
        self.tag.set(in_force);
        if is_in_force || stored.is_behind(self.version.get()) {
            return Taken::Nothing;
        }
        let lock = CompileLock::acquire(&self.host, now);
        if lock.is_none() && urgency == Urgency::New {
            return Taken::Later;
        }
        let (next, policy) = self.compile(stored, now);
        if let Some(lock) = lock {
            lock.release(&self.host);
        }
        match (policy, next) {
            (Some(policy), _) => Taken::Policy(policy),
            // A newer one was stored meanwhile.
            (None, Step::Fetched(..)) => Taken::Later,
            (None, Step::Idle(_) | Step::Fetching { .. }) => Taken::Nothing,
        }
    }
}
