//! Nodes against one authority, in virtual time: which part of a limit they allow together, how
//! often they ask, and that they never exceed one limiter.
//!
//! The table of `docs/fleet.md` is compared with this one; `TOLLGATE_BLESS=1` writes it. Everything
//! is seeded and in integers, so the results are the same on every machine.

use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use tollgate_core::{Algorithm, Limiter, Quota, Span, Timestamp};

use super::super::ask::Leasing;
use super::super::mutation::{Mutation, activate, is};
use super::super::node::{Holding, Taken};
use super::super::paces::Paces;
use super::{Set, direct, limiter, read, std, with_leases};
use crate::counts::Counts;

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;
const START: u64 = 1_780_000_000 * SECOND;
/// A round trip takes 2 ms; a node checks its leases every 10 ms.
const LATENCY: u64 = MILLI;
const TICK: u64 = 10 * MILLI;
const LIFE: Span = Span::from_secs(2);
const PATIENCE: Span = Span::from_millis(250);
const WINDOW_S: u64 = 10;
/// Windows that are left out, and windows that are counted.
const WARM: u64 = 2;
const COUNTED: u64 = 8;
const COUNTED_OVER: u64 = 3;

/// The distribution of the load over the nodes.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Evenly, twice the limit.
    Even,
    /// One node has nine tenths of twice the limit.
    Skewed,
    /// All of twice the limit goes to one node, another one every 3 s.
    Moving,
    /// Evenly, 90 % of the limit: how many are denied although there is room.
    Below,
    /// Evenly, this percentage of the limit, from clients that do not wait for each other.
    Over(u64),
    /// This percentage of the limit, this many requests at once, at one node after the other.
    Bursts(u64, u64),
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
    /// Messages are lost, repeated, late and reordered, and nodes restart without memory.
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
    /// Those after the first windows.
    counted_questions: u64,
    leased: u64,
    /// The state of one limiter with the same requests after the first windows.
    one: Vec<u8>,
    admitted_by_one: u64,
}

impl Fleet {
    fn new(limiter: Limiter, nodes: u64, load: Load) -> Self {
        let limit = limiter.limit();
        let part = match load {
            Load::Below => 90,
            Load::Over(part) | Load::Bursts(part, _) => part,
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
            counted_questions: 0,
            leased: 0,
            one: vec![0; limiter.state_len()],
            admitted_by_one: 0,
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

    /// The clock of a node: up to 0.05 % wrong, a different part for each.
    fn clock(&self, node: usize) -> Timestamp {
        let drift = self.now / 1_000_000 * (u64::try_from(node).unwrap() % 11 * 100);
        Timestamp::from_nanos(SECOND + self.now + drift - self.now / 2_000)
    }

    fn run(&mut self) {
        let mut bytes = vec![];
        let counted = if matches!(self.load, Load::Over(_)) { COUNTED_OVER } else { COUNTED };
        if let Load::Over(_) = self.load {
            self.use_up();
        }
        let end = (WARM + counted) * WINDOW_S * SECOND;
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > end {
                return;
            }
            self.now = at;
            match event {
                Event::Request => {
                    let mut pause = self.every / 2 + self.below(self.every);
                    if let Load::Bursts(_, size) = self.load {
                        let is_last = self.requests % size == size - 1;
                        pause = if is_last { self.every * size } else { 1_000 };
                    }
                    self.after(pause, Event::Request);
                    let node = self.place();
                    self.requests += 1;
                    self.counted += u64::from(self.is_counted());
                    let at = Timestamp::from_nanos(START + self.now);
                    let by_one = self.set.limiters[0].check(&mut self.one, at, 1).is_admitted();
                    self.admitted_by_one += u64::from(by_one && self.is_counted());
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
                    // (With that mutation it holds more than it can encode.)
                    if !is(Mutation::TakesAgain) {
                        bytes.clear();
                        holding.encode(&mut bytes);
                        assert!(bytes.len() <= 355);
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
                    let (is_charged, left, retry_after) = rules[0];
                    if cost > 0 && !is_charged {
                        holding.hear_denial(clock, cost, retry_after);
                    } else if cost > 0 {
                        holding.hear_left(clock, cost, left);
                    }
                    self.serve(node);
                }
            }
        }
    }

    /// Uses up the burst, so that only the units that grow back are measured.
    fn use_up(&mut self) {
        let (limiter, at) = (self.set.limiters[0], Timestamp::from_nanos(START));
        let burst = limiter.capacity();
        limiter.check(&mut self.one, at, burst);
        let request = direct(0, &[(&self.set, burst)]);
        assert!(read(&self.counts.answer(&request, at).unwrap().reply, &[1]).1[0].0);
        self.admitted.extend((0..burst).map(|_| 0));
    }

    fn place(&mut self) -> usize {
        let nodes = u64::try_from(self.nodes.len()).unwrap();
        let is_first = self.below(10) > 0;
        let place = match self.load {
            Load::Skewed if is_first => 0,
            Load::Bursts(_, size) => self.requests / size % nodes,
            Load::Moving => self.now / (3 * SECOND) % nodes,
            Load::Even | Load::Skewed | Load::Below | Load::Over(_) => self.below(nodes),
        };
        usize::try_from(place).unwrap()
    }

    /// Serves the waiting requests of a node.
    fn serve(&mut self, node: usize) {
        let clock = self.clock(node);
        while !self.nodes[node].waiting.is_empty() {
            // As in the filter: a holding is not written unless it was paid from or asked for.
            let before = self.nodes[node].holding.clone();
            let taken = self.nodes[node].holding.take(clock, 1);
            if matches!(taken, Taken::Denied(_) | Taken::Wait(_)) {
                self.nodes[node].holding = before;
            }
            match taken {
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
                    // The response belongs to this request.
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
        it.holding.know(Paces::of(self.set.limiters.iter()));
        let ask = it.holding.ask(9, number, 1, clock, (LIFE, PATIENCE));
        let leasing = Leasing { table: it.table, sets: vec![ask] };
        self.questions += 1;
        self.counted_questions += u64::from(self.is_counted());
        self.send(Event::Question { node, number, leasing, cost });
    }

    fn is_counted(&self) -> bool {
        self.now >= WARM * WINDOW_S * SECOND
    }

    /// Requests allowed after the first windows.
    fn admitted(&self) -> u64 {
        let from = WARM * WINDOW_S * SECOND;
        u64::try_from(self.admitted.iter().filter(|at| **at >= from).count()).unwrap()
    }

    /// Requests allowed after the first windows, in parts of 1,000 of the target.
    fn admitted_part(&self) -> u64 {
        let limit = self.set.limiters[0].limit() * COUNTED;
        let wanted = if matches!(self.load, Load::Below) { self.counted } else { limit };
        self.admitted() * 1_000 / wanted
    }

    /// One limiter allows the same spending at the same times.
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
    let mut missed = vec![];
    let mut table = Table::new(
        "| algorithm | limit in 10 s | nodes | even | skewed | moving | admitted of 90 % | questions a request |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let algorithms =
        [Algorithm::Gcra, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog];
    for algorithm in algorithms {
        for (limit, nodes) in [(10, 3), (100, 3), (100, 12), (1_000, 12), (10_000, 12)] {
            let is_left_out = IS_SHORT && limit > 100;
            if algorithm != Algorithm::Gcra && limit > 1_000 || is_left_out {
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
                if part < least {
                    missed.push(format!("{limiter:?}, {nodes} nodes, {load:?}: {part}"));
                }
                columns.push(percent(part));
                if matches!(load, Load::Below) {
                    columns.push(percent(fleet.questions * 1_000 / fleet.requests));
                }
            }
            let (name, columns) = (algorithm.name(), columns.join(" | "));
            table.rows.push(format!("| `{name}` | {limit} | {nodes} | {columns} |\n"));
        }
    }
    table.compare("fleet");
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Limit in 10 s, burst and nodes.
const OVERLOADED: [(Algorithm, u64, u64, u64); 10] = [
    (Algorithm::Gcra, 10, 10, 3),
    (Algorithm::Gcra, 100, 100, 3),
    (Algorithm::Gcra, 100, 100, 12),
    (Algorithm::Gcra, 1_000, 60, 3),
    (Algorithm::Gcra, 1_000, 240, 12),
    (Algorithm::Gcra, 1_000, 1_000, 12),
    (Algorithm::Gcra, 10_000, 240, 12),
    (Algorithm::FixedWindow, 1_000, 1_000, 12),
    (Algorithm::SlidingWindow, 1_000, 1_000, 12),
    (Algorithm::SlidingLog, 1_000, 1_000, 12),
];

// Guards: a fleet that asks for nearly every request because there are more than it may allow. Each
// saved request to the authority matters most then.
#[test]
fn under_overload_few_requests_ask() {
    let mut table = Table::new(
        "| algorithm | limit in 10 s | burst | nodes | asked at 120 % | 200 % | 4,500 % | admitted at 120 % | 200 % | 4,500 % |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut missed = vec![];
    for (algorithm, limit, burst, nodes) in OVERLOADED {
        if IS_SHORT && (algorithm != Algorithm::Gcra || limit > 1_000) {
            continue;
        }
        let limiter = with_burst(algorithm, limit, burst);
        let (mut asked, mut admitted) = (vec![], vec![]);
        for load in [120, 200, 4_500] {
            // It would take a minute.
            if limit * load > 5_000_000 {
                asked.push(String::new());
                admitted.push(String::new());
                continue;
            }
            if IS_SHORT && load > 200 {
                continue;
            }
            let mut fleet = Fleet::new(limiter, nodes, Load::Over(load));
            fleet.run();
            assert!(fleet.is_within_the_limit(), "{limiter:?}, {nodes} nodes, {load} %");
            let part = fleet.counted_questions * 1_000 / fleet.counted;
            let of_one = fleet.admitted() * 1_000 / fleet.admitted_by_one;
            let is_rate = algorithm == Algorithm::Gcra;
            let is_large = is_rate && limit >= 100 * WINDOW_S && burst >= 20 * nodes;
            let a_second = fleet.counted_questions / (COUNTED_OVER * WINDOW_S);
            let is_kept = if is_large {
                part <= 120 && of_one >= 980
            } else {
                a_second <= 3 * nodes || !is_rate
            };
            if !is_kept {
                missed.push(format!("{limiter:?}, {nodes} nodes, {load} %: {part} {of_one}"));
            }
            asked.push(percent(part));
            admitted.push(percent(of_one));
        }
        let (name, asked, admitted) = (algorithm.name(), asked.join(" | "), admitted.join(" | "));
        if !IS_SHORT {
            let row =
                format!("| `{name}` | {limit} | {burst} | {nodes} | {asked} | {admitted} |\n");
            table.rows.push(row);
        }
    }
    table.compare("overload");
    assert!(missed.is_empty(), "{missed:#?}");
}

// Guards: units that a node leases after its burst, which another node then lacks for the next one.
#[test]
fn large_bursts_at_one_node_after_the_other_get_what_one_limiter_gives() {
    for (burst, nodes, size, part) in
        [(240, 3, 100, 50), (240, 3, 100, 95), (240, 3, 240, 95), (240, 12, 60, 50)]
    {
        let limiter = with_burst(Algorithm::Gcra, 1_000, burst);
        let mut fleet = Fleet::new(limiter, nodes, Load::Bursts(part, size));
        fleet.run();
        assert!(fleet.is_within_the_limit(), "{burst} {nodes} {size} {part}");
        let of_one = fleet.admitted() * 1_000 / fleet.admitted_by_one;
        assert!(of_one >= 980, "burst {burst}, {nodes} nodes, {size} at once: {of_one}");
    }
}

// Guards: intervals between lease requests in which there was room for denied requests: near the
// limit, with bursts, with one busy node among others, and with more nodes than a burst is enough
// for.
#[test]
fn no_load_gets_less_than_of_one_limiter() {
    let fleets = [(1_000, 40, 12), (1_000, 60, 3), (1_000, 60, 6), (1_000, 60, 12)];
    let larger =
        [(100, 100, 3), (100, 100, 12), (1_000, 120, 6), (1_000, 120, 12), (1_000, 240, 12)];
    let (larger, seeds): (&[_], _) = if IS_SHORT { (&[], 1) } else { (&larger, 3) };
    let loads = [
        Load::Over(95),
        Load::Over(105),
        Load::Bursts(50, 20),
        Load::Bursts(95, 20),
        Load::Bursts(200, 20),
        Load::Skewed,
        Load::Moving,
    ];
    let mut missed = vec![];
    for (limit, burst, nodes) in fleets.iter().chain(larger) {
        for load in loads {
            let parts: Vec<u64> = (1..=seeds)
                .map(|seed| {
                    let limiter = with_burst(Algorithm::Gcra, *limit, *burst);
                    let mut fleet = Fleet::new(limiter, *nodes, load);
                    fleet.random = seed;
                    fleet.run();
                    assert!(fleet.is_within_the_limit(), "{limit} {burst} {nodes} {load:?} {seed}");
                    fleet.admitted() * 1_000 / fleet.admitted_by_one
                })
                .collect();
            if parts.iter().sum::<u64>() < 980 * seeds || parts.iter().any(|part| *part < 970) {
                missed.push(format!("{limit}, burst {burst}, {nodes} nodes, {load:?}: {parts:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

// Guards: a node that denies between its lease requests although the fleet uses half of the limit.
#[test]
fn far_below_the_limit_nothing_is_denied() {
    for (limit, burst, nodes) in [(1_000, 240, 12), (1_000, 1_000, 12), (1_000, 60, 3)] {
        let limiter = with_burst(Algorithm::Gcra, limit, burst);
        let mut fleet = Fleet::new(limiter, nodes, Load::Over(50));
        fleet.run();
        let all = fleet.counted;
        assert_eq!((fleet.admitted_by_one, fleet.admitted()), (all, all), "{limiter:?}, {nodes}");
    }
}

fn with_burst(algorithm: Algorithm, limit: u64, burst: u64) -> Limiter {
    let quota = Quota::new(limit, Span::from_secs(WINDOW_S)).unwrap();
    let quota = if burst == limit { quota } else { quota.with_burst(burst).unwrap() };
    Limiter::new(algorithm, quota).unwrap()
}

/// Without optimisation, rows that repeat others with more requests are left out.
const IS_SHORT: bool = cfg!(debug_assertions);

/// A table of `docs/fleet.md`.
struct Table {
    head: &'static str,
    rows: Vec<String>,
}

impl Table {
    const fn new(head: &'static str) -> Self {
        Self { head, rows: vec![] }
    }

    /// It equals the text between two marks of the page; if some rows are left out, its rows are in
    /// that text.
    fn compare(&self, mark: &str) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.md");
        let page = std::fs::read_to_string(path).unwrap();
        let mark = format!("<!-- {mark} -->\n\n");
        let (before, rest) = page.split_once(&mark).expect("the first mark");
        let (found, after) = rest.split_once("\n<!-- end -->").expect("the second mark");
        let table = format!("{}{}", self.head, self.rows.concat());
        if IS_SHORT {
            let missing: Vec<_> = self.rows.iter().filter(|row| !found.contains(*row)).collect();
            assert!(missing.is_empty(), "docs/fleet.md: {missing:#?}");
        } else if std::env::var_os("TOLLGATE_BLESS").is_some() {
            let wanted = format!("{before}{mark}{table}\n<!-- end -->{after}");
            std::fs::write(path, wanted).unwrap();
        } else {
            let bless = "see it again with TOLLGATE_BLESS=1, optimised";
            assert!(found == table, "docs/fleet.md: {bless}\n{table}");
        }
    }
}

/// Nodes as shipped, on a bad network.
#[test]
fn nobody_spends_too_much_on_a_bad_network() {
    let seeds = if cfg!(debug_assertions) { 40 } else { 2_000 };
    assert_eq!(troubled(seeds), None);
    activate(Some(Mutation::TakesAgain));
    let found = troubled(seeds);
    activate(None);
    assert!(found.is_some(), "who takes what it has given up is not found");
}

/// The first of this many fleets that spends more than one limiter allows.
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
