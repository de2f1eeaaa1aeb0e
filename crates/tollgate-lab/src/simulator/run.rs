//! A run: a policy, its nodes and their clocks, and the requests sent to them.
//!
//! Invariant: the event with the earliest true time is next, so a client acts on a response before
//! anything later happens. The nodes know only their own clocks. The same policy, traffic and seed
//! give the same table.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::Policy;

use crate::simulator::clock::Clock;
use crate::simulator::judge::Judge;
use crate::simulator::node::Node;
use crate::simulator::races::Step;
use crate::simulator::random::Random;
use crate::simulator::run_record::{ObservedDecision, RunRecord, empty_table, quota_rows};
use crate::simulator::store::Store;
use crate::simulator::table::{QuotaRow, Table};
use crate::simulator::tenants::Tenants;
use crate::simulator::traffic::document::{Spread, StoreKind};
use crate::simulator::traffic::{Request, Requests, START, Traffic};
use crate::simulator::waits::Waits;
use crate::simulator::worker_pool::WorkerPool;

/// A run in progress.
#[derive(Debug)]
pub struct Run {
    policy: Arc<Policy>,
    servers: Vec<Server>,
    spread: Spread,
    random: Random,
    books: RunRecord,
    held: StoreSize,
}

/// The most rows of tenants' own quotas; a policy with a plan per customer has one row per
/// customer.
const MAX_OWN_ROWS: usize = 100;

/// A node and its clock.
#[derive(Debug)]
struct Server {
    node: Node,
    clock: Clock,
    crew: WorkerPool,
    held: StoreSize,
}

/// The next event, and its server. Of events at one time, waiting requests come first, then writes,
/// then new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Resume(usize),
    Write(usize),
    Request,
}

/// The size and the evictions of one node's store.
#[derive(Clone, Copy, Debug, Default)]
struct StoreSize {
    keys: u64,
    bytes: u64,
    evictions: u64,
    evictions_half_used: u64,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Requests so far.
    pub offered: u64,
    /// The true time since the start.
    pub since_start: Span,
    /// No work is left.
    pub is_done: bool,
}

impl Run {
    /// A run at its beginning, with randomness from this seed.
    #[must_use]
    pub fn new(policy: Arc<Policy>, traffic: &Traffic, seed: u64) -> Self {
        let described = traffic.servers();
        let server = |i: usize| {
            let clock = i.checked_rem(described.clocks.len()).and_then(|i| described.clocks.get(i));
            let clock = Clock::new(clock.cloned().unwrap_or_default());
            let store = match described.store {
                StoreKind::Exact => Store::exact_for_a_clock_that_steps_back(clock.steps_back()),
                StoreKind::Envoy => Store::envoy(),
            };
            let node = Node::new(Arc::clone(&policy), store).with_latency(described.latency.0);
            let crew = WorkerPool::new(described.workers.0, described.work.0);
            Server { node, clock, crew, held: StoreSize::default() }
        };
        let count = usize::try_from(described.count.0).unwrap_or(1);
        Self {
            servers: (0..count).map(server).collect(),
            spread: described.spread,
            random: Random::new(seed, 0),
            books: RunRecord {
                at: START,
                table: empty_table(&policy, traffic),
                judge: Judge::new(&policy),
                waits: Waits::new(),
                requests: Requests::new(traffic, seed),
                waiting: BTreeMap::new(),
            },
            held: StoreSize::default(),
            policy,
        }
    }

    /// The same with tenant entries, which all nodes know. A node that keeps its counts in Envoy's
    /// table has none, because Envoy has no tenants.
    #[must_use]
    pub fn with_tenants(mut self, tenants: &Arc<Tenants>) -> Self {
        for server in &mut self.servers {
            server.node.set_tenants(Arc::clone(tenants));
        }
        self
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Runs at most `budget` further decisions, and reports each to `observe`.
    pub fn step(
        &mut self,
        budget: u64,
        observe: &mut impl FnMut(&ObservedDecision<'_>),
    ) -> Progress {
        for _ in 0..budget {
            let Some((at, event)) = self.next_event() else { return self.progress(true) };
            self.books.at = at;
            match event {
                Event::Resume(server) => self.resume(server, observe),
                Event::Write(server) => self.write(server, observe),
                Event::Request => self.request(observe),
            }
        }
        self.progress(false)
    }

    /// Runs to the end.
    pub fn finish(mut self) -> Table {
        while !self.step(u64::from(u32::MAX), &mut |_| {}).is_done {}
        self.table()
    }

    /// The table so far.
    pub fn table(&mut self) -> Table {
        let is_done = self.next_event().is_none();
        self.books
            .judge
            .release(&self.policy, if is_done { Timestamp::MAX } else { self.books.at });
        let mut table = self.books.table.clone();
        let own = self.books.judge.sets.own().iter().flat_map(|set| quota_rows(&self.policy, set));
        table.quotas.extend(own.map(|row| QuotaRow { of_tenants: true, ..row }));
        for (row, most) in table.quotas.iter_mut().zip(self.books.judge.most.iter().flatten()) {
            (row.most_admitted, row.burst) = *most;
        }
        let of_windows = table.quotas.iter().filter(|row| !row.is_in_flight());
        let worst = of_windows.reduce(|worst, row| {
            let share = |one: &QuotaRow, other: &QuotaRow| {
                u128::from(one.most_admitted).saturating_mul(other.limit.into())
            };
            if share(row, worst) > share(worst, row) { row } else { worst }
        });
        (table.most_admitted, table.limit, table.burst) =
            worst.map_or((0, 0, 0), |row| (row.most_admitted, row.limit, row.burst));
        keep_most_used(&mut table.quotas);
        table.false_allow = self.books.judge.false_allow;
        table.false_deny = self.books.judge.false_deny;
        table.waits = self.books.waits.figures();
        table.given_up = self.books.requests.given_up();
        table.is_cut_short = self.books.requests.is_cut_short();
        table
    }

    fn progress(&self, is_done: bool) -> Progress {
        let since_start = self.books.at.since(START);
        Progress { offered: self.books.table.offered, since_start, is_done }
    }

    fn next_event(&self) -> Option<(Timestamp, Event)> {
        let of_server = |(i, server): (usize, &Server)| {
            let resumes = server.resumes_at(self.books.at).map(|at| (at, Event::Resume(i)));
            let writes = server.crew.next_at().map(|at| (at, Event::Write(i)));
            resumes.into_iter().chain(writes).min()
        };
        let request = self.books.requests.next_at().map(|at| (at, Event::Request));
        self.servers.iter().enumerate().filter_map(of_server).chain(request).min()
    }

    /// The turn of a waiting request comes.
    fn resume(&mut self, index: usize, observe: &mut impl FnMut(&ObservedDecision<'_>)) {
        let Some(server) = self.servers.get_mut(index) else { return };
        let Some(until) = server.node.next_at() else { return };
        let Some(decided) = server.node.resume(until) else { return };
        let number = (index, decided.arrival().number);
        let Some(request) = self.books.waiting.remove(&number) else { return };
        self.books.enter(index, &request, &decided, request.at, observe);
        self.measure(index);
    }

    /// A request comes.
    fn request(&mut self, observe: &mut impl FnMut(&ObservedDecision<'_>)) {
        let Some(request) = self.books.requests.next_request_until(self.books.at) else { return };
        let index = self.server_of(&request);
        self.books.table.offered = self.books.table.offered.saturating_add(1);
        self.books.table.seconds = request.at.since(START).as_nanos() / 1_000_000_000;
        if let Some(row) = self.books.table.sources.get_mut(request.source) {
            row.offered = row.offered.saturating_add(1);
            row.retries = row.retries.saturating_add(u64::from(request.attempt > 0));
        }
        // Requests whose turn came without notice, because the clock was set forward.
        while self.servers.get(index).is_some_and(|server| server.is_due(self.books.at)) {
            self.resume(index, observe);
        }
        let Some(server) = self.servers.get_mut(index) else { return };
        if !server.crew.is_instant() {
            if server.crew.takes(request) {
                self.begin(index, request);
            }
            return;
        }
        let response = self.books.requests.response(request.source);
        let Some(facts) = self.books.requests.facts(request) else { return };
        let decided = server.node.decide(&facts, server.clock.read(self.books.at), response);
        self.books.enter(index, &request, &decided, request.at, observe);
        self.measure(index);
    }

    /// A worker starts a request.
    fn begin(&mut self, index: usize, request: Request) {
        let response = self.books.requests.response(request.source);
        let Some(facts) = self.books.requests.facts(request) else { return };
        let Some(server) = self.servers.get_mut(index) else { return };
        let job = server.node.begin(&facts, server.clock.read(self.books.at), response);
        server.crew.work(request, job, self.books.at);
    }

    /// A worker writes what it has decided, and takes the next request.
    fn write(&mut self, index: usize, observe: &mut impl FnMut(&ObservedDecision<'_>)) {
        let Some(server) = self.servers.get_mut(index) else { return };
        let Some((request, mut job)) = server.crew.pop() else { return };
        if server.node.write(&mut job) == Step::Again {
            return server.crew.work(request, job, self.books.at);
        }
        self.books.table.lost_races = self.books.table.lost_races.saturating_add(job.lost);
        let decided = server.node.end(job);
        self.books.enter(index, &request, &decided, self.books.at, observe);
        self.measure(index);
        if let Some(next) = self.servers.get_mut(index).and_then(|server| server.crew.done()) {
            self.begin(index, next);
        }
    }

    /// The server that a request comes to.
    fn server_of(&mut self, request: &Request) -> usize {
        let count = u64::try_from(self.servers.len()).unwrap_or(1);
        let number = match self.spread {
            _ if count == 1 => 0,
            Spread::RoundRobin => self.books.table.offered.checked_rem(count).unwrap_or(0),
            Spread::Random => self.random.below(count),
            // Clients have consecutive numbers: they are mixed, so that no node gets all the first
            // ones.
            Spread::Client => {
                let mixed = request.client.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                mixed.checked_rem(count).unwrap_or(0)
            }
        };
        usize::try_from(number).unwrap_or(0)
    }

    /// Records what the stores hold after one of them decided.
    fn measure(&mut self, index: usize) {
        let Some(server) = self.servers.get_mut(index) else { return };
        let held = StoreSize::by(server.node.stored());
        let before = std::mem::replace(&mut server.held, held);
        self.held = self.held.without(before).and(held);
        self.books.table.keys = self.books.table.keys.max(self.held.keys);
        self.books.table.state_bytes = self.books.table.state_bytes.max(self.held.bytes);
        self.books.table.evictions = self.held.evictions;
        self.books.table.evictions_half_used = self.held.evictions_half_used;
    }
}

impl Server {
    /// The true time of the next turn: exact unless the clock is set meanwhile.
    fn resumes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let at = self.node.next_at()?;
        Some(now.saturating_add(at.since(self.clock.read(now))))
    }

    /// True when the next turn has come by the server's clock.
    fn is_due(&self, now: Timestamp) -> bool {
        self.node.next_at().is_some_and(|at| at <= self.clock.read(now))
    }
}

/// Of the tenants' own quotas, keeps the rows in which the largest share of the limit was allowed.
fn keep_most_used(rows: &mut Vec<QuotaRow>) {
    let mut own: Vec<(u128, usize)> = Vec::new();
    for (i, row) in rows.iter().enumerate().filter(|(_, row)| row.of_tenants) {
        let share = u128::from(row.most_admitted).saturating_mul(1 << 32);
        own.push((share.checked_div(row.limit.into()).unwrap_or(0), i));
    }
    own.sort_unstable_by(|one, other| other.cmp(one));
    let mut gone: Vec<usize> = own.iter().skip(MAX_OWN_ROWS).map(|(_, i)| *i).collect();
    gone.sort_unstable();
    let mut index = 0_usize;
    rows.retain(|_| {
        let is_kept = gone.binary_search(&index).is_err();
        index = index.saturating_add(1);
        is_kept
    });
}

impl StoreSize {
    fn by(store: &Store) -> Self {
        Self {
            keys: u64::try_from(store.len()).unwrap_or(u64::MAX),
            bytes: store.state_bytes(),
            evictions: store.evictions(),
            evictions_half_used: store.evictions_half_used(),
        }
    }

    fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            keys: each(self.keys, other.keys),
            bytes: each(self.bytes, other.bytes),
            evictions: each(self.evictions, other.evictions),
            evictions_half_used: each(self.evictions_half_used, other.evictions_half_used),
        }
    }

    fn without(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    fn and(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }
}
