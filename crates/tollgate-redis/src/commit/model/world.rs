//! Servers, network and engine in virtual time. Everything happens at whole milliseconds, so that
//! servers often decide at the same nanosecond.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Policy, Surface};
use tollgate_test_support::Random;

use crate::commit::call::{Call, CallId, Fault, Operation, Reply, Write};
use crate::commit::committer::{Committer, Event};
use crate::commit::name::Name;
use crate::commit::request::{Failed, KeyRequest};
use crate::commit::settings::Settings;

/// The virtual beginning, in milliseconds since 1970.
const START_MS: u64 = 1_780_000_000_000;
const HOUR_MS: u64 = 3_600_000;
/// How long a server waits for a reply.
const TIMEOUT_MS: u64 = 60;
/// How far behind a replica is.
const LAG: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Faults {
    None,
    Network,
    /// The same, and calls are applied twice, which no transport should do. Nothing is refunded
    /// then: a server that does not know of the first refund would refund again.
    Repeats,
    Failover,
    HourApart,
}

/// A call that the engine applied, in the order of application.
#[derive(Clone, Debug)]
pub(super) struct Applied {
    pub(super) server: usize,
    pub(super) call: CallId,
    pub(super) name: Name,
    /// No bytes were stored.
    pub(super) was_absent: bool,
    pub(super) at: Timestamp,
    write: Write,
}

/// A node of the engine.
#[derive(Default)]
struct Node {
    clock_ms: u64,
    stored: HashMap<Name, (Arc<[u8]>, u64)>,
    applied: Vec<Applied>,
    has_script: bool,
}

pub(super) struct Server {
    pub(super) committer: Committer<u64>,
    mono_began_ms: u64,
}

enum ModelEvent {
    Request(usize),
    Arrives(usize, Call),
    Replied(usize, CallId, Reply),
    Flush,
    Failover,
}

/// The request with this number, and its result.
pub(super) struct Ticket {
    pub(super) name: Name,
    pub(super) ask: KeyRequest,
    pub(super) server: usize,
    pub(super) answers: Vec<Result<Vec<u8>, Failed>>,
}

pub(super) struct World {
    pub(super) policy: Policy,
    faults: Faults,
    pub(super) servers: Vec<Server>,
    node: Node,
    /// Calls of the old primary that the new one does not have.
    pub(super) lost: Vec<Applied>,
    pub(super) tickets: Vec<Ticket>,
    now_ms: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happens: BTreeMap<u64, ModelEvent>,
    request: Vec<u8>,
    keys: u64,
    left: usize,
}

impl World {
    pub(super) fn new(algorithm: &str, faults: Faults, random: &mut Random) -> Self {
        let limit = 1 + random.below(60);
        let window = ["500ms", "1s", "20s"][random.below(3) as usize];
        let document = format!(
            r#"{{"version": 1, "rules": [{{"name": "r", "key": ["client_ip"], "quotas":
               [{{"limit": {limit}, "window": "{window}", "algorithm": "{algorithm}"}}]}}]}}"#
        );
        let policy = tollgate_language::compile(&document, Surface::Library).expect("a policy");
        let body = br#"{"method": "GET", "path": "/", "client_ip": "192.0.2.1"}"#;
        let facts = DescribedRequest::parse(body).expect("a request");
        let mut plan = Plan::new();
        policy.plan(&facts, &mut plan);
        let mut request = Vec::new();
        plan.partition(0).expect("one key").request(&policy, &mut request);
        let servers = (0..1 + random.below(4)).map(|i| {
            let settings = Settings { failures_to_open: 8, ..Settings::default() };
            let committer = Committer::new(settings, [i as u8; 16].map(|b| b.wrapping_mul(29)));
            Server { committer, mono_began_ms: random.below(2 * HOUR_MS) }
        });
        let mut world = Self {
            policy,
            faults,
            servers: servers.collect(),
            node: Node { clock_ms: START_MS + HOUR_MS, ..Node::default() },
            lost: Vec::new(),
            tickets: Vec::new(),
            now_ms: 0,
            queue: BinaryHeap::new(),
            happens: BTreeMap::new(),
            request,
            keys: 1 + random.below(2),
            left: 120,
        };
        world.prepare(random);
        world
    }

    fn prepare(&mut self, random: &mut Random) {
        for server in 0..self.servers.len() {
            self.at(random.below(20), ModelEvent::Request(server));
        }
        for _ in 0..random.below(3) {
            self.at(random.below(1_000), ModelEvent::Flush);
        }
        if matches!(self.faults, Faults::Failover | Faults::HourApart) {
            self.at(100 + random.below(800), ModelEvent::Failover);
        }
    }

    fn at(&mut self, after_ms: u64, what: ModelEvent) {
        let number = self.happens.last_key_value().map_or(0, |(last, _)| last + 1);
        self.queue.push(Reverse((self.now_ms + after_ms, number)));
        self.happens.insert(number, what);
    }

    /// Runs until nothing happens any more.
    pub(super) fn run(&mut self, random: &mut Random) {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            self.now_ms = at;
            match self.happens.remove(&number).expect("once") {
                ModelEvent::Request(server) => self.requests(server, random),
                ModelEvent::Arrives(server, call) => {
                    let id = call.id;
                    let reply = self.node.call(server, call, self.now_ms);
                    self.replied(server, id, reply, random);
                }
                ModelEvent::Replied(server, id, reply) => {
                    let mut events = Vec::new();
                    let mono = self.mono(server);
                    self.servers[server].committer.reply(id, reply, mono, &mut events);
                    self.events(server, events, random);
                }
                ModelEvent::Flush => self.node.has_script = false,
                ModelEvent::Failover => self.failover(random),
            }
        }
        assert!(self.servers.iter().all(|server| server.committer.under_way() == 0));
    }

    /// The calls that the current primary applied.
    pub(super) fn applied(&self) -> &[Applied] {
        &self.node.applied
    }

    fn mono(&self, server: usize) -> Span {
        Span::from_millis(self.servers[server].mono_began_ms + self.now_ms)
    }

    fn requests(&mut self, server: usize, random: &mut Random) {
        for _ in 0..1 + random.below(3) {
            let key = random.below(self.keys) as u8;
            self.ask(server, Name::new([key; 32]), KeyRequest::Check(self.request.clone()), random);
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            self.at(random.below(40), ModelEvent::Request(server));
        }
    }

    fn ask(&mut self, server: usize, name: Name, ask: KeyRequest, random: &mut Random) {
        let ticket = self.tickets.len() as u64;
        self.tickets.push(Ticket { name, ask: ask.clone(), server, answers: Vec::new() });
        let mut events = Vec::new();
        let mono = self.mono(server);
        self.servers[server].committer.number = ticket;
        self.servers[server].committer.ask((name, 0), (ask, ticket), mono, &mut events);
        self.events(server, events, random);
    }

    fn events(&mut self, server: usize, events: Vec<Event<u64>>, random: &mut Random) {
        for event in events {
            match event {
                Event::Call(call) => self.carry(server, call, random),
                Event::Answer(ticket, answer) => {
                    let ticket = &mut self.tickets[ticket as usize];
                    ticket.answers.push(answer.clone());
                    let (Ok(reply), KeyRequest::Check(request)) = (answer, &ticket.ask) else {
                        continue;
                    };
                    if self.faults != Faults::Repeats
                        && super::history::is_charged(&reply)
                        && random.chance(15)
                    {
                        let (name, request) = (ticket.name, request.clone());
                        self.ask(server, name, KeyRequest::Refund { request, reply }, random);
                    }
                }
            }
        }
    }

    fn carry(&mut self, server: usize, call: Call, random: &mut Random) {
        let is_bad = self.faults != Faults::None;
        self.at(TIMEOUT_MS, ModelEvent::Replied(server, call.id, Reply::Unknown(Fault::Late)));
        if is_bad && random.chance(5) {
            return;
        }
        if self.faults == Faults::Repeats && random.chance(5) {
            self.at(random.below(120), ModelEvent::Arrives(server, call.clone()));
        }
        let delay = self.delay(random);
        self.at(delay, ModelEvent::Arrives(server, call));
    }

    fn replied(&mut self, server: usize, id: CallId, reply: Reply, random: &mut Random) {
        let is_bad = self.faults != Faults::None;
        if is_bad && random.chance(8) {
            return;
        }
        if is_bad && random.chance(5) {
            self.at(random.below(120), ModelEvent::Replied(server, id, reply.clone()));
        }
        let delay = self.delay(random);
        self.at(delay, ModelEvent::Replied(server, id, reply));
    }

    fn delay(&self, random: &mut Random) -> u64 {
        let is_slow = self.faults != Faults::None && random.chance(10);
        if is_slow { random.below(100) } else { random.below(4) }
    }

    /// The replica takes over without the last writes.
    fn failover(&mut self, random: &mut Random) {
        let known = self.node.applied.len()
            - random.below(LAG + 1).min(self.node.applied.len() as u64) as usize;
        let clock_ms = match (self.faults, random.below(2)) {
            (Faults::HourApart, 0) => START_MS,
            (Faults::HourApart, _) => START_MS + 2 * HOUR_MS,
            _ => self.node.clock_ms + random.below(40) - 20,
        };
        let mut replica = Node { clock_ms, ..Node::default() };
        for applied in &self.node.applied[..known] {
            replica.write(applied.name, &applied.write, applied.at.as_nanos() / 1_000_000);
        }
        self.lost.extend_from_slice(&self.node.applied[known..]);
        replica.applied = self.node.applied[..known].to_vec();
        self.node = replica;
    }
}

impl Node {
    /// Executes the script or a read.
    fn call(&mut self, server: usize, call: Call, now_ms: u64) -> Reply {
        let time_ms = self.clock_ms + now_ms;
        let time = Timestamp::from_millis(time_ms);
        let stored = self.stored.get(&call.name).filter(|(_, until)| *until > time_ms);
        let stored = stored.map(|(value, _)| value.clone());
        let Operation::Commit { expected, write, decided_at_ms, tolerance_ms, has_script } =
            call.what
        else {
            return Reply::Stored(stored);
        };
        self.has_script |= has_script;
        if !self.has_script {
            return Reply::NoScript;
        }
        if time_ms.abs_diff(decided_at_ms) > tolerance_ms {
            return Reply::OtherTime { stored, time };
        }
        if stored != expected {
            return Reply::Mismatch { stored, time };
        }
        self.write(call.name, &write, time_ms);
        let (name, was_absent) = (call.name, stored.is_none());
        self.applied.push(Applied { server, call: call.id, name, was_absent, at: time, write });
        Reply::Done { time }
    }

    fn write(&mut self, name: Name, write: &Write, time_ms: u64) {
        match write {
            Write::Keep => {}
            Write::Delete => {
                self.stored.remove(&name);
            }
            Write::Put { value, life_ms } => {
                self.stored.insert(name, (value.clone(), time_ms + life_ms));
            }
        }
    }
}
