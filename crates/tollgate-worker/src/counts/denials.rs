//! What this isolate was told is used up: it refuses what comes next without asking an object.
//!
//! Invariant: everything here is by the isolate's clock, which stands still between I/O, so a
//! request is refused as of the time at which it came. Deliberately absent: what is remembered, for
//! how long, and who must leave a full table; that is [`tollgate_policy::Denials`]. It is lost with
//! the isolate, or with an instance that aborts: then objects are asked as ever.

use std::cell::RefCell;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Denials, Plan, Policy};

use crate::runtime::js;

/// What is remembered. Not borrowed across an await.
pub(crate) struct Remembered(RefCell<Denials>);

impl Remembered {
    /// Nothing, yet. Only within a request: the platform gives random bytes to nobody else.
    /// Where `is_operated`, an operator may reset a key, and where it `settles`, a cost may turn
    /// out lower; where it `leases`, what nodes were leased may come back.
    /// Objects are given up after `timeout`.
    pub(crate) fn new(is_operated: bool, settles: bool, leases: bool, timeout: Span) -> Self {
        let seed = [js::random(), js::random()].map(u64::to_le_bytes);
        let denials = Denials::new(seed.concat().try_into().unwrap_or_default()).patient(timeout);
        let denials = if settles { denials.settled() } else { denials };
        let denials = if leases { denials.leased() } else { denials };
        Self(RefCell::new(if is_operated { denials.operated() } else { denials }))
    }

    /// True when the request is refused by what is remembered, and has its answer.
    /// `relieved` gives the number of the last relief of a key, if it is known at that time.
    pub(crate) fn refuses(
        &self,
        policy: &Policy,
        plan: &mut Plan,
        relieved: impl FnOnce(Timestamp) -> Option<u64>,
    ) -> bool {
        let now = js::now();
        let mut denials = self.0.borrow_mut();
        denials.know_relief(relieved(now));
        denials.refuses(policy, plan, now)
    }

    /// True when a denial that stood at `came_at`, or was heard since, would decide the request,
    /// which asked in vain.
    pub(crate) fn would_stand_in(&self, policy: &Policy, plan: &Plan, came_at: Timestamp) -> bool {
        self.0.borrow_mut().would_stand_in(policy, plan, (came_at, js::now()))
    }

    /// The same for the count of partition `i` alone, if its object does not answer.
    pub(crate) fn would_stand_in_for(
        &self,
        policy: &Policy,
        plan: &Plan,
        i: usize,
        came_at: Timestamp,
    ) -> bool {
        self.0.borrow_mut().would_stand_in_for(policy, plan, i, (came_at, js::now()))
    }

    /// True when it does: the request has its answer.
    pub(crate) fn stands_in(&self, policy: &Policy, plan: &mut Plan, came_at: Timestamp) -> bool {
        self.0.borrow_mut().stands_in(policy, plan, (came_at, js::now()))
    }

    /// Remembers what the object of partition `i` told, if it told anything. One that was asked
    /// together with others may have answered long before it is heard: then it is taken to have
    /// told it when it was asked, at `asked_at`.
    pub(crate) fn hear(&self, policy: &Policy, plan: &Plan, i: usize, asked_at: Timestamp) {
        if plan.partition(i).is_some_and(|partition| partition.has_told()) {
            let heard_at = if plan.len() == 1 { js::now() } else { asked_at };
            self.0.borrow_mut().hear(policy, plan, i, heard_at);
        }
    }

    /// Forgets what the answers to a request did not bear out.
    pub(crate) fn close(&self, policy: &Policy, plan: &Plan) {
        self.0.borrow_mut().close(policy, plan);
    }
}
