//! A run: a policy, its nodes and their clocks, and the requests that come to them.
//!
//! Invariant: what happens next is what has the earliest true time, so a client that is told
//! something acts on it before anything later happens. The nodes know only their own clocks. The
//! same policy, traffic and seed give the same table.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::{Policy, RuleResult};

use crate::chance::Chance;
use crate::clock::Clock;
use crate::decided::{Decided, Fate};
use crate::judge::{Exact, Judge};
use crate::node::Node;
use crate::store::Store;
use crate::table::{QuotaRow, RuleRow, SourceRow, Table};
use crate::traffic::document::Spread;
use crate::traffic::{Request, Requests, START, Told, Traffic};
use crate::waits::Waits;

/// A run on its way.
#[derive(Debug)]
pub struct Run {
    policy: Arc<Policy>,
    servers: Vec<Server>,
    requests: Requests,
    spread: Spread,
    chance: Chance,
    judge: Judge,
    waits: Waits,
    /// Requests that stand in a line, by node and number.
    waiting: BTreeMap<(usize, u64), Request>,
    table: Table,
    held: Held,
    now: Timestamp,
}

/// A node and its clock.
#[derive(Debug)]
struct Server {
    node: Node,
    clock: Clock,
    held: Held,
}

/// What stores hold.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    keys: u64,
    bytes: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Requests so far.
    pub offered: u64,
    /// The true time since the beginning.
    pub since_start: Span,
    /// Nothing is left to be done.
    pub is_done: bool,
}

/// One decision, as an observer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'s> {
    /// The true time.
    pub at: Timestamp,
    /// The index of the node.
    pub node: usize,
    /// The request; it came at `request.at`.
    pub request: &'s Request,
    /// What was decided.
    pub decided: &'s Decided<'s>,
    /// What the exact twin says; `None` while it waits, and of a delayed request, which is told
    /// when it goes on.
    pub exact: Option<Exact>,
}

impl Run {
    /// A run at its beginning, by chance from this seed.
    #[must_use]
    pub fn new(policy: Arc<Policy>, traffic: &Traffic, seed: u64) -> Self {
        let described = traffic.servers();
        let server = |i: usize| {
            let clock = i.checked_rem(described.clocks.len()).and_then(|i| described.clocks.get(i));
            let clock = Clock::new(clock.cloned().unwrap_or_default());
            let store = Store::exact_for_a_clock_that_steps_back(clock.steps_back());
            Server { node: Node::new(Arc::clone(&policy), store), clock, held: Held::default() }
        };
        let count = usize::try_from(described.count.0).unwrap_or(1);
        Self {
            servers: (0..count).map(server).collect(),
            requests: Requests::new(traffic, seed),
            spread: described.spread,
            chance: Chance::new(seed, 0),
            judge: Judge::new(&policy),
            waits: Waits::new(),
            waiting: BTreeMap::new(),
            table: empty_table(&policy, traffic),
            held: Held::default(),
            now: START,
            policy,
        }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Goes on for at most `budget` decisions, and tells `observe` of each.
    pub fn step(&mut self, budget: u64, observe: &mut impl FnMut(&Seen<'_>)) -> Progress {
        for _ in 0..budget {
            let request_at = self.requests.next_at();
            let resumed = self.next_resumption();
            match (resumed, request_at) {
                (Some((at, server)), next) if next.is_none_or(|next| at <= next) => {
                    self.resume(server, at, observe);
                }
                (_, Some(_)) => self.request(observe),
                (_, None) => return self.progress(true),
            }
        }
        self.progress(false)
    }

    /// Goes on to the end.
    pub fn finish(mut self) -> Table {
        while !self.step(u64::from(u32::MAX), &mut |_| {}).is_done {}
        self.table()
    }

    /// The table so far.
    pub fn table(&mut self) -> Table {
        let is_done = self.requests.next_at().is_none();
        self.judge.release(&self.policy, if is_done { Timestamp::MAX } else { self.now });
        let mut table = self.table.clone();
        for (row, most) in table.quotas.iter_mut().zip(self.judge.most.iter().flatten()) {
            (row.most_admitted, row.burst) = *most;
        }
        let worst = table.quotas.iter().reduce(|worst, row| {
            let share = |one: &QuotaRow, other: &QuotaRow| {
                u128::from(one.most_admitted).saturating_mul(other.limit.into())
            };
            if share(row, worst) > share(worst, row) { row } else { worst }
        });
        (table.most_admitted, table.limit, table.burst) =
            worst.map_or((0, 0, 0), |row| (row.most_admitted, row.limit, row.burst));
        table.false_allow = self.judge.false_allow;
        table.false_deny = self.judge.false_deny;
        table.waits = self.waits.figures();
        table.is_cut_short = self.requests.is_cut_short();
        table
    }

    fn progress(&self, is_done: bool) -> Progress {
        let since_start = self.now.since(START);
        Progress { offered: self.table.offered, since_start, is_done }
    }

    /// The next request that waits and whose turn comes: when, and where.
    fn next_resumption(&self) -> Option<(Timestamp, usize)> {
        let next = self.servers.iter().enumerate().filter_map(|(i, server)| {
            let at = server.node.next_at()?;
            // As its clock goes now: exact unless the clock is set meanwhile.
            let after = at.since(server.clock.read(self.now));
            Some((self.now.saturating_add(after), i))
        });
        next.min()
    }

    /// True when a turn has come by the server's clock.
    fn is_due(&self, index: usize) -> bool {
        self.servers.get(index).is_some_and(|server| {
            server.node.next_at().is_some_and(|at| at <= server.clock.read(self.now))
        })
    }

    /// Those whose turn came at the server by the true time `at`.
    fn resume(&mut self, index: usize, at: Timestamp, observe: &mut impl FnMut(&Seen<'_>)) {
        self.now = at;
        let Some(server) = self.servers.get_mut(index) else { return };
        let Some(until) = server.node.next_at() else { return };
        let Some(decided) = server.node.resume(until) else { return };
        let number = (index, decided.arrival().number);
        let Some(request) = self.waiting.remove(&number) else { return };
        let mut account = Account {
            table: &mut self.table,
            judge: &mut self.judge,
            waits: &mut self.waits,
            requests: &mut self.requests,
        };
        let exact = account.take(&request, &decided, at);
        observe(&Seen { at, node: index, request: &request, decided: &decided, exact });
        self.measure(index);
    }

    /// The next request.
    fn request(&mut self, observe: &mut impl FnMut(&Seen<'_>)) {
        let Some(request) = self.requests.next_request() else { return };
        self.now = request.at;
        let index = self.server_of(&request);
        // Those whose turn came although nobody could know when: the clock was set forward.
        while self.is_due(index) {
            self.resume(index, request.at, observe);
        }
        let Some(facts) = self.requests.facts(request) else { return };
        let Some(server) = self.servers.get_mut(index) else { return };
        let status = self.requests.traffic().status(request.source);
        let decided = server.node.decide(&facts, server.clock.read(request.at), status);
        self.table.offered = self.table.offered.saturating_add(1);
        self.table.seconds = request.at.since(START).as_nanos() / 1_000_000_000;
        if let Some(row) = self.table.sources.get_mut(request.source) {
            row.offered = row.offered.saturating_add(1);
            row.retries = row.retries.saturating_add(u64::from(request.attempt > 0));
        }
        let exact = if decided.fate() == Fate::Waiting {
            self.waiting.insert((index, decided.arrival().number), request);
            None
        } else {
            let mut account = Account {
                table: &mut self.table,
                judge: &mut self.judge,
                waits: &mut self.waits,
                requests: &mut self.requests,
            };
            account.take(&request, &decided, request.at)
        };
        observe(&Seen { at: request.at, node: index, request: &request, decided: &decided, exact });
        self.measure(index);
    }

    /// The server that a request comes to.
    fn server_of(&mut self, request: &Request) -> usize {
        let count = u64::try_from(self.servers.len()).unwrap_or(1);
        let number = match self.spread {
            _ if count == 1 => 0,
            Spread::RoundRobin => self.table.offered.checked_rem(count).unwrap_or(0),
            Spread::Random => self.chance.below(count),
            // Clients are numbered one after the other: mixed, so that no node has the first ones.
            Spread::Client => {
                let mixed = request.client.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                mixed.checked_rem(count).unwrap_or(0)
            }
        };
        usize::try_from(number).unwrap_or(0)
    }

    /// Notes what the stores hold after a decision of one of them.
    fn measure(&mut self, index: usize) {
        let Some(server) = self.servers.get_mut(index) else { return };
        let store = server.node.stored();
        let held = Held {
            keys: u64::try_from(store.len()).unwrap_or(u64::MAX),
            bytes: store.state_bytes(),
        };
        let before = std::mem::replace(&mut server.held, held);
        let sum = |all: u64, before: u64, now: u64| all.saturating_sub(before).saturating_add(now);
        self.held = Held {
            keys: sum(self.held.keys, before.keys, held.keys),
            bytes: sum(self.held.bytes, before.bytes, held.bytes),
        };
        self.table.keys = self.table.keys.max(self.held.keys);
        self.table.state_bytes = self.table.state_bytes.max(self.held.bytes);
    }
}

/// What takes in the end of a request.
struct Account<'r> {
    table: &'r mut Table,
    judge: &'r mut Judge,
    waits: &'r mut Waits,
    requests: &'r mut Requests,
}

impl Account<'_> {
    /// Counts a request that goes on or is refused at the true time `now`, and tells its client.
    fn take(&mut self, request: &Request, decided: &Decided<'_>, now: Timestamp) -> Option<Exact> {
        let (is_admitted, more) = match decided.fate() {
            Fate::Admitted => (true, Span::ZERO),
            // After a line it has waited for some of it already.
            Fate::Delayed(wait) => (true, wait.saturating_sub(decided.waited())),
            Fate::Denied { .. } | Fate::Waiting => (false, Span::ZERO),
        };
        let leaves_at = now.saturating_add(more);
        let wait = if is_admitted { leaves_at.since(request.at) } else { Span::ZERO };
        let Table { admitted, delayed, denied, .. } = &mut *self.table;
        count_one([admitted, delayed, denied], is_admitted, wait);
        if let Some(row) = self.table.sources.get_mut(request.source) {
            count_one([&mut row.admitted, &mut row.delayed, &mut row.denied], is_admitted, wait);
        }
        if wait > Span::ZERO {
            self.waits.add(wait);
        }
        for said in decided.rules() {
            if let Some(row) = self.table.rules.get_mut(said.rule) {
                row.count(said.result);
            }
        }
        if self.requests.listens(request) {
            let mut told = Told { is_refused: !is_admitted, ..Told::default() };
            decided.outcome().headers(&mut |name, value| told.field(name, value));
            self.requests.tell(request, &told, leaves_at);
        }
        self.judge.tell(decided, is_admitted, leaves_at, now)
    }
}

/// Adds a request to those that went on at once, went on later, or were refused.
fn count_one([admitted, delayed, denied]: [&mut u64; 3], is_admitted: bool, wait: Span) {
    let count = match (is_admitted, wait > Span::ZERO) {
        (false, _) => denied,
        (true, true) => delayed,
        (true, false) => admitted,
    };
    *count = count.saturating_add(1);
}

impl RuleRow {
    fn count(&mut self, result: RuleResult) {
        let count = match result {
            RuleResult::Allowed => &mut self.allowed,
            RuleResult::Denied => &mut self.denied,
            RuleResult::Delayed => &mut self.delayed,
            RuleResult::Marked => &mut self.marked,
            RuleResult::Shadowed => &mut self.shadowed,
            RuleResult::Failed => &mut self.failed,
            RuleResult::Malformed => &mut self.malformed,
        };
        *count = count.saturating_add(1);
    }
}

/// A table with a row for every rule, quota and source, and nothing counted.
fn empty_table(policy: &Policy, traffic: &Traffic) -> Table {
    let name_of = |rule: usize| policy.rules().get(rule).map_or("", |rule| rule.name());
    let quotas = policy.quota_sets().iter().flat_map(|set| {
        set.quotas().iter().map(|quota| QuotaRow {
            rule: name_of(set.rule()).into(),
            tier: set.tier().map(Into::into),
            name: quota.name().into(),
            algorithm: quota.limiter().algorithm().name().into(),
            limit: quota.limiter().limit(),
            window_us: quota.window().as_nanos() / 1_000,
            most_admitted: 0,
            burst: 0,
            state_len: u64::try_from(quota.limiter().state_len()).unwrap_or(u64::MAX),
        })
    });
    let rule = |i: usize| RuleRow { name: name_of(i).into(), ..RuleRow::default() };
    Table {
        rules: (0..policy.rules().len()).map(rule).collect(),
        quotas: quotas.collect(),
        sources: traffic.sources().map(|name| SourceRow { name, ..SourceRow::default() }).collect(),
        ..Table::default()
    }
}
