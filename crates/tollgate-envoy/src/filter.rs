//! The filter's contexts: a root for each policy, a stream for each request, found by the host's numbers.
//!
//! Invariant: whatever a host calls, in any order, about any context, known or not, also in the middle of a
//! call of ours: an answer, never a trap. So a map is only ever borrowed between host calls, never across
//! one, and an unknown context lets the request go on. Deliberately absent: decisions (the policy's) and
//! unsafe calls (`host`, `abi`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Answer, Plan};

use crate::active_policy::{ActivePolicy, Decided, grpc_type};
use crate::facts::RequestFacts;
use crate::pending_response::Pending;
use crate::proxy::Proxy;
use crate::reply::Reply;
use crate::retry::Held;
use crate::waiting::Waiting;

/// Requests whose turn is taken in one call of the timer. The host handles the response to each refusal inside that of
/// the one before, so 400 of them end the stack of its thread; the rest has its turn a millisecond later.
pub const TURNS_PER_TICK: usize = 32;

/// What the host is to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on.
    Continue,
    /// It stops, its body and trailers too.
    Stop,
}

impl Flow {
    /// The ABI's number for it. Not 1, which stops the headers alone under `allow_on_headers_stop_iteration`: the body
    /// would take the request on. 4 stops everything, whatever the operator has set.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Continue => 0,
            Self::Stop => 4,
        }
    }
}

/// All contexts of one virtual machine.
pub struct Filter<H> {
    host: H,
    roots: Cell<BTreeMap<u32, Rc<Root<H>>>>,
    streams: Cell<BTreeMap<u32, Stream<H>>>,
}

/// One plugin configuration: all roots of a `vm_id` share this virtual machine's memory.
pub struct Root<H> {
    host: H,
    policy: Cell<Option<Rc<ActivePolicy<H>>>>,
    waiting: Cell<Waiting<()>>,
}

/// One request.
struct Stream<H> {
    root: Rc<Root<H>>,
    pending: Pending<H>,
}

impl<H: Proxy> Filter<H> {
    /// A filter without contexts.
    pub const fn new(host: H) -> Self {
        Self { host, roots: Cell::new(BTreeMap::new()), streams: Cell::new(BTreeMap::new()) }
    }

    /// A context begins: a root if it has no parent, else a stream of that root. One that is there stays as it is:
    /// the host announces a root again for every listener that shares it.
    pub fn on_context_create(&self, id: u32, parent: u32) {
        if parent == 0 {
            let root = || Rc::new(Root::new(self.host.clone()));
            with(&self.roots, |roots| {
                roots.entry(id).or_insert_with(root);
            });
        } else if let Some(root) = self.root(parent) {
            with(&self.streams, |streams| {
                streams.entry(id).or_insert(Stream { root, pending: Pending::Nothing });
            });
        }
    }

    /// Takes the configuration of a root, `len` bytes; false when it is refused.
    pub fn on_configure(&self, id: u32, len: usize) -> bool {
        let Some(root) = self.root(id) else { return false };
        match ActivePolicy::configure(self.host.clone(), len) {
            Ok(policy) => {
                root.policy.set(Some(Rc::new(policy)));
                true
            }
            Err(problems) => {
                for problem in &problems {
                    self.host.log_error(&format!("tollgate: {problem}"));
                }
                false
            }
        }
    }

    /// Gives those their turn who are due.
    pub fn on_tick(&self, id: u32) {
        let Some(root) = self.root(id) else { return };
        let Some(now) = self.host.now() else { return };
        for _ in 0..TURNS_PER_TICK {
            let Some(stream) = with(&root.waiting, |waiting| waiting.pop_due(now)) else { break };
            match self.take_pending(stream) {
                Some(Pending::Waiting(held)) => {
                    let pending = held.take_turn(stream, now, &root);
                    self.set_pending(stream, pending);
                }
                Some(other) => self.set_pending(stream, other),
                None => {}
            }
        }
        self.host.set_tick_ms(with(&root.waiting, |waiting| waiting.tick_ms(now)));
    }

    /// Decides a request.
    pub fn on_request_headers(&self, id: u32) -> Flow {
        let root =
            with(&self.streams, |streams| streams.get(&id).map(|stream| Rc::clone(&stream.root)));
        let Some(root) = root else { return Flow::Continue };
        let Some(policy) = root.policy() else { return Flow::Continue };
        if self.host.is_memory_short() {
            return self.give_up(&policy);
        }
        let facts = policy.facts();
        let (plan, now) = match policy.decide(&facts) {
            Decided::Nothing => return Flow::Continue,
            Decided::Unreadable => return self.give_up(&policy),
            Decided::Plan(plan, now) => (plan, now),
        };
        let (flow, pending) = self.first_answer(id, &root, policy, plan, &facts, now);
        self.set_pending(id, pending);
        flow
    }

    fn first_answer(
        &self,
        id: u32,
        root: &Root<H>,
        policy: Rc<ActivePolicy<H>>,
        mut plan: Box<Plan>,
        facts: &RequestFacts<H>,
        now: Timestamp,
    ) -> (Flow, Pending<H>) {
        let mut answer = policy.outcome(&plan).answer();
        if let Answer::Delay(wait) | Answer::Retry(wait) = answer {
            if root.wait_until(now.saturating_add(wait), now, id) {
                let has_place = matches!(answer, Answer::Delay(_));
                if has_place {
                    policy.count(&plan, Span::ZERO);
                    policy.mark(&plan);
                }
                let grpc = grpc_type(facts);
                let held = Held { policy, plan, since: now, grpc, has_place };
                return (Flow::Stop, Pending::Waiting(Box::new(held)));
            }
            policy.turn_away(&mut plan);
            answer = match policy.outcome(&plan).answer() {
                Answer::Delay(_) | Answer::Retry(_) => Answer::Refuse { status: 429 },
                other => other,
            };
        }
        policy.count(&plan, Span::ZERO);
        if let Answer::Refuse { status } = answer {
            let refusal = Pending::refusal(&self.host, policy, plan, status, grpc_type(facts));
            return (Flow::Stop, refusal);
        }
        policy.mark(&plan);
        (Flow::Continue, Pending::Fields(policy, plan))
    }

    /// Refuses a request about which nothing can be known. Not `on_failure`: nobody knows whose it would be.
    fn give_up(&self, policy: &ActivePolicy<H>) -> Flow {
        policy.count_failure();
        self.host.reply(&Reply::overloaded());
        Flow::Stop
    }

    /// The response to a request, the origin's or ours.
    pub fn on_response_headers(&self, id: u32) {
        if let Some(pending) = self.take_pending(id) {
            pending.put_on_response(&self.host);
        }
    }

    /// A context ends, with or without a response.
    pub fn on_delete(&self, id: u32) {
        if let Some(stream) = with(&self.streams, |streams| streams.remove(&id)) {
            stream.pending.end();
        }
        with(&self.roots, |roots| roots.remove(&id));
    }

    /// How many contexts there are.
    pub fn contexts(&self) -> usize {
        let roots = with(&self.roots, |roots| roots.len());
        roots.saturating_add(with(&self.streams, |streams| streams.len()))
    }

    fn root(&self, id: u32) -> Option<Rc<Root<H>>> {
        with(&self.roots, |roots| roots.get(&id).map(Rc::clone))
    }

    fn take_pending(&self, id: u32) -> Option<Pending<H>> {
        with(&self.streams, |streams| {
            let stream = streams.get_mut(&id)?;
            Some(core::mem::replace(&mut stream.pending, Pending::Nothing))
        })
    }

    /// Sets what is still to be done about a stream; at once, if it ended meanwhile.
    fn set_pending(&self, id: u32, pending: Pending<H>) {
        let rest = with(&self.streams, |streams| match streams.get_mut(&id) {
            Some(stream) => core::mem::replace(&mut stream.pending, pending),
            None => pending,
        });
        rest.end();
    }
}

impl<H: Proxy> Root<H> {
    fn new(host: H) -> Self {
        Self { host, policy: Cell::new(None), waiting: Cell::default() }
    }

    fn policy(&self) -> Option<Rc<ActivePolicy<H>>> {
        with(&self.policy, |policy| policy.as_ref().map(Rc::clone))
    }

    /// The host.
    pub const fn host(&self) -> &H {
        &self.host
    }

    /// Lets the stream `id` wait; false when too many wait already.
    pub fn wait_until(&self, due: Timestamp, now: Timestamp, id: u32) -> bool {
        let (before, waits, after) = with(&self.waiting, |waiting| {
            let before = waiting.tick_ms(now);
            let waits = waiting.push(due, id);
            (before, waits, waiting.tick_ms(now))
        });
        if after != before {
            self.host.set_tick_ms(after);
        }
        waits
    }
}

/// Acts on what a cell holds. No host call belongs into `act`: whoever calls back finds the cell empty.
fn with<T: Default, R>(cell: &Cell<T>, act: impl FnOnce(&mut T) -> R) -> R {
    let mut value = cell.take();
    let result = act(&mut value);
    cell.set(value);
    result
}
