//! A root: one plugin configuration of a virtual machine, with what its streams share.
//!
//! Invariant: its cells are never borrowed across a host call. Deliberately absent: the callbacks,
//! which find it.

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::Timestamp;

use crate::active_policy::ActivePolicy;
use crate::cell::with;
use crate::fleet::authority_client::AuthorityClient;
use crate::follow::Follower;
use crate::host::proxy::Proxy;
use crate::host::timer::{Timer, TimerUser};
use crate::observability::counter_buffer::CounterBuffer;
use crate::request::in_flight::InFlight;
use crate::request::waiting::Waiting;

/// One plugin configuration; all roots of a `vm_id` share this virtual machine's memory.
pub struct Root<H> {
    pub policy: Cell<Option<Rc<ActivePolicy<H>>>>,
    pub follower: Cell<Option<Rc<Follower<H>>>>,
    pub timer: Rc<Timer<H>>,
    pub counters: Rc<CounterBuffer<H>>,
    pub waiting: Rc<Waiting<H>>,
    pub authority: Rc<AuthorityClient<H>>,
    pub in_flight: Rc<InFlight<H>>,
    /// The policy before this one, on the thread that continues the lease work of others.
    earlier: Cell<Option<Rc<ActivePolicy<H>>>>,
}

impl<H: Proxy> Root<H> {
    /// A root without a policy.
    pub fn new(host: H, id: u32) -> Self {
        let timer = Rc::new(Timer::new(host.clone()));
        let counters = Rc::new(CounterBuffer::new(host.clone(), Rc::clone(&timer)));
        let waiting = Rc::new(Waiting::new(host.clone(), Rc::clone(&timer)));
        let authority = Rc::new(AuthorityClient::new(host, id, Rc::clone(&timer)));
        let (policy, follower, in_flight) = (Cell::new(None), Cell::new(None), Rc::default());
        let earlier = Cell::new(None);
        Self { policy, follower, timer, counters, waiting, authority, in_flight, earlier }
    }

    /// Makes this policy decide new requests; requests in progress keep theirs.
    pub fn put(&self, policy: ActivePolicy<H>) {
        self.waiting.set_limits(policy.limits());
        self.authority.set_limits(policy.limits());
        if let Some(before) = self.policy.replace(Some(Rc::new(policy))) {
            before.end();
            let fetches = self.follower().is_some_and(|it| it.fetches());
            if H::SHARES_LEASE_WORK && fetches && before.has_fleet() {
                self.earlier.set(Some(before));
            }
        }
    }

    /// The policy before this one, if it counted for a fleet and the host shares lease work.
    pub fn earlier(&self) -> Option<Rc<ActivePolicy<H>>> {
        with(&self.earlier, |earlier| earlier.clone())
    }

    /// Sets the timer for the requests in flight that have to be confirmed, its own and `others`.
    pub fn arm(&self, others: Option<Timestamp>, now: Timestamp) {
        let next_at = self.in_flight.next_at().into_iter().chain(others).min();
        self.timer.set(TimerUser::InFlight, next_at, now);
    }

    /// The same after a request, if it has to be confirmed before all others.
    pub fn arm_for_new(&self, others: Option<Timestamp>, host: &H) {
        let next_at = self.in_flight.next_at().into_iter().chain(others).min();
        let Some(at) = next_at else { return };
        if self.timer.wanted(TimerUser::InFlight).is_none_or(|wanted| at < wanted) {
            self.timer.set(TimerUser::InFlight, Some(at), host.now().unwrap_or_default());
        }
    }

    /// The follower that requests its policy from a server, if it has one.
    pub fn follower(&self) -> Option<Rc<Follower<H>>> {
        with(&self.follower, |follower| follower.as_ref().filter(|_| H::FOLLOWS).cloned())
    }

    /// The policy in force.
    pub fn policy(&self) -> Option<Rc<ActivePolicy<H>>> {
        with(&self.policy, |policy| policy.as_ref().map(Rc::clone))
    }
}

/// Takes the root of this number out.
pub fn take<T>(roots: &mut Vec<(u32, T)>, id: u32) -> Option<T> {
    let place = roots.iter().position(|(known, _)| *known == id)?;
    Some(roots.remove(place).1)
}
