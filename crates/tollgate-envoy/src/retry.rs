//! A request that waits: held at its headers, given its turn by the timer, or given up when its client leaves.
//!
//! Invariant: what is held is the plan, not the request; a request that ends while it waits gives its
//! charge back at once. Deliberately absent: whose turn is when; that is `waiting`'s.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Answer, Plan};

use crate::active_policy::ActivePolicy;
use crate::filter::Root;
use crate::pending_response::Pending;
use crate::proxy::Proxy;

/// A request that waits.
pub struct Held<H> {
    pub policy: Rc<ActivePolicy<H>>,
    pub plan: Box<Plan>,
    /// When it came.
    pub since: Timestamp,
    /// The content type of its refusal, if it is a gRPC request.
    pub grpc: Option<&'static str>,
    /// Its place is taken: when its turn comes it goes on, without another decision.
    pub has_place: bool,
}

impl<H: Proxy> Held<H> {
    /// The turn of the stream `id` comes at `now`: it goes on, is refused, or waits on.
    pub fn take_turn(mut self: Box<Self>, id: u32, now: Timestamp, root: &Root<H>) -> Pending<H> {
        let host = root.host();
        if self.has_place {
            host.resume(id);
            return Pending::Fields(self.policy, self.plan);
        }
        if !host.enter(id) {
            self.abandon(); // its client has left
            return Pending::Nothing;
        }
        self.policy.decide_at(&mut self.plan, Some(now));
        let waited = now.since(self.since);
        match self.policy.outcome(&self.plan).answer_after(waited) {
            Answer::Pass => {
                self.let_through(waited);
                host.resume(id);
                Pending::Fields(self.policy, self.plan)
            }
            Answer::Delay(wait) if root.wait_until(now.saturating_add(wait), now, id) => {
                self.let_through(waited);
                self.has_place = true;
                Pending::Waiting(self)
            }
            Answer::Retry(wait) if root.wait_until(now.saturating_add(wait), now, id) => {
                Pending::Waiting(self)
            }
            Answer::Delay(_) | Answer::Retry(_) => self.refuse(host, waited, 429),
            Answer::Refuse { status } => self.refuse(host, waited, status),
        }
    }

    fn let_through(&self, waited: Span) {
        self.policy.count(&self.plan, waited);
        self.policy.mark(&self.plan);
    }

    fn refuse(self, host: &H, waited: Span, status: u16) -> Pending<H> {
        self.policy.count(&self.plan, waited);
        Pending::refusal(host, self.policy, self.plan, status, self.grpc)
    }

    /// It will not go on: what it was charged is taken back.
    pub fn abandon(mut self) {
        if self.has_place {
            self.policy.take_back(&mut self.plan);
        }
        self.policy.keep(self.plan);
    }
}
