//! A node of a fleet, driven by a test: it spends its leases, and sends the authority a request
//! over a real connection for the rest.
//!
//! Invariant: it spends only leased units and units that the authority allowed, by the policy
//! crate's own accounting; its clock is the machine's monotonic one. It has several authorities,
//! and uses the next one when one does not respond.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_core::{Span, Timestamp};
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Policy, Surface, fleet_secret};
use tollgate_storage::{
    Holding, LeaseKey, LeaseQuestion, LeaseReply, LeaseReport, Taken, read_leased,
};

use crate::http::{Client, Request, Response};
use crate::process::wait_until;
use crate::server::{CHECK_TOKEN, FLEET_SECRET};

/// How long other requests wait for the response to a message.
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
    /// Units spent of leases.
    pub leased: u64,
    /// Units that the authority allowed, one request at a time.
    pub admitted: u64,
    /// Requests without a response: their cost may have been charged.
    pub lost: u64,
    /// All messages sent, for a test that sends them again.
    pub sent: Vec<Vec<u8>>,
}

impl Node {
    /// A node with this policy, whose first rule applies to all requests of `ip`; authorities
    /// listen on `ports`.
    pub fn new(table: u128, policy: &str, ip: &str, ports: &[u16]) -> Self {
        let facts = json!({"method": "GET", "path": "/", "client_ip": ip});
        Self::of_request(table, policy, &facts, ports)
    }

    /// The same for the key of a request.
    pub fn of_request(table: u128, policy: &str, facts: &Value, ports: &[u16]) -> Self {
        let policy = tollgate_language::compile(policy, Surface::Envoy).expect("a policy");
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

    /// Decides one request; true when it is allowed.
    pub fn admits(&mut self) -> bool {
        let now = self.now();
        match self.holding.take(now, 1) {
            Taken::Spent { .. } => {
                self.leased += 1;
                true
            }
            Taken::Ask => self.ask(1),
            // This node sends one request after the other, so it never waits for its own.
            Taken::Wait(_) | Taken::Denied(_) => false,
        }
    }

    /// The work of about ten times a second: requests leases ahead, reports, returns units.
    pub fn tick(&mut self) {
        if self.holding.is_due(self.now()) {
            self.ask(0);
        }
    }

    /// Returns all units.
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

    /// All units that it allowed.
    pub fn total(&self) -> u64 {
        self.leased + self.admitted
    }

    /// A message about its key, with the cost of a request, that requests no lease.
    pub fn message(&self, cost: u64) -> Vec<u8> {
        let mut key = self.key.clone();
        key.rules[0].cost = cost;
        self.written(vec![key])
    }

    /// A message that requests a lease of this number for its key, and returns the one before.
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
        let (policy, table) = (self.policy.fleet().fingerprint(), self.table);
        LeaseQuestion { policy, table, keys }.write(&mut body);
        body
    }

    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.began.elapsed().as_nanos()).expect("no long test");
        Timestamp::from_nanos(1_000_000_000 + passed)
    }

    /// Requests `cost` and a lease by the demand; true when it is allowed.
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

    /// The response of the first authority that responds.
    fn send(&mut self, body: &[u8]) -> Option<Response> {
        let request = question(body);
        for _ in 0..=self.ports.len() {
            if self.client.is_none() {
                self.client = Client::try_connect(*self.ports.first()?).ok();
            }
            match self.client.as_mut().map(|client| client.try_send(&request)) {
                Some(Ok(answer)) if answer.status == 200 => return Some(answer),
                // It may have been charged: the request is not sent again.
                Some(_) => {
                    self.turn();
                    return None;
                }
                None => self.turn(),
            }
        }
        None
    }

    /// Uses the next authority.
    fn turn(&mut self) {
        self.client = None;
        self.ports.rotate_left(1);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A message as an HTTP request.
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

/// Waits until the server on `port` leases: a server with a store leases nothing for a while.
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

/// Sends requests until none was allowed for longer than the life of a lease, and returns the rest.
pub fn run_dry(node: Node) -> Node {
    run_slowly(node, Duration::ZERO)
}

/// The same with a pause after each allowed request.
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
