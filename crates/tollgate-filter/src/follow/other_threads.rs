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

/// Another worker compiles, or has just stored a newer policy: look again.
pub struct Busy;

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

    /// The stored policy, which is in force from now on; `None` when it is in force here already,
    /// or cannot be. The current context is the root.
    ///
    /// # Errors
    /// It has to be looked at again.
    pub fn take_stored(
        &self,
        urgency: Urgency,
        now: Timestamp,
    ) -> Result<Option<ActivePolicy<H>>, Busy> {
        let Some(stored) = self.stored.get(&self.host) else { return Ok(None) };
        let in_force = self.tag.take();
        let is_in_force = in_force == stored.tag;
        self.tag.set(in_force);
        if is_in_force || stored.is_behind(self.version.get()) {
            return Ok(None);
        }
        let lock = CompileLock::acquire(&self.host, now);
        if lock.is_none() && urgency == Urgency::New {
            return Err(Busy);
        }
        let (next, policy) = self.compile(stored, now);
        if let Some(lock) = lock {
            lock.release(&self.host);
        }
        // Then a newer one was stored meanwhile.
        if matches!(next, Step::Fetched(..)) { Err(Busy) } else { Ok(policy) }
    }
}
