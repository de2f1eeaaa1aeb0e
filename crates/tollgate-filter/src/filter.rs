//! The filter's contexts, found by the host's numbers: a root for each policy, a stream for each
//! request.
//!
//! Invariant: whatever a host calls, in any order, about any context, known or not, also during a
//! call of ours, gets a return value and never a trap. So a map is only ever borrowed between host
//! calls, never across one, and an unknown context lets the request continue. Deliberately absent:
//! decisions (the policy's) and unsafe calls (`tollgate-envoy`).

use std::cell::Cell;
use std::rc::Rc;

use tollgate_core::Timestamp;
use tollgate_policy::waiting::Due;

use crate::active_policy::{ActivePolicy, Planned};
use crate::cell::with;
use crate::config::routes::RoutePolicy;
pub use crate::fleet::authority_client::lease_work::LeaseWork;
use crate::fleet::lease_request::{KeyResult, LeaseRequest};
pub use crate::follow::other_threads::Urgency;
pub use crate::host::proxy::Flow;
use crate::host::proxy::Proxy;
use crate::host::reply::Reply;
use crate::host::streams::StreamMap;
use crate::observability::metrics::Wait;
use crate::request::arrival::Arrival;
use crate::request::held_request::{HeldRequest, Pending};
use crate::request::in_flight::InFlight;
use crate::request::pending_response::PendingResponse;
use crate::request::waiting::GivenTurn;
use crate::root::{Root, take};

mod bodies;
mod configuration;
mod threads;

/// The most requests whose turn is taken in one call of the timer. The host handles the response to
/// each denial inside that of the one before, so 400 of them overflow the stack of its thread; the
/// rest have their turn a millisecond later.
pub const TURNS_PER_TICK: usize = 32;

/// All contexts of one virtual machine.
pub struct Filter<H: Proxy> {
    host: H,
    /// By their numbers; there are few.
    roots: Cell<Vec<(u32, Rc<Root<H>>)>>,
    streams: Cell<H::Streams<Stream<H>>>,
    /// Requests in flight of roots that have ended.
    orphans: Cell<Vec<Rc<InFlight<H>>>>,
}

/// One request.
struct Stream<H> {
    root: Rc<Root<H>>,
    pending: Pending<H>,
}

impl<H: Proxy> Filter<H> {
    /// A filter without contexts.
    pub const fn new(host: H) -> Self {
        Self {
            host,
            roots: Cell::new(Vec::new()),
            streams: Cell::new(H::Streams::EMPTY),
            orphans: Cell::new(Vec::new()),
        }
    }

    /// A context begins: a root if it has no parent, else a stream of that root. An existing
    /// context is unchanged: the host announces a root again for every listener that shares it.
    pub fn on_context_create(&self, id: u32, parent: u32) {
        if parent == 0 {
            with(&self.roots, |roots| {
                if !roots.iter().any(|(known, _)| *known == id) {
                    roots.push((id, Rc::new(Root::new(self.host.clone(), id))));
                }
            });
        } else if let Some(root) = self.root(parent) {
            with(&self.streams, |streams| {
                streams.insert_new(id, Stream { root, pending: Pending::NOTHING });
            });
        }
    }

    /// Gives the waiting requests that are due their turn.
    pub fn on_tick(&self, id: u32) {
        let Some(root) = self.root(id) else { return };
        root.timer.has_fired();
        // This comes first: a call belongs to the current context, which is still the root.
        self.follow(&root);
        root.counters.flush();
        let (Some(now), Some(policy)) = (self.host.now(), root.policy()) else { return };
        policy.tick(now);
        let next_at = self.confirm(&root, now);
        let mut turns = TURNS_PER_TICK;
        while H::WAITS && turns > 0 {
            turns = turns.saturating_sub(1);
            let due = root.waiting.with(|queue| {
                let due = queue.pop(now)?;
                let stream = match &due {
                    Due::Decide(ticket) => queue.value_mut(*ticket).copied(),
                    _ => None,
                };
                Some((due, stream))
            });
            match due.flatten() {
                None => break,
                Some((Due::Decide(ticket), stream)) => {
                    let mut turn = GivenTurn::new(&root.waiting, ticket, now);
                    let take = |it| self.give_turn(it, |held| held.take_turn(now));
                    turn.is_taken = stream.is_some_and(take);
                }
                Some((Due::Go(stream), _)) => {
                    self.give_turn(stream, HeldRequest::resume_after_wait);
                }
                Some((Due::Over(stream, full), _)) => {
                    self.give_turn(stream, |held| held.time_out(full, now));
                }
                Some((Due::Unused, _)) => policy.count_wait(Wait::Unused),
            }
        }
        policy.settle_waiting(&root.waiting, now);
        if H::CALLS && root.authority.is_used() {
            while let Some((sent, answers)) = root.authority.take_overdue(now) {
                self.deliver(&root, sent, answers);
            }
            root.authority.mark_all_ready();
            self.give_turns(&root, &policy, turns, now);
        }
        root.arm(next_at, now);
    }

    /// Confirms the requests in flight of this root, and of roots that have ended; returns when the
    /// next of the latter is due.
    fn confirm(&self, root: &Root<H>, now: Timestamp) -> Option<Timestamp> {
        root.in_flight.tick(now, &root.waiting);
        let mut orphans = self.orphans.take();
        orphans.retain(|orphan| orphan.next_at().is_some());
        orphans.iter().for_each(|orphan| orphan.tick(now, &root.waiting));
        let next_at = orphans.iter().filter_map(|orphan| orphan.next_at()).min();
        with(&self.orphans, |roots| roots.append(&mut orphans));
        next_at
    }

    /// Sets the timer after a request of this root, if one in flight is due before all others.
    fn arm_for_new(&self, root: &Root<H>) {
        let orphans = with(&self.orphans, |orphans| {
            orphans.iter().filter_map(|orphan| orphan.next_at()).min()
        });
        root.arm_for_new(orphans, &self.host);
    }

    /// Gives some requests that wait for the authority their turn, and checks the leases.
    fn give_turns(&self, root: &Root<H>, policy: &ActivePolicy<H>, turns: usize, now: Timestamp) {
        for _ in 0..turns {
            let Some(stream) = root.authority.next(now) else { break };
            self.give_turn(stream, |held| held.retry_leases(now));
        }
        root.authority.check_leases(now);
        root.authority.settle(now, policy);
    }

    /// Acts on a stream that waits; false when it does not.
    fn give_turn(&self, id: u32, act: impl FnOnce(HeldRequest<H>) -> Pending<H>) -> bool {
        let Some(pending) = self.take_pending(id) else { return false };
        let (waits, pending) = match pending {
            Pending::Waiting(held) if H::HOLDS => (true, act(*held)),
            other => (false, other),
        };
        self.set_pending(id, pending);
        waits
    }

    /// Decides a request.
    pub fn on_request_headers(&self, id: u32) -> Flow {
        let root_of = |stream: &Stream<H>| Rc::clone(&stream.root);
        let root = with(&self.streams, |streams| streams.get(id).map(root_of));
        let Some(root) = root else { return Flow::Continue };
        let Some(policy) = root.policy() else { return Flow::Continue };
        if self.host.is_memory_short() {
            return self.deny_undecided(&policy, Reply::overloaded());
        }
        let policy = match policy.routes.choose(&self.host) {
            RoutePolicy::Default => policy,
            RoutePolicy::Named(chosen) => chosen,
            RoutePolicy::Unknown => return self.deny_undecided(&policy, Reply::unknown_policy()),
        };
        let facts = policy.facts();
        let plan = match policy.plan(&facts) {
            Planned::Nothing => {
                policy.observer.count_unlimited();
                return Flow::Continue;
            }
            Planned::Unreadable => return self.deny_undecided(&policy, Reply::overloaded()),
            Planned::Plan(plan) => plan,
        };
        let Root { waiting, authority, in_flight, .. } = &*root;
        let host = &self.host;
        let arrival = Arrival { host, id, policy, waiting, authority, in_flight, facts: &facts };
        let limits_in_flight = arrival.policy.config.limits_in_flight;
        let pending = arrival.decide(plan);
        if limits_in_flight {
            self.arm_for_new(&root);
        }
        let flow = if matches!(pending, Pending::Response(PendingResponse::Fields(..))) {
            Flow::Continue
        } else {
            Flow::Stop
        };
        if !self.set_pending(id, pending) {
            root.in_flight.end(id, &root.waiting);
        }
        flow
    }

    /// Denies a request about which nothing can be known. `on_failure` does not apply, because the
    /// rule is unknown.
    fn deny_undecided(&self, policy: &ActivePolicy<H>, reply: Reply<'_>) -> Flow {
        policy.observer.count_undecided();
        self.host.reply(reply);
        Flow::Stop
    }

    /// The response to a request, the origin's or ours.
    pub fn on_response_headers(&self, id: u32) {
        if let Some(pending) = self.take_pending(id) {
            self.set_pending(id, pending.put_on_response(&self.host));
        }
    }

    /// The response to a call of ours with this number, which the context `id` made. The body has
    /// `len` bytes.
    pub fn on_call_answered(&self, id: u32, call: u32, len: usize) {
        if !H::CALLS {
            return;
        }
        let Some(root) = self.root(id) else { return };
        let now = self.host.now().unwrap_or_default();
        if self.answer_follower(&root, call, Ok(len), now) {
            return;
        }
        let Some((sent, answers)) = root.authority.answered(call, len) else { return };
        let policy = Rc::clone(&sent.policy);
        self.deliver(&root, sent, answers);
        self.give_turns(&root, &policy, TURNS_PER_TICK, now);
        self.arm_for_new(&root);
    }

    /// Hands the results of a lease request to the stream that waits for them, if there is one.
    fn deliver(&self, root: &Root<H>, sent: LeaseRequest<H>, answers: Vec<KeyResult>) {
        let LeaseRequest { policy, keys, stream } = sent;
        let mut rest = Some((keys, answers));
        if let Some(stream) = stream {
            self.give_turn(stream, |held| {
                let (keys, answers) = rest.take().unwrap_or_default();
                held.receive_results(keys, answers)
            });
        }
        if let Some((keys, answers)) = rest {
            root.authority.record_results(&policy, keys, &answers);
        }
    }

    /// A context ends, with or without a response.
    pub fn on_delete(&self, id: u32) {
        if let Some(stream) = with(&self.streams, |streams| streams.remove(id)) {
            stream.pending.end();
            stream.root.in_flight.end(id, &stream.root.waiting);
        }
        if let Some(root) = with(&self.roots, |roots| take(roots, id))
            && let Some(policy) = root.policy()
        {
            policy.end_waiting(&root.waiting);
            policy.end();
            root.authority.close();
            root.counters.end();
            self.end_following(root.follower(), &policy.config.plugin);
            // Its streams may go on: another root's timer confirms their requests.
            if root.in_flight.next_at().is_some() {
                with(&self.orphans, |orphans| orphans.push(Rc::clone(&root.in_flight)));
            }
        }
    }

    /// Hands the counters over to the host, for readers of its counters that have no timer.
    pub fn flush(&self) {
        self.all_roots().iter().for_each(|root| root.counters.flush());
    }

    /// How many contexts there are.
    pub fn contexts(&self) -> usize {
        let roots = with(&self.roots, |roots| roots.len());
        roots.saturating_add(with(&self.streams, |streams| streams.len()))
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        let of = |root: &Rc<Root<H>>| root.waiting.len().saturating_add(root.authority.len());
        self.all_roots().iter().map(of).fold(0, usize::saturating_add)
    }

    fn all_roots(&self) -> Vec<Rc<Root<H>>> {
        with(&self.roots, |roots| roots.iter().map(|(_, root)| Rc::clone(root)).collect())
    }

    fn root(&self, id: u32) -> Option<Rc<Root<H>>> {
        with(&self.roots, |roots| {
            let mut found = roots.iter().filter(|(known, _)| *known == id);
            found.next().map(|(_, root)| Rc::clone(root))
        })
    }

    fn take_pending(&self, id: u32) -> Option<Pending<H>> {
        let take =
            |stream: &mut Stream<H>| core::mem::replace(&mut stream.pending, Pending::NOTHING);
        with(&self.streams, |streams| streams.get_mut(id).map(take))
    }

    /// Sets the remaining work for a stream, or does it at once if the stream has ended meanwhile:
    /// then false.
    fn set_pending(&self, id: u32, pending: Pending<H>) -> bool {
        if pending.is_nothing() {
            return true;
        }
        let replace = |streams: &mut H::Streams<Stream<H>>| match streams.get_mut(id) {
            Some(stream) => (core::mem::replace(&mut stream.pending, pending), true),
            None => (pending, false),
        };
        let (earlier, is_there) = with(&self.streams, replace);
        earlier.end();
        is_there
    }
}
