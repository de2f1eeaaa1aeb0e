//! The engine as used by a server.
//!
//! Invariant: every caller gets a response in a bounded time, and a client that leaves cancels
//! nothing: calls are tasks of their own, and a sent call is always completed. Keys are distributed
//! over several committers by name, so that the threads of a server do not wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use crate::commit::{Answer, Call, Committer, Event, Failed, Fault, KeyRequest};
use crate::commit::{Name, Operation, Reply, Tally};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tollgate_core::{Span, Timestamp};

use crate::info::Warning;
use crate::observe::{Observer, RoundTrip, Tag, result};
use crate::options::Options;
use crate::replicas::MAX_CONNECTIONS;
use crate::resp::Value;
use crate::tls::{BadFile, Tls};
use crate::topology::Topology;
use crate::transport::Transport;
use crate::watch::{LostNode, NodeChecks};

/// A connection is cut when its oldest command has waited for this many timeouts.
const STALL: u32 = 4;

/// The most committers where replicas must have commits: each sends eight calls at a time or more.
const MAX_REPLICATED: usize = 4;

/// The caller that waits for a response.
#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<Answer>,
    tag: Option<Tag>,
}

/// An engine.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    transport: Transport,
    tls: Option<Arc<Tls>>,
    secret: Vec<u8>,
    started: Instant,
    shards: Vec<Mutex<Committer<Waiter>>>,
    /// By lane, the connection that all committers know.
    known: RwLock<Vec<u64>>,
    faults: [AtomicU64; Fault::ALL.len()],
    checks: NodeChecks,
    observer: Option<Arc<dyn Observer>>,
}

impl Engine {
    /// The engine at an address. Nothing is sent yet; see [`Engine::greet`].
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(options: Options) -> Result<Self, getrandom::Error> {
        let Options { address, tls, prefix, secret, timeout, replicas, .. } = options;
        let Options { mut settings, mut shards, observer, .. } = options;
        shards = shards.max(1);
        if replicas.is_some() {
            // The committers together send as many calls at a time as there are connections.
            (settings.is_replicated, shards) = (true, shards.min(MAX_REPLICATED));
            settings.max_calls = settings.max_calls.min(MAX_CONNECTIONS);
        }
        let share = |whole: usize| whole.div_ceil(shards);
        settings.max_asks = share(settings.max_asks);
        settings.max_remembered = share(settings.max_remembered);
        let calls = u32::try_from(shards).unwrap_or(u32::MAX);
        settings.max_calls = settings.max_calls.div_ceil(calls);
        let committer = |_| {
            let mut seed = [0; 16];
            getrandom::fill(&mut seed)?;
            Ok(Mutex::new(Committer::new(settings, seed)))
        };
        let shards = (0..shards).map(committer).collect::<Result<_, _>>()?;
        let topology = Topology::new(address, tls.clone(), timeout.saturating_mul(STALL));
        let transport = Transport { topology, prefix, timeout, replicas };
        let faults = [const { AtomicU64::new(0) }; Fault::ALL.len()];
        let (started, known, checks) = (Instant::now(), RwLock::default(), NodeChecks::default());
        let inner =
            Inner { transport, tls, secret, started, shards, known, faults, checks, observer };
        Ok(Self(Arc::new(inner)))
    }

    /// The name of a key: SHA-256 of the length of the secret, the secret and the key, as the
    /// Worker names its objects.
    #[must_use]
    pub fn name(&self, key: &[u8]) -> Name {
        let length = u64::try_from(self.0.secret.len()).unwrap_or(u64::MAX);
        let hash = Sha256::new().chain_update(length.to_le_bytes());
        Name::new(hash.chain_update(&self.0.secret).chain_update(key).finalize().into())
    }

    /// The engine's key for the counts of `name`, for an operator to look up.
    #[must_use]
    pub fn key_of(&self, name: &Name) -> String {
        String::from_utf8_lossy(&self.0.transport.key(name)).into_owned()
    }

    /// Sends a request for a key.
    ///
    /// # Errors
    /// It failed: overload, or a fault of the engine.
    pub async fn ask(&self, name: Name, request: KeyRequest) -> Result<Vec<u8>, Failed> {
        self.ask_as(name, request, None).await
    }

    /// Like [`Self::ask`]; the observer receives `tag` with the round trip that answers the
    /// request.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_as(&self, name: Name, request: KeyRequest, tag: Option<Tag>) -> Answer {
        let (sender, answer) = oneshot::channel();
        let waiter = Waiter { answer: sender, tag };
        let inner = &self.0;
        let lane = inner.transport.topology.lane_of(&inner.transport.key(&name));
        let shard = inner.shard_of(&name);
        let mut events = Vec::new();
        inner.with(shard, |it, mono| it.ask((name, lane), (request, waiter), mono, &mut events));
        for call in answered(events) {
            tokio::spawn(inner.clone().drive(shard, call));
        }
        answer.await.unwrap_or(Err(Failed::Engine(Fault::Cut)))
    }

    /// Reads the files of TLS again, for new connections; false without TLS.
    ///
    /// # Errors
    /// All problems of the files; the files read before stay in use.
    pub fn reload_tls(&self) -> Result<bool, Vec<BadFile>> {
        self.0.tls.as_ref().map_or(Ok(false), |tls| tls.reload().map(|()| true))
    }

    /// The counts since the beginning.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        self.0.with_each(|committer, _| sum.add_all(&committer.tally()));
        sum
    }

    /// How often each fault occurred.
    pub fn faults(&self) -> impl Iterator<Item = (Fault, u64)> {
        let counts = self.0.faults.iter().map(|count| count.load(Ordering::Relaxed));
        Fault::ALL.into_iter().zip(counts)
    }

    /// How many requests have no answer yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let mut sum = 0_usize;
        self.0.with_each(|committer, _| sum = sum.saturating_add(committer.under_way()));
        sum
    }

    /// Checks whether the nodes still have their data, and returns how many have lost it: on these
    /// nothing is leased for the life of a lease. To be called about once a second.
    pub async fn watch(&self) -> u64 {
        let inner = &self.0;
        // The previous check is still under way.
        let Ok(mut watch) = inner.checks.watch.try_lock() else { return 0 };
        let lost = inner.checks.note(watch.check_all(&inner.transport, || inner.mono()).await);
        for LostNode { lane, connection, time, sent } in &lost {
            inner.lost((*lane, *connection), *time, *sent);
        }
        u64::try_from(lost.len()).unwrap_or(u64::MAX)
    }

    /// False while a circuit is open, or a node does not respond to the checks of [`Self::watch`].
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        let mut is_open = !self.0.checks.are_answered();
        self.0.with_each(|committer, mono| is_open |= committer.is_cut_off(mono));
        !is_open
    }

    /// How often a node was found to have lost its data, on the same connection.
    #[must_use]
    pub fn emptied(&self) -> u64 {
        self.0.checks.emptied()
    }

    /// Connects, and returns warnings about the engine for the operator.
    ///
    /// # Errors
    /// It cannot be reached now; every request tries again.
    pub async fn greet(&self) -> Result<Vec<Warning>, Fault> {
        let Transport { topology, timeout, .. } = &self.0.transport;
        topology.refresh(*timeout).await?;
        let mut warnings = Vec::new();
        let lane = topology.lane_of(b"");
        let node = topology.node(lane).ok_or(Fault::Unreachable)?;
        let ready = node.ready().await?;
        let memory = ready.connection.ask(&[b"INFO", b"memory"]).await?;
        let memory = String::from_utf8_lossy(memory.bytes().unwrap_or_default()).into_owned();
        warnings.extend(Warning::of_memory(&memory));
        Ok(warnings)
    }

    /// The address of the engine and the way to send calls to it.
    pub(crate) fn transport(&self) -> &Transport {
        &self.0.transport
    }

    /// Sends a command for a key once, to the node that probably has the key, and a second time if
    /// that node reports that it is elsewhere.
    pub(crate) async fn command(&self, key: &[u8], arguments: &[&[u8]]) -> Result<Value, Fault> {
        let reply = self.0.transport.command(key, arguments).await;
        if let Err(fault) = reply {
            self.0.note(&Reply::Refused(fault));
        }
        reply
    }
}

impl Inner {
    fn shard_of(&self, name: &Name) -> usize {
        let number = name.bytes().first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        usize::try_from(number).unwrap_or(0).checked_rem(self.shards.len()).unwrap_or(0)
    }

    /// Runs a step with a committer, at the current time.
    fn with(&self, shard: usize, step: impl FnOnce(&mut Committer<Waiter>, Span)) {
        if let Some(committer) = self.shards.get(shard) {
            let mut committer = committer.lock().unwrap_or_else(PoisonError::into_inner);
            // Read under the lock, because the time must not go back.
            step(&mut committer, self.mono());
        }
    }

    /// Runs a step with each committer.
    fn with_each(&self, mut step: impl FnMut(&mut Committer<Waiter>, Span)) {
        (0..self.shards.len()).for_each(|shard| self.with(shard, &mut step));
    }

    /// Carries a call, and then its follow-up calls for the same key.
    async fn drive(self: Arc<Self>, shard: usize, call: Call) {
        let mut next = Some(call);
        while let Some(call) = next {
            let sent = self.mono();
            let (reply, connection) = self.transport.send(&call).await;
            self.note(&reply);
            let outcome = result(&reply);
            let may_give_up = matches!(call.what, Operation::Commit { .. })
                && !matches!(reply, Reply::Refused(_) | Reply::Unknown(_) | Reply::Alone { .. });
            if let (Some(connection), Some(time)) = (connection, reply.time()) {
                self.announce((call.lane, connection), time, sent);
            }
            let mut events = Vec::new();
            self.with(shard, |committer, mono| {
                if let Some(connection) = connection {
                    committer.connected(call.lane, connection);
                }
                committer.reply(call.id, reply, mono, &mut events);
            });
            if may_give_up {
                self.note_given_up(&events);
            }
            self.observe(sent, outcome, &events);
            let mut calls = answered(events);
            next = calls.next();
            for call in calls {
                tokio::spawn(self.clone().drive_boxed(shard, call));
            }
        }
    }

    /// Reports a completed round trip to the observer, if there is one.
    fn observe(&self, sent: Span, result: &'static str, events: &[Event<Waiter>]) {
        let Some(observer) = &self.observer else { return };
        let answers = events.iter().filter_map(|event| match event {
            Event::Answer(waiter, _) => Some(waiter.tag),
            Event::Call(_) => None,
        });
        observer.observe(RoundTrip::of(self.mono().saturating_sub(sent), result, answers));
    }

    /// Passes the first reply of a connection to all committers: otherwise each would wait for its
    /// own before it may lease.
    fn announce(&self, of: (usize, u64), time: Timestamp, sent: Span) {
        let (lane, connection) = of;
        let is_known = |known: &Vec<u64>| known.get(lane) == Some(&connection);
        if is_known(&self.known.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() <= lane {
                known.resize(lane.saturating_add(1), 0);
            }
            if let Some(of_lane) = known.get_mut(lane) {
                *of_lane = connection;
            }
        }
        let received = self.mono();
        self.with_each(|committer, _| committer.record_shared_reply(of, time, sent, received));
    }

    /// The node of `lane` lost its data: nothing is leased on it for a while.
    fn lost(&self, of: (usize, u64), time: Timestamp, sent: Span) {
        let received = self.mono();
        self.with_each(|committer, _| {
            committer.emptied(of.0);
            committer.record_shared_reply(of, time, sent, received);
        });
    }

    /// The monotonic time of all committers.
    fn mono(&self) -> Span {
        Span::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// [`Inner::drive`], boxed because its type would contain itself.
    fn drive_boxed(
        self: Arc<Self>,
        shard: usize,
        call: Call,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.drive(shard, call))
    }

    /// Counts faults, and checks whether keys have moved.
    fn note(self: &Arc<Self>, reply: &Reply) {
        let fault = match reply {
            Reply::Refused(fault) | Reply::Unknown(fault) | Reply::Alone { fault, .. } => *fault,
            Reply::Elsewhere { .. } => return self.refresh(),
            Reply::Done { .. }
            | Reply::Mismatch { .. }
            | Reply::OtherTime { .. }
            | Reply::Stored(_)
            | Reply::NoScript => return,
        };
        self.count(fault);
        match fault {
            Fault::Unreachable
            | Fault::Tls
            | Fault::Late
            | Fault::Cut
            | Fault::ReadOnly
            | Fault::ClusterDown => {
                self.refresh();
            }
            Fault::Nonsense
            | Fault::OutOfMemory
            | Fault::Loading
            | Fault::TooFewReplicas
            | Fault::Replicas
            | Fault::Forbidden
            | Fault::Script
            | Fault::Clock
            | Fault::Foreign
            | Fault::Error => {}
        }
    }

    /// Counts a fault that no reply named: a commit that was rejected too often.
    fn note_given_up(&self, events: &[Event<Waiter>]) {
        let fault = events.iter().find_map(|event| match event {
            Event::Answer(_, Err(Failed::Engine(fault))) => Some(*fault),
            Event::Answer(..) | Event::Call(_) => None,
        });
        fault.into_iter().for_each(|fault| self.count(fault));
    }

    fn count(&self, fault: Fault) {
        let place = Fault::ALL.iter().position(|other| *other == fault);
        if let Some(count) = place.and_then(|place| self.faults.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn refresh(self: &Arc<Self>) {
        let inner = self.clone();
        tokio::spawn(async move {
            let Transport { topology, timeout, .. } = &inner.transport;
            topology.refresh(*timeout).await.ok();
        });
    }
}

/// Sends the responses; returns the remaining calls.
fn answered(events: Vec<Event<Waiter>>) -> impl Iterator<Item = Call> {
    events.into_iter().filter_map(|event| match event {
        Event::Call(call) => Some(call),
        Event::Answer(waiter, answer) => {
            // A caller that has left needs no response.
            waiter.answer.send(answer).ok();
            None
        }
    })
}
