//! A node of a fleet as a test drives it: it spends what it leases, and asks an authority over a
//! real connection for the rest.
//!
//! Invariant: it spends nothing that it was not leased or admitted, by the policy crate's own
//! accounting; its clock is the machine's monotonic one. It knows several authorities and goes on
//! with the next when one does not answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_core::{Span, Timestamp};
use tollgate_policy::{
    DescribedRequest, Holding, LeaseKey, LeaseQuestion, LeaseReply, LeaseReport, Plan, Policy,
    Surface, Taken, fleet_secret, read_leased,
};

use crate::http::{Client, Request, Response};
use crate::process::wait_until;
use crate::server::{CHECK_TOKEN, FLEET_SECRET};

/// For how long nobody waits for a question.
const PATIENCE: Span = Span::from_secs(5);

/// A node, for one key of one rule.
pub struct Node {
    policy: Policy,
    key: LeaseKey,
    table: u128,
    number: u64,
    holding: Holding,
    began: Instant,
    ports: Vec<u16>,
    client: Option<Client>,
    /// What was spent of leases, and what was admitted when it was asked for.
    pub leased: u64,
    /// Admitted by the authority, one by one.
    pub admitted: u64,
    /// Questions whose answers did not come: what they cost may be charged.
    pub lost: u64,
    /// Everything that was sent, for a test that sends it again.
    pub sent: Vec<Vec<u8>>,
}

impl Node {
    /// A node with this policy, whose first rule is for all requests of `ip`; authorities listen on
    /// `ports`.
    pub fn new(table: u128, policy: &str, ip: &str, ports: &[u16]) -> Self {
        let facts = json!({"method": "GET", "path": "/", "client_ip": ip});
        Self::of_request(table, policy, &facts, ports)
    }

    /// The same for the key of a request.
    pub fn of_request(table: u128, policy: &str, facts: &Value, ports: &[u16]) -> Self {
        let policy = Policy::compile(policy, Surface::Envoy).expect("a policy");
        let facts = facts.to_string();
        let facts = DescribedRequest::parse(facts.as_bytes()).expect("a request");
        let mut plan = Plan::new();
        policy.plan(&facts, &mut plan);
        let partition = plan.partition(0).expect("a key");
        let key = partition.lease_key(&policy, fleet_secret(FLEET_SECRET));
        Self {
            policy,
            key,
            table,
            number: 0,
            holding: Holding::default(),
            began: Instant::now(),
            ports: ports.to_vec(),
            client: None,
            leased: 0,
            admitted: 0,
            lost: 0,
            sent: Vec::new(),
        }
    }

    /// Lets one request go on, or not.
    pub fn admits(&mut self) -> bool {
        let now = self.now();
        match self.holding.take(now, 1) {
            Taken::Spent { .. } => {
                self.leased += 1;
                true
            }
            Taken::Ask => self.ask(1),
            // It asks itself, one question after the other.
            Taken::Wait(_) | Taken::Denied(_) => false,
        }
    }

    /// What it does about ten times a second: asks ahead, reports, returns.
    pub fn tick(&mut self) {
        if self.holding.is_due(self.now()) {
            self.ask(0);
        }
    }

    /// Gives everything back.
    pub fn close(&mut self) {
        self.holding.close();
        for _ in 0..10 {
            if self.holding.is_idle() {
                return;
            }
            self.ask(0);
        }
    }

    /// Units in hand.
    pub fn left(&self) -> u64 {
        self.holding.left()
    }

    /// All that it let go on.
    pub fn total(&self) -> u64 {
        self.leased + self.admitted
    }

    /// A message about its key, with what a request costs, and nothing wanted.
    pub fn message(&self, cost: u64) -> Vec<u8> {
        let mut key = self.key.clone();
        key.rules[0].cost = cost;
        self.written(vec![key])
    }

    /// A message that wants a lease of this number of its key, and gives the one before back.
    pub fn wanting(&self, number: u64, units: u64) -> Vec<u8> {
        let mut key = self.key.clone();
        let rule = &mut key.rules[0];
        rule.cost = 0;
        (rule.ask.number, rule.ask.want, rule.ask.least) = (number, units, 1);
        rule.ask.life = Span::from_secs(2);
        rule.ask.reports = vec![LeaseReport { number: number - 1, spent: units, is_final: true }];
        self.written(vec![key])
    }

    fn written(&self, keys: Vec<LeaseKey>) -> Vec<u8> {
        let mut body = Vec::new();
        let (policy, table) = (self.policy.fleet_fingerprint(), self.table);
        LeaseQuestion { policy, table, keys }.write(&mut body);
        body
    }

    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.began.elapsed().as_nanos()).expect("no long test");
        Timestamp::from_nanos(1_000_000_000 + passed)
    }

    /// Asks for `cost` and what the demand wants; true when it is admitted.
    fn ask(&mut self, cost: u64) -> bool {
        self.number += 1;
        let number = self.number;
        let rule = self.policy.rules().first().expect("a rule");
        let times = (rule.lease(), PATIENCE);
        let mut key = self.key.clone();
        let (set, now) = (key.rules[0].ask.set, self.now());
        key.rules[0].cost = cost;
        key.rules[0].ask = self.holding.ask(set, number, cost, now, times);
        let body = self.written(vec![key]);
        let answer = self.send(&body);
        self.sent.push(body);
        let Some(reply) = answer.and_then(|answer| decided(&answer)) else {
            self.holding.fail(number);
            self.lost += cost;
            return false;
        };
        let (leased, rest) = read_leased(&reply).expect("a reply");
        let now = self.now();
        match leased.first() {
            Some(leased) => self.holding.answer(number, *leased, now),
            None => self.holding.fail(number),
        }
        // Head 9, flags 1, verdict 1, delay, limit and remaining 8 each.
        let is_charged = rest[9] & 1 != 0 && cost > 0;
        if is_charged {
            self.admitted += cost;
        } else if cost > 0 {
            let wait = rest[35..43].try_into().expect("eight bytes");
            let wait = Some(u64::from_le_bytes(wait)).filter(|wait| *wait != u64::MAX);
            self.holding.deny(now, cost, wait.map(Span::from_nanos));
        }
        is_charged
    }

    /// The answer of whoever answers first.
    fn send(&mut self, body: &[u8]) -> Option<Response> {
        let request = question(body);
        for _ in 0..=self.ports.len() {
            if self.client.is_none() {
                self.client = Client::try_connect(*self.ports.first()?).ok();
            }
            match self.client.as_mut().map(|client| client.try_send(&request)) {
                Some(Ok(answer)) if answer.status == 200 => return Some(answer),
                // It may have been done: the question is not asked again.
                Some(_) => {
                    self.turn();
                    return None;
                }
                None => self.turn(),
            }
        }
        None
    }

    /// Goes on with the next authority.
    fn turn(&mut self) {
        self.client = None;
        self.ports.rotate_left(1);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A question as it is sent.
pub fn question(body: &[u8]) -> Request {
    Request::post("/lease", body)
        .header("content-type", "application/octet-stream")
        .header("authorization", format!("Bearer {CHECK_TOKEN}"))
}

fn decided(answer: &Response) -> Option<Vec<u8>> {
    match LeaseReply::read(&answer.body).expect("an answer").remove(0) {
        LeaseReply::Decided(reply) => Some(reply),
        LeaseReply::Failed | LeaseReply::Overloaded => None,
    }
}

/// Waits until the server on `port` leases: with a store it does not for a while.
pub fn wait_for_leases(policy: &str, port: u16) {
    let table = u128::from(port) << 64;
    let mut node = Node::new(table, policy, "198.51.100.1", &[port]);
    wait_until("it leases", Duration::from_secs(60), || {
        // Few enough that the limit is not used up meanwhile.
        std::thread::sleep(Duration::from_millis(50));
        node.admits();
        (node.leased > 0).then_some(())
    });
    node.close();
}

/// Lets requests go on until none was admitted for longer than a lease lives, and gives back what
/// is left.
pub fn run_dry(node: Node) -> Node {
    run_slowly(node, Duration::ZERO)
}

/// The same with a pause after each request that is let go on.
pub fn run_slowly(mut node: Node, pause: Duration) -> Node {
    let mut admitted_at = Instant::now();
    for i in 0_u64.. {
        if node.admits() {
            admitted_at = Instant::now();
            std::thread::sleep(pause);
        } else if admitted_at.elapsed() > Duration::from_secs(10) {
            break;
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        if i.is_multiple_of(20) {
            node.tick();
        }
    }
    node.close();
    node
}
