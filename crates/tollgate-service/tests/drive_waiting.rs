//! Requests that wait for a place among those in flight: whole courses of the drive and of the
//! lines, in simulated time, over counts whose replies are reordered, repeated, lost and late, for
//! clients that may leave.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use tollgate_core::{Span, Timestamp};
use tollgate_language::DescribedRequest;
use tollgate_policy::waiting::{Limits, Queue, Ticket, Turn};
use tollgate_policy::{Disposition, Failure, Partition, Plan, Policy, Surface};
use tollgate_service::CountRequest;
use tollgate_service::drive::waiting::{WaitCourse, WaitStep, WaitingLines, sleep};
use tollgate_service::drive::{Drive, MissingReply, Next, Order, RequestId, WaitBudget};
use tollgate_service::in_flight::InFlight;
use tollgate_storage::{Counts, InFlightReport};
use tollgate_test_support::Random;

const START: Timestamp = Timestamp::from_millis(7_200_000);
/// The requests of one client that run at the same time, and the requests of one method.
const PLACES: usize = 2;
const QUOTA: u64 = 8;
/// How long a request waits at most, and how long the store may take to reply.
const MAX: Span = Span::from_secs(5);
const TIMEOUT: Span = Span::from_millis(500);
/// After this no request counts as in flight that nothing confirmed.
const MAX_AGE: Span = Span::from_secs(3_600);
const CLIENTS: usize = 18;
const SEEDS: u64 = 200;

fn policy(on_failure: &str) -> Policy {
    let document = format!(
        r#"{{"version": 1, "rules": [
            {{"name": "user", "key": ["client_ip"], "on_failure": "{on_failure}",
             "action": {{"delay": {{"max": "5s"}}}},
             "concurrency": {{"limit": {PLACES}, "max_age": "1h"}}}},
            {{"name": "all", "key": ["method"], "on_failure": "{on_failure}",
             "quotas": [{{"limit": {QUOTA}, "window": "1h"}}]}}]}}"#
    );
    tollgate_language::compile(&document, Surface::Server).unwrap()
}

type Name = [u8; 32];
type Line = (Name, u32);

fn name_of(partition: Partition<'_>) -> Name {
    let mut hasher = DefaultHasher::new();
    (partition.group(), partition.key()).hash(&mut hasher);
    let mut name = [0; 32];
    name[..8].copy_from_slice(&hasher.finish().to_le_bytes());
    name
}

/// The lines; a waiter is the index of its client.
struct Lines(RefCell<Queue<Line, usize>>);

/// The same for one client.
struct LinesOf<'a>(&'a Lines, usize);

impl WaitingLines for LinesOf<'_> {
    type Name = Line;
    type Waiter = usize;

    fn with<R>(&self, step: impl FnOnce(&mut Queue<Line, usize>) -> R) -> R {
        step(&mut self.0.0.borrow_mut())
    }

    fn name(&self, plan: &Plan, turn: Turn) -> Line {
        (name_of(plan.partition(turn.partition).unwrap()), turn.record)
    }

    fn waiter(&self, _: Timestamp) -> usize {
        self.1
    }
}

/// The number of a client's request in flight.
fn number_of(i: usize) -> u64 {
    i.try_into().unwrap()
}

/// A request to a count, as it is sent.
#[derive(Clone)]
struct Call {
    client: usize,
    /// The number of the client's drive, because each has the same ids.
    drive: u32,
    id: RequestId,
    name: Name,
    request: Vec<u8>,
    /// The reply whose charge it refunds.
    refunds: Option<Vec<u8>>,
}

enum Happening {
    Arrives(usize),
    /// The count carries it out; its reply takes this long, and comes this often.
    Reaches(Call, Span, u32),
    Replies(Call, Result<Vec<u8>, MissingReply>),
    /// The client's timer, of this number.
    Polls(usize, u32),
    Leaves(usize),
    Ends(usize),
}

enum Stage {
    Away,
    /// Its drive is not done.
    Decides,
    Waits,
    Runs(Option<InFlight>),
    Over,
}

struct Client {
    ip: u64,
    plan: Plan,
    course: WaitCourse,
    drive: Drive,
    drives: u32,
    stage: Stage,
    came_at: Timestamp,
    /// Its last ticket.
    ticket: Option<Ticket>,
    /// How often it may be decided again, and how often it was.
    most_looks: u32,
    looks: u32,
    has_left: bool,
    timers: u32,
}

impl Client {
    fn new(policy: &Policy, ip: u64, method: &str) -> Self {
        let facts = format!(
            r#"{{"method": "{method}", "path": "/", "client_ip": "192.0.2.{ip}", "headers": {{}}}}"#
        );
        let mut plan = Plan::new();
        policy.plan(&DescribedRequest::parse(facts.as_bytes()).unwrap(), &mut plan);
        assert_eq!(plan.len(), 2);
        Self {
            ip,
            plan,
            course: WaitCourse::new(START, Span::MAX, 0),
            drive: Drive::default(),
            drives: 0,
            stage: Stage::Away,
            came_at: START,
            ticket: None,
            most_looks: 0,
            looks: 0,
            has_left: false,
            timers: 0,
        }
    }
}

/// How often the special cases occurred.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    came_behind: u32,
    allowed_later: u32,
    in_vain: u32,
    left_in_line: u32,
    left_deciding: u32,
    failed_behind: u32,
}

struct World {
    policy: Policy,
    order: Order,
    random: Random,
    has_faults: bool,
    now: Timestamp,
    number: u64,
    /// In the order of their times.
    happenings: BTreeMap<(Timestamp, u64), Happening>,
    counts: BTreeMap<Name, Counts>,
    lines: Lines,
    clients: Vec<Client>,
    /// The last waiter of each client address that was allowed.
    allowed: BTreeMap<u64, Ticket>,
    seen: Seen,
}

impl World {
    fn new(seed: u64, order: Order, on_failure: &str, has_faults: bool, seen: Seen) -> Self {
        let mut world = Self {
            policy: policy(on_failure),
            order,
            random: Random::new(seed),
            has_faults,
            now: START,
            number: 0,
            happenings: BTreeMap::new(),
            counts: BTreeMap::new(),
            lines: Lines(RefCell::new(Queue::new(Limits::default()))),
            clients: Vec::new(),
            allowed: BTreeMap::new(),
            seen,
        };
        for i in 0..CLIENTS {
            let ip = world.random.below(2);
            let method = *world.random.pick(&["GET", "PUT"]);
            world.clients.push(Client::new(&world.policy, ip, method));
            let comes_after = world.up_to(3_000);
            world.push(comes_after, Happening::Arrives(i));
            if has_faults && world.random.one_in(6) {
                let leaves_after = comes_after.saturating_add(world.up_to(4_000));
                world.push(leaves_after, Happening::Leaves(i));
            }
        }
        world
    }

    fn up_to(&mut self, millis: u64) -> Span {
        Span::from_millis(self.random.between(0, millis))
    }

    fn push(&mut self, after: Span, happening: Happening) {
        self.number += 1;
        self.happenings.insert((self.now.saturating_add(after), self.number), happening);
    }

    fn step(&mut self) -> bool {
        let Some(((at, _), happening)) = self.happenings.pop_first() else { return false };
        self.now = at;
        match happening {
            Happening::Arrives(i) => self.arrive(i),
            Happening::Reaches(call, replies_after, times) => {
                let reply = self.carry_out(&call);
                for _ in 0..times {
                    self.push(replies_after, Happening::Replies(call.clone(), Ok(reply.clone())));
                }
            }
            Happening::Replies(call, reply) => {
                let client = &mut self.clients[call.client];
                if client.drives == call.drive {
                    let plan = &mut client.plan;
                    let _ = client.drive.receive(&self.policy, plan, call.id, reply);
                    self.pump(call.client);
                }
            }
            Happening::Polls(i, timer) if self.clients[i].timers == timer => self.poll(i),
            Happening::Polls(..) => {}
            Happening::Leaves(i) => self.leave(i),
            Happening::Ends(i) => self.end(i),
        }
        true
    }

    fn arrive(&mut self, i: usize) {
        let most_looks = *self.random.pick(&[2, u32::MAX]);
        let (now, client) = (self.now, &mut self.clients[i]);
        (client.came_at, client.most_looks) = (now, most_looks);
        client.course = WaitCourse::new(now, Span::MAX, most_looks);
        self.go_on(i);
    }

    /// The next step of client `i`.
    fn go_on(&mut self, i: usize) {
        let (now, policy, client) = (self.now, &self.policy, &mut self.clients[i]);
        let lines = LinesOf(&self.lines, i);
        client.timers += 1;
        let step = client.course.next(&lines, policy, &mut client.plan, || now);
        let (plan, budget) = (&mut client.plan, client.course.budget());
        client.ticket = client.course.ticket().or(client.ticket);
        match step {
            WaitStep::Peek => {
                self.seen.came_behind += 1;
                let drive = Drive::peek(policy, plan, self.order);
                self.run(i, drive);
            }
            WaitStep::Charge => {
                self.seen.failed_behind += 1;
                let drive = Drive::charge(policy, plan, budget);
                self.run(i, drive);
            }
            WaitStep::Decide => {
                // A poll of the first of a line may be the shortest sleep late.
                let waited = budget.waited;
                assert!(waited <= MAX.saturating_add(Span::from_millis(5)), "{waited:?}");
                client.looks += u32::from(client.course.ticket().is_some());
                assert!(client.looks <= client.most_looks, "it looks again and again");
                let drive = Drive::decide(policy, plan, self.order, budget);
                self.run(i, drive);
            }
            WaitStep::Sleep(at) => {
                assert!(!client.drive.has_charged(), "it waits, and is charged");
                client.stage = Stage::Waits;
                let timer = client.timers;
                self.push(sleep(now, at), Happening::Polls(i, timer));
            }
            WaitStep::Hold(_) => panic!("no time is assigned here"),
            WaitStep::Done => self.finish(i),
        }
    }

    fn run(&mut self, i: usize, drive: Drive) {
        let client = &mut self.clients[i];
        (client.drive, client.stage, client.drives) = (drive, Stage::Decides, client.drives + 1);
        self.pump(i);
    }

    /// Sends what the drive of client `i` has to send, and continues when it is done.
    fn pump(&mut self, i: usize) {
        if !matches!(self.clients[i].stage, Stage::Decides) {
            return; // a reply that came twice
        }
        loop {
            let client = &mut self.clients[i];
            match client.drive.next(&self.policy, &mut client.plan) {
                Next::Wait => return,
                Next::Done => return self.decided(i),
                Next::Send(id) => {
                    let request = client.drive.request(id).unwrap();
                    let (request, refunds, partition) = match request.ask {
                        CountRequest::Peek(bytes) | CountRequest::Charge(bytes) => {
                            (bytes.to_vec(), None, request.partition)
                        }
                        CountRequest::Refund(bytes, reply) => {
                            (bytes.to_vec(), Some(reply.to_vec()), request.partition)
                        }
                    };
                    let name = name_of(client.plan.partition(partition).unwrap());
                    let drive = client.drives;
                    self.send(Call { client: i, drive, id, name, request, refunds });
                }
            }
        }
    }

    fn send(&mut self, call: Call) {
        let (there, back) = (self.up_to(120), self.up_to(120));
        let lost = || Err(MissingReply::Failed(Failure::Unreachable));
        let fault = if self.has_faults { self.random.below(24) } else { 24 };
        match fault {
            // Lost on its way; carried out, and its reply is lost; carried out when given up.
            0 => self.push(TIMEOUT, Happening::Replies(call, lost())),
            1 | 2 => {
                let late = if fault == 1 { Span::ZERO } else { TIMEOUT };
                self.push(TIMEOUT, Happening::Replies(call.clone(), lost()));
                self.push(there.saturating_add(late), Happening::Reaches(call, back, 0));
            }
            3 => self.push(there, Happening::Reaches(call, back, 2)),
            _ => self.push(there, Happening::Reaches(call, back, 1)),
        }
    }

    fn carry_out(&mut self, call: &Call) -> Vec<u8> {
        let counts = self.counts.entry(call.name).or_default();
        let answered = match &call.refunds {
            Some(reply) => counts.refund(&call.request, reply, self.now),
            None => counts.answer(&call.request, self.now),
        };
        answered.unwrap().reply
    }

    /// The drive of client `i` is done.
    fn decided(&mut self, i: usize) {
        let client = &mut self.clients[i];
        if client.has_left {
            assert!(!client.drive.has_charged(), "it is charged although it left");
            client.stage = Stage::Over;
            return;
        }
        self.go_on(i);
    }

    /// Client `i` polls, if it waits.
    fn poll(&mut self, i: usize) {
        if matches!(self.clients[i].stage, Stage::Waits) {
            self.go_on(i);
        }
    }

    /// The request has its decision.
    fn finish(&mut self, i: usize) {
        let (policy, client) = (&self.policy, &mut self.clients[i]);
        let took = self.now.since(client.came_at);
        assert!(took <= MAX.saturating_add(TIMEOUT.saturating_mul(5)), "it took {took:?}");
        let is_allowed =
            matches!(client.plan.outcome(policy).final_disposition(), Disposition::Allow);
        if !is_allowed {
            assert!(!client.drive.has_charged(), "it is denied, and charged");
            self.seen.in_vain += u32::from(client.course.waited() > Span::ZERO);
            client.stage = Stage::Over;
            return self.wake_first(i);
        }
        if let Some(ticket) = client.ticket {
            self.seen.allowed_later += 1;
            let before = self.allowed.insert(client.ip, ticket);
            assert!(before < Some(ticket), "it passed one that came earlier");
        }
        let in_flight = InFlight::of(&client.plan, policy, number_of(i), &name_of);
        client.stage = Stage::Runs(in_flight);
        let ip = client.ip;
        let holds = |it: &&Client| match it.stage {
            Stage::Runs(_) => it.ip == ip && !it.plan.partitions().next().unwrap().has_failed(),
            _ => false,
        };
        let running = self.clients.iter().filter(holds).count();
        assert!(running <= PLACES, "{running} run");
        let ends_after = self.up_to(2_500);
        self.push(ends_after, Happening::Ends(i));
        self.wake_first(i);
    }

    /// A waiter has gone: the next one of its line may be woken.
    fn wake_first(&mut self, i: usize) {
        let name = name_of(self.clients[i].plan.partitions().next().unwrap());
        let lines = self.lines.0.borrow().lines_between(&(name, 0), &(name, u32::MAX));
        for line in lines {
            let first = self.lines.0.borrow().first(&line).copied();
            if let Some(first) = first.filter(|_| self.random.one_in(2)) {
                self.poll(first);
            }
        }
    }

    /// The request has ended, and its places are free.
    fn end(&mut self, i: usize) {
        let stage = std::mem::replace(&mut self.clients[i].stage, Stage::Over);
        let Stage::Runs(in_flight) = stage else { panic!("it does not run") };
        for (name, receipt) in in_flight.iter().flat_map(|it| &it.counts) {
            let request = InFlightReport::Ended.request(number_of(i), receipt);
            let counts = self.counts.get_mut(name).unwrap();
            counts.report_in_flight(&request, self.now).unwrap();
            let lines = self.lines.0.borrow().lines_between(&(*name, 0), &(*name, u32::MAX));
            for line in lines {
                // In the Worker no waiter is woken: it polls soon.
                let first = self.lines.0.borrow_mut().place_freed(&line, self.now).copied();
                if let Some(first) = first.filter(|_| self.random.one_in(2)) {
                    self.poll(first);
                }
            }
        }
    }

    fn leave(&mut self, i: usize) {
        let client = &mut self.clients[i];
        let ticket = client.course.ticket();
        let is_in_line =
            ticket.is_some_and(|it| self.lines.0.borrow_mut().leave(it, self.now).is_some());
        match client.stage {
            Stage::Waits => {
                self.seen.left_in_line += 1;
                assert!(is_in_line);
                client.stage = Stage::Over;
                self.wake_first(i);
            }
            Stage::Decides => {
                self.seen.left_deciding += 1;
                client.has_left = true;
                client.drive.withdraw();
                self.pump(i);
            }
            Stage::Away | Stage::Runs(_) | Stage::Over => {}
        }
    }

    /// New requests of a client, without faults: how many of them get a place.
    fn free_places(&mut self, ip: u64) -> usize {
        let probe = |world: &mut Self| {
            let mut client = Client::new(&world.policy, ip, "POST");
            let (policy, plan) = (&world.policy, &mut client.plan);
            let mut drive = Drive::decide(policy, plan, world.order, WaitBudget::default());
            loop {
                match drive.next(&world.policy, &mut client.plan) {
                    Next::Done => break,
                    Next::Wait => panic!("every reply came"),
                    Next::Send(id) => {
                        let request = drive.request(id).unwrap();
                        let name = name_of(client.plan.partition(request.partition).unwrap());
                        let counts = world.counts.entry(name).or_default();
                        let reply = match request.ask {
                            CountRequest::Peek(bytes) | CountRequest::Charge(bytes) => {
                                counts.answer(bytes, world.now)
                            }
                            CountRequest::Refund(bytes, reply) => {
                                counts.refund(bytes, reply, world.now)
                            }
                        };
                        let (plan, reply) = (&mut client.plan, reply.unwrap().reply);
                        let _ = drive.receive(&world.policy, plan, id, Ok(reply));
                    }
                }
            }
            client.plan.outcome(&world.policy).disposition() == Disposition::Allow
        };
        (0..2 * PLACES).filter(|_| probe(self)).count()
    }

    fn run_to_the_end(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 20_000, "it never ends");
        }
        let is_over = |client: &Client| matches!(client.stage, Stage::Over);
        assert!(self.clients.iter().all(is_over), "a request has no end");
        let queue = self.lines.0.borrow();
        assert!(queue.is_empty() && queue.bytes() == 0, "a line is left");
    }
}

// Guards: more requests at the same time than the limit, a place that is taken for good, a waiter
// that is charged or that no poll ends, and one that passes another one of its key.
#[test]
fn requests_wait_for_a_place_in_order_and_none_is_lost() {
    let kinds = [Order::PeekAll, Order::ChargeFirst];
    let kinds = kinds.into_iter().flat_map(|order| {
        [("deny", false), ("deny", true), ("allow", true)].map(|(it, faults)| (order, it, faults))
    });
    let mut seen = Seen::default();
    for (order, on_failure, has_faults) in kinds {
        for seed in 0..SEEDS {
            let mut world = World::new(seed, order, on_failure, has_faults, seen);
            world.run_to_the_end();
            if has_faults {
                // Charges that no request knows of, and those whose refund was lost, end by then.
                world.now = world.now.saturating_add(MAX_AGE).saturating_add(MAX_AGE);
            }
            for ip in 0..2 {
                let free = world.free_places(ip);
                assert_eq!(free, PLACES, "seed {seed}, {order:?}, faults: {has_faults}");
            }
            seen = world.seen;
        }
    }
    let Seen { came_behind, allowed_later, in_vain, .. } = seen;
    let Seen { left_in_line, left_deciding, failed_behind, .. } = seen;
    let all = [came_behind, allowed_later, in_vain, left_in_line, left_deciding, failed_behind];
    assert!(all.into_iter().min() > Some(50), "{seen:?}");
}
