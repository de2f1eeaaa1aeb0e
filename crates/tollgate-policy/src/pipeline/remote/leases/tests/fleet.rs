//! Nodes against one authority, in virtual time: how much of a limit they admit together, how often
//! they ask, and that it is never more than one limiter admits.
//!
//! The table of `docs/fleet.md` is this one, compared; `TOLLGATE_BLESS=1` writes it. Everything is
//! seeded and in integers, so it is the same on every machine.

use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter, Span, Timestamp};

use super::super::ask::Leasing;
use super::super::mutation::{Mutation, activate, is};
use super::super::node::{Holding, Taken};
use super::{Set, direct, limiter, read, std, with_leases};
use crate::pipeline::remote::counts::Counts;

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
const START: u64 = 1_780_000_000 * SECOND;
/// There and back again takes 2 ms; a node looks after its leases every 10.
const LATENCY: u64 = MILLI;
const TICK: u64 = 10 * MILLI;
const LIFE: Span = Span::from_secs(2);
const PATIENCE: Span = Span::from_millis(250);
const WINDOW_S: u64 = 10;
/// Windows that are left out, and those that are counted.
const WARM: u64 = 2;
const COUNTED: u64 = 8;

/// How the load is spread over the nodes.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Evenly, twice the limit.
    Even,
    /// One node has nine tenths of twice the limit.
    Skewed,
    /// All of twice the limit comes to one node, another one every 3 s.
    Moving,
    /// Evenly, 90 % of the limit: how many are refused although there is room.
    Below,
}

#[derive(Clone)]
enum Event {
    Request,
    Question { node: usize, number: u64, leasing: Leasing, cost: u64 },
    Answer { node: usize, table: u128, number: u64, reply: Vec<u8>, cost: u64 },
    Tick(usize),
}

#[derive(Default)]
struct Node {
    table: u128,
    holding: Holding,
    next: u64,
    waiting: VecDeque<u64>,
}

struct Fleet {
    now: u64,
    sequence: u64,
    events: BTreeMap<(u64, u64), Event>,
    random: u64,
    load: Load,
    /// Messages are lost, come twice, late and in any order, and nodes begin anew.
    is_troubled: bool,
    every: u64,
    set: Set,
    counts: Counts,
    nodes: Vec<Node>,
    admitted: Vec<u64>,
    requests: u64,
    /// Requests after the first windows.
    counted: u64,
    questions: u64,
    leased: u64,
}

impl Fleet {
    fn new(limiter: Limiter, nodes: u64, load: Load) -> Self {
        let limit = limiter.limit();
        let part = match load {
            Load::Below => 90,
            Load::Even | Load::Skewed | Load::Moving => 200,
        };
        let every = WINDOW_S * SECOND * 100 / (limit * part);
        let mut fleet = Self {
            now: 0,
            sequence: 0,
            events: BTreeMap::new(),
            random: 1,
            load,
            is_troubled: false,
            every,
            set: Set::new(9, &[limiter]),
            counts: Counts::default(),
            nodes: (0..nodes).map(|i| Node { table: i.into(), ..Node::default() }).collect(),
            admitted: vec![],
            requests: 0,
            counted: 0,
            questions: 0,
            leased: 0,
        };
        for node in 0..fleet.nodes.len() {
            fleet.after(TICK, Event::Tick(node));
        }
        fleet.after(1, Event::Request);
        fleet
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    fn after(&mut self, pause: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + pause, self.sequence), event);
    }

    fn send(&mut self, event: Event) {
        if !self.is_troubled {
            return self.after(LATENCY, event);
        }
        let copies = match self.below(8) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let is_late = self.below(6) == 0;
            let delay = if is_late { self.below(3 * SECOND) } else { LATENCY };
            self.after(delay, event.clone());
        }
    }

    /// The clock of a node: up to 0.05 % wrong, each by another part.
    fn clock(&self, node: usize) -> Timestamp {
        let drift = self.now / 1_000_000 * (u64::try_from(node).unwrap() % 11 * 100);
        Timestamp::from_nanos(SECOND + self.now + drift - self.now / 2_000)
    }

    fn run(&mut self) {
        let mut bytes = vec![];
        let end = (WARM + COUNTED) * WINDOW_S * SECOND;
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > end {
                return;
            }
            self.now = at;
            match event {
                Event::Request => {
                    let pause = self.every / 2 + self.below(self.every);
                    self.after(pause, Event::Request);
                    let node = self.place();
                    self.requests += 1;
                    self.counted += u64::from(self.now >= WARM * WINDOW_S * SECOND);
                    self.nodes[node].waiting.push_back(self.now);
                    self.serve(node);
                }
                Event::Tick(node) => {
                    self.after(TICK, Event::Tick(node));
                    if self.is_troubled && self.below(2_000) == 0 {
                        let table = u128::from(self.random);
                        self.nodes[node] = Node { table, ..Node::default() };
                    }
                    self.serve(node);
                    let clock = self.clock(node);
                    let holding = &mut self.nodes[node].holding;
                    // (With that mutation it holds more than it can.)
                    if !is(Mutation::TakesAgain) {
                        bytes.clear();
                        holding.encode(&mut bytes);
                        assert!(bytes.len() <= 306);
                        assert!(Holding::decode(&bytes).as_ref() == Some(holding));
                    }
                    if self.nodes[node].holding.is_due(clock) {
                        self.ask(node, 0);
                    }
                }
                Event::Question { node, number, leasing, cost } => {
                    let now = Timestamp::from_nanos(START + self.now);
                    let table = leasing.table;
                    let request = with_leases(&leasing, &direct(0, &[(&self.set, cost)]));
                    let reply = self.counts.answer(&request, now).unwrap().reply;
                    if cost > 0 && read(&reply, &[1]).1[0].0 {
                        self.admitted.push(self.now);
                    }
                    self.leased += self.counts.sets[0].leases.out();
                    self.send(Event::Answer { node, table, number, reply, cost });
                }
                Event::Answer { node, table, number, reply, cost } => {
                    if self.nodes[node].table != table {
                        continue;
                    }
                    let (leased, rules) = read(&reply, &[1]);
                    let clock = self.clock(node);
                    let holding = &mut self.nodes[node].holding;
                    holding.answer(number, leased[0], clock);
                    let (is_charged, _, retry_after) = rules[0];
                    if cost > 0 && !is_charged {
                        holding.deny(clock, cost, retry_after);
                    }
                    self.serve(node);
                }
            }
        }
    }

    fn place(&mut self) -> usize {
        let nodes = u64::try_from(self.nodes.len()).unwrap();
        let is_first = self.below(10) > 0;
        let place = match self.load {
            Load::Skewed if is_first => 0,
            Load::Moving => self.now / (3 * SECOND) % nodes,
            Load::Even | Load::Skewed | Load::Below => self.below(nodes),
        };
        usize::try_from(place).unwrap()
    }

    /// Gives the waiting requests of a node their turn.
    fn serve(&mut self, node: usize) {
        let clock = self.clock(node);
        while !self.nodes[node].waiting.is_empty() {
            match self.nodes[node].holding.take(clock, 1) {
                Taken::Spent { .. } => {
                    self.admitted.push(self.now);
                    self.nodes[node].waiting.pop_front();
                    if self.nodes[node].holding.is_due(clock) {
                        self.ask(node, 0);
                    }
                }
                Taken::Denied(_) => {
                    self.nodes[node].waiting.pop_front();
                }
                Taken::Ask => {
                    // The answer is this request's.
                    self.nodes[node].waiting.pop_front();
                    self.ask(node, 1);
                }
                Taken::Wait(_) => return,
            }
        }
    }

    fn ask(&mut self, node: usize, cost: u64) {
        let clock = self.clock(node);
        let it = &mut self.nodes[node];
        it.next += 1;
        let number = it.next;
        let ask = it.holding.ask(9, number, 1, clock, (LIFE, PATIENCE));
        let leasing = Leasing { table: it.table, sets: vec![ask] };
        self.questions += 1;
        self.send(Event::Question { node, number, leasing, cost });
    }

    /// Admitted after the first windows, in parts of 1,000 of what was to be.
    fn admitted_part(&self) -> u64 {
        let from = WARM * WINDOW_S * SECOND;
        let admitted = self.admitted.iter().filter(|at| **at >= from).count();
        let limit = self.set.limiters[0].limit() * COUNTED;
        let wanted = if matches!(self.load, Load::Below) { self.counted } else { limit };
        u64::try_from(admitted).unwrap() * 1_000 / wanted
    }

    /// What was spent when it was is what one limiter admits.
    fn is_within_the_limit(&self) -> bool {
        let limiter = self.set.limiters[0];
        let mut state = vec![0; limiter.state_len()];
        let at = |at: &u64| Timestamp::from_nanos(START + at);
        self.admitted.iter().all(|it| limiter.check(&mut state, at(it), 1).is_admitted())
    }
}

fn percent(thousandths: u64) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

#[test]
fn a_fleet_admits_its_limit_and_no_more() {
    let mut table = String::from(
        "| algorithm | limit in 10 s | nodes | even | skewed | moving | admitted of 90 % | questions a request |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let algorithms =
        [Algorithm::Gcra, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog];
    for algorithm in algorithms {
        for (limit, nodes) in [(10, 3), (100, 3), (100, 12), (1_000, 12), (10_000, 12)] {
            if algorithm != Algorithm::Gcra && limit > 1_000 {
                continue;
            }
            let limiter = limiter(algorithm, limit, WINDOW_S);
            let mut columns = vec![];
            for load in [Load::Even, Load::Skewed, Load::Moving, Load::Below] {
                let mut fleet = Fleet::new(limiter, nodes, load);
                fleet.run();
                let part = fleet.admitted_part();
                assert!(fleet.is_within_the_limit(), "{limiter:?}, {nodes} nodes, {load:?}");
                let least = if matches!(load, Load::Below) { 930 } else { 970 };
                assert!(part >= least, "{limiter:?}, {nodes} nodes, {load:?}: {part}");
                columns.push(percent(part));
                if matches!(load, Load::Below) {
                    columns.push(percent(fleet.questions * 1_000 / fleet.requests));
                }
            }
            let (name, columns) = (algorithm.name(), columns.join(" | "));
            table += &format!("| `{name}` | {limit} | {nodes} | {columns} |\n");
        }
    }
    compare(&table);
}

/// The table between its two marks in `docs/fleet.md`.
fn compare(table: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once("<!-- fleet -->\n\n").expect("the first mark");
    let (_, after) = rest.split_once("\n<!-- end -->").expect("the second mark");
    let wanted = format!("{before}<!-- fleet -->\n\n{table}\n<!-- end -->{after}");
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    } else {
        assert!(page == wanted, "docs/fleet.md: see it again with TOLLGATE_BLESS=1\n{table}");
    }
}

/// Nodes as they are shipped, on a network that is as bad as networks are.
#[test]
fn nobody_spends_too_much_on_a_bad_network() {
    let seeds = if cfg!(debug_assertions) { 40 } else { 2_000 };
    assert_eq!(troubled(seeds), None);
    activate(Some(Mutation::TakesAgain));
    let found = troubled(seeds);
    activate(None);
    assert!(found.is_some(), "who takes what it has given up is not found");
}

/// The first of so many fleets that spends more than one limiter admits.
fn troubled(seeds: u64) -> Option<u64> {
    (0..seeds).find(|seed| {
        let algorithms = [Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::Gcra];
        let algorithm = algorithms[usize::try_from(seed % 3).unwrap()];
        let mut fleet = Fleet::new(limiter(algorithm, 100, WINDOW_S), 4, Load::Moving);
        (fleet.is_troubled, fleet.random) = (true, seed + 1);
        fleet.run();
        assert!(fleet.leased > 0);
        !fleet.is_within_the_limit()
    })
}
