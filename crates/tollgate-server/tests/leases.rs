//! `POST /lease` on a server with counts in memory, in virtual time: one count with `/check`, the
//! conditions of leases, and several keys of one request.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_core::{Span, Timestamp};
use tollgate_language::DescribedRequest;
use tollgate_policy::{Plan, Policy, Surface, fleet_secret};
use tollgate_server::check::{self, leasing};
use tollgate_server::clock::Clock;
use tollgate_server::gate::{Gate, Parts};
use tollgate_server::log::Log;
use tollgate_server::policy::active::{ProtocolRestrictions, compile};
use tollgate_server::policy::following::{File, Following};
use tollgate_server::store::Store;
use tollgate_server::store::memory::Memory;
use tollgate_server::store::table::TableLimits;
use tollgate_service::lease::CONTENT_TYPE;
use tollgate_service::log::Share;
use tollgate_service::metrics::Format;
use tollgate_storage::{LeaseKey, LeaseQuestion, LeaseReply, LeaseReport, Leased, read_leased};

const SECRET: &str = "a secret of the fleet";

/// Twenty per hour of each client, in all of the fleet; three of each path; and local rules.
fn policy() -> String {
    let quota = |limit| json!([{"algorithm": "fixed-window", "limit": limit, "window": "1h"}]);
    let rules = json!([
        {"name": "each", "key": ["client_ip"], "scope": "fleet", "quotas": quota(20)},
        {"name": "path", "key": ["path"], "when": {"paths": ["/few/**"]}, "scope": "fleet", "quotas": quota(3)},
        {"name": "local", "key": ["client_ip"], "quotas": quota(1000)},
    ]);
    json!({"version": 1, "rules": rules}).to_string()
}

fn file(text: String) -> File {
    let policy = compile(&text, b"", ProtocolRestrictions::default()).expect("a policy");
    File::new(text, policy)
}

fn gate(secret: Option<&str>) -> Arc<Gate> {
    let clock = Clock::showing(Timestamp::from_millis(1_700_000_000_000));
    let limits = TableLimits { keys: 10_000, bytes: 1 << 26 };
    let memory = Memory::open(clock, limits, [7; 16], None).expect("a store");
    Gate::new(Parts {
        store: Store::Memory(memory),
        clock,
        log: Log::nowhere(clock),
        following: Following::new(file(policy()), false, false, ProtocolRestrictions::default()),
        hash_key: Vec::new(),
        fleet_secret: secret.map(fleet_secret),
        log_share: Share::DEFAULT,
        is_uncounted: false,
        seed: [9; 16],
    })
}

/// A node: its requests about the keys of a request.
struct Node {
    policy: Policy,
    table: u128,
    number: u64,
}

impl Node {
    fn new(table: u128, text: &str) -> Self {
        let policy = tollgate_language::compile(text, Surface::Envoy).expect("a policy");
        Self { policy, table, number: 0 }
    }

    /// The keys of the fleet of a request, with its costs.
    fn keys(&self, path: &str, ip: &str) -> Vec<LeaseKey> {
        let facts = json!({"method": "GET", "path": path, "client_ip": ip}).to_string();
        let mut plan = Plan::new();
        let facts = DescribedRequest::parse(facts.as_bytes()).expect("a request");
        self.policy.plan(&facts, &mut plan);
        let of_fleet = plan.partitions().filter(|partition| partition.is_fleet(&self.policy));
        of_fleet.map(|it| it.lease_key(&self.policy, fleet_secret(SECRET))).collect()
    }

    fn body(&self, keys: Vec<LeaseKey>) -> Vec<u8> {
        let mut body = Vec::new();
        let (policy, table) = (self.policy.fleet().fingerprint(), self.table);
        LeaseQuestion { policy, table, keys }.write(&mut body);
        body
    }

    async fn ask(&self, gate: &Arc<Gate>, keys: Vec<LeaseKey>) -> Vec<LeaseReply> {
        let answer = leasing::answer(gate, Some(CONTENT_TYPE), &self.body(keys)).await;
        LeaseReply::read(&answer.unwrap_or_else(|it| panic!("{it:?}"))).expect("an answer")
    }

    /// Asks for units of `ip` only.
    async fn lease(&mut self, gate: &Arc<Gate>, ip: &str, want: u64) -> Leased {
        self.number += 1;
        let mut keys = self.keys("/", ip);
        let rule = &mut keys[0].rules[0];
        rule.cost = 0;
        (rule.ask.number, rule.ask.want, rule.ask.least) = (self.number, want, 1);
        rule.ask.life = Span::from_secs(2);
        leased(&self.ask(gate, keys).await[0])
    }

    /// Reports `spent` of the last lease, for good.
    async fn report(&self, gate: &Arc<Gate>, ip: &str, spent: u64) {
        let mut keys = self.keys("/", ip);
        let rule = &mut keys[0].rules[0];
        rule.cost = 0;
        rule.ask.reports = vec![LeaseReport { number: self.number, spent, is_final: true }];
        self.ask(gate, keys).await;
    }
}

fn leased(reply: &LeaseReply) -> Leased {
    let LeaseReply::Decided(reply) = reply else { panic!("{reply:?}") };
    read_leased(reply).expect("a reply").0[0]
}

/// True when the cost of a key was charged.
fn is_charged(reply: &LeaseReply) -> bool {
    let LeaseReply::Decided(reply) = reply else { panic!("{reply:?}") };
    let (_, rest) = read_leased(reply).expect("a reply");
    rest[9] & 1 != 0
}

/// The number of `requests` of `ip` that `/check` allows.
async fn checked(gate: &Arc<Gate>, path: &str, ip: &str, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        let body = json!({"method": "GET", "path": path, "client_ip": ip}).to_string();
        let answer = check::answer(gate, body.as_bytes()).await;
        let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
        admitted += usize::from(answer["decision"] == "allow");
    }
    admitted
}

/// A metric of leases.
fn told(gate: &Gate, name: &str) -> u64 {
    gate.gather();
    let text = gate.counting.text(Format::Prometheus, 0, &gate.own(), &gate.traffic.calls);
    let name = format!("tollgate_lease_{name}_total ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("a line");
    line.parse().expect("a number")
}

// Guards: a fleet of which each part has a count of its own, although the policy defines one count.
#[tokio::test(start_paused = true)]
async fn what_is_leased_reported_and_checked_is_one_count() {
    let gate = gate(Some(SECRET));
    let mut nodes = [1, 2].map(|table| Node::new(table, &policy()));
    let ip = "192.0.2.1";
    assert_eq!(checked(&gate, "/", ip, 4).await, 4);
    let one = nodes[0].lease(&gate, ip, 100).await.expect("a lease").units;
    assert_eq!(one, 8, "half of what is left");
    let two = nodes[1].lease(&gate, ip, 100).await.expect("a lease").units;
    assert_eq!(two, 2, "half of the even share");
    assert_eq!(checked(&gate, "/", ip, 100).await, 6, "20 - 4 - 8 - 2");
    nodes[0].report(&gate, ip, 5).await;
    assert_eq!(checked(&gate, "/", ip, 100).await, 3, "what came back");
    // The other node reports nothing: its units count as spent.
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(checked(&gate, "/", ip, 100).await, 0);
    // Another client is another count, and a secret of another fleet names other counts.
    assert_eq!(checked(&gate, "/", "192.0.2.2", 100).await, 20);
    let told = ["questions", "units", "conflicts"].map(|name| told(&gate, name));
    assert_eq!(told, [3, 10, 0]);
}

// Guards: a proxy that has to ask for each request after every start of the server.
#[tokio::test(start_paused = true)]
async fn a_server_leases_from_its_first_question() {
    let gate = gate(Some(SECRET));
    let mut node = Node::new(1, &policy());
    assert!(node.lease(&gate, "192.0.2.1", 5).await.is_ok());
    assert!(is_charged(&node.ask(&gate, node.keys("/", "192.0.2.1")).await[0]));
}

// Guards: a flood that one key denies and that uses up the shared quota of another key.
#[tokio::test(start_paused = true)]
async fn of_several_keys_of_a_request_all_are_charged_or_none() {
    let gate = gate(Some(SECRET));
    let node = Node::new(1, &policy());
    for i in 0..10 {
        let replies = node.ask(&gate, node.keys("/few/a", "192.0.2.1")).await;
        assert_eq!(replies.len(), 2);
        assert_eq!(replies.iter().map(is_charged).collect::<Vec<_>>(), [i < 3; 2], "{i}");
    }
    assert_eq!(checked(&gate, "/", "192.0.2.1", 100).await, 17);
    // At the same time: all peeks come before any charge.
    let asks = (0..10).map(|_| node.ask(&gate, node.keys("/few/b", "192.0.2.3")));
    let replies = futures_util::future::join_all(asks).await;
    let whole = |replies: &&Vec<LeaseReply>| replies.iter().all(is_charged);
    assert_eq!(replies.iter().filter(whole).count(), 3);
    assert_eq!(checked(&gate, "/", "192.0.2.3", 100).await, 17, "what was refused is given back");
}

#[tokio::test(start_paused = true)]
async fn nodes_of_the_last_two_policies_are_answered() {
    let gate = gate(Some(SECRET));
    let old = Node::new(1, &policy());
    let with = |limit: u32| policy().replace("\"limit\":20", &format!("\"limit\":{limit}"));
    let status = async |gate: &Arc<Gate>, node: &Node| {
        let body = node.body(node.keys("/", "192.0.2.1"));
        let answer = leasing::answer(gate, Some(CONTENT_TYPE), &body).await;
        answer.map_or_else(|problem| problem.status, |_| 200)
    };
    let next = Node::new(1, &with(21));
    assert_eq!((status(&gate, &old).await, status(&gate, &next).await), (200, 409));
    gate.following.set_file(file(with(21)), gate.clock.now_ms());
    assert_eq!((status(&gate, &old).await, status(&gate, &next).await), (200, 200));
    // A fleet does not contain local rules.
    gate.following
        .set_file(file(with(21).replace("\"limit\":1000", "\"limit\":999")), gate.clock.now_ms());
    assert_eq!((status(&gate, &old).await, status(&gate, &next).await), (200, 200));
    gate.following.set_file(file(with(22)), gate.clock.now_ms());
    assert_eq!((status(&gate, &old).await, status(&gate, &next).await), (409, 200));
    assert_eq!(told(&gate, "conflicts"), 2);
    // A withdrawn policy gets responses for a while, whether or not anything changes again.
    let last = Node::new(1, &with(22));
    tokio::time::advance(Duration::from_secs(19)).await;
    assert_eq!((status(&gate, &next).await, status(&gate, &last).await), (200, 200));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!((status(&gate, &next).await, status(&gate, &last).await), (409, 200));
}

#[tokio::test(start_paused = true)]
async fn without_a_secret_there_are_no_leases_and_counts_are_as_ever() {
    let gate = gate(None);
    let node = Node::new(1, &policy());
    let body = node.body(node.keys("/", "192.0.2.1"));
    let answer = leasing::answer(&gate, Some(CONTENT_TYPE), &body).await.expect_err("it is off");
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("fleet_secret is not set"), "{}", answer.body);
    assert_eq!(checked(&gate, "/", "192.0.2.1", 100).await, 20);
}
