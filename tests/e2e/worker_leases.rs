//! Nodes that lease from the Worker, in a real workerd: leases are durable, nodes and direct
//! requests to the Worker share one count, and operators can act on keys with leases.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::authority::{Authority, Kind, operates, worker};
use tollgate_e2e::fleet_node::{self, Node, run_slowly, wait_for_leases};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::leasing::{
    LIMIT, check_one_budget, check_strangers, is_checked, limited, policy,
};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::CHECK_TOKEN;
use tollgate_e2e::workerd::{Setup, Workerd, answer};

use crate::worker_origin::serve;

const IP: &str = "192.0.2.1";
const SOON: Duration = Duration::from_secs(60);

fn start() -> Authority {
    Kind::Worker.start(policy())
}

// Guards: units that two nodes spend, that are returned to no count, or that a message adds twice.
#[test]
fn three_nodes_and_direct_checks_admit_the_limit_and_messages_that_come_again_nothing() {
    check_one_budget(&start());
}

// Guards: an unauthorized node that leases units, which others are then denied.
#[test]
fn who_may_not_ask_and_what_is_no_question_gets_an_answer_and_changes_nothing() {
    check_strangers(&start());
}

#[test]
fn without_the_secret_there_is_nothing_to_be_leased_from() {
    let good = Node::new(1, &policy().to_string(), IP, &[1]).message(1);
    let off = Setup::new(policy()).binding("CHECK_TOKEN", CHECK_TOKEN).start();
    let answer = off.client().send(&fleet_node::question(&good));
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("FLEET_SECRET is not set"), "{}", answer.text());
    let alone = Setup::new(policy()).binding("FLEET_SECRET", "sixteen-random-bytes-or-more");
    let alone = alone.start().client().send(&Request::get("/.well-known/tollgate/health"));
    assert_eq!(alone.status, 500, "nobody leases without a token");
}

/// A node's message on the path that exists in both uses.
fn below_the_prefix(body: &[u8]) -> Request {
    Request::post("/.well-known/tollgate/lease", body)
        .header("content-type", "application/octet-stream")
        .header("authorization", format!("Bearer {CHECK_TOKEN}"))
}

// Guards: a path of the origin that the Worker takes over, and a count of requests through the
// Worker that is separate from that of the nodes.
#[test]
fn in_front_of_an_origin_what_goes_through_is_the_same_count() {
    let origin = serve(|request| request.answer("200 OK", "", "of the origin"));
    let mut rules = limited(20);
    rules["rules"][0]["key"] = json!([{"header": "x-key"}]);
    let worker = worker(&rules).binding("ORIGIN", &origin).start();
    let mut client = worker.client();
    let through = |client: &mut Client| client.send(&Request::get("/").header("x-key", "a")).status;
    assert_eq!(client.send(&Request::post("/lease", "x")).text(), "of the origin");
    let facts = json!({"method": "GET", "path": "/", "headers": {"x-key": "a"}});
    let node = Node::of_request(1, &rules.to_string(), &facts, &[worker.port]);
    let body = node.message(1);
    for _ in 0..8 {
        assert_eq!(client.send(&below_the_prefix(&body)).status, 200);
    }
    assert_eq!((0..20).filter(|_| through(&mut client) == 200).count(), 12);
    let stranger = Request::post("/.well-known/tollgate/lease", body)
        .header("content-type", "application/octet-stream");
    assert_eq!(client.send(&stranger).status, 401);
}

// Guards: leases that are lost in a crash: the units that nodes still spend of them would be
// allowed again.
#[test]
fn a_crash_forgets_no_lease() {
    let mut authority = start();
    let (text, port) = (policy().to_string(), authority.port());
    wait_for_leases(&text, port);
    let nodes: Vec<Node> = thread::scope(|scope| {
        let node = |table| Node::new(table, &text, IP, &[port]);
        let running: Vec<_> = (1..=3)
            .map(|table| scope.spawn(move || run_slowly(node(table), Duration::from_millis(1))))
            .collect();
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(300));
            authority.kill();
            authority.restart();
        }
        running.into_iter().map(|node| node.join().expect("a node")).collect()
    });
    let admitted: u64 = nodes.iter().map(Node::total).sum();
    let leased: u64 = nodes.iter().map(|node| node.leased).sum();
    let lost: u64 = nodes.iter().map(|node| node.lost).sum();
    println!("{admitted} of {LIMIT} admitted, {leased} of leases, {lost} direct ones lost");
    assert!(admitted <= LIMIT, "{admitted}");
    // Requests without a response are charged, and so are leases whose response was lost or that
    // are held by a node that stalls for longer than its lease lives.
    assert!(admitted * 100 >= (LIMIT - lost) * 75, "{admitted} of {LIMIT} without {lost}");
    assert!(leased > LIMIT / 4, "{leased} of {admitted}");
    assert!(!is_checked(&authority, IP));
}

/// The rest of the key of `IP`, as an operator sees it.
fn left(authority: &Authority) -> u64 {
    let answer = authority.operate("GET", &format!("admin/keys?rule=each&key={IP}"), "", &[]);
    let told: Value = serde_json::from_slice(&answer.body).expect("JSON");
    told["quotas"][0]["remaining"].as_u64().unwrap_or_else(|| panic!("{told}"))
}

/// The same for the decision on a request.
fn explained(authority: &Authority) -> Value {
    let explain = json!({"method": "GET", "path": "/", "client_ip": IP}).to_string();
    let answer = authority.operate("POST", "admin/explain", &explain, &[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// Applies an operator's action to the key of `IP`.
fn change(authority: &Authority, what: &str, until_ms: Option<u64>) {
    let mut key = json!({"rule": "each", "key": [IP]});
    if let Some(until_ms) = until_ms {
        key["until_ms"] = until_ms.into();
    }
    let answer = authority.operate("POST", &format!("admin/keys/{what}"), &key.to_string(), &[]);
    assert_eq!(answer.status, 204, "{}", answer.text());
}

/// A node that holds units.
fn holding(authority: &Authority, text: &str, table: u128) -> Node {
    let mut node = Node::new(table, text, IP, &[authority.port()]);
    wait_until("it holds units", SOON, || {
        thread::sleep(Duration::from_millis(20));
        node.admits();
        (node.left() > 0).then_some(())
    });
    node
}

// Guards: an operator that sees another count than nodes use, a reset that loses the leases that
// are out, and a block that still leases.
#[test]
fn an_operator_sees_resets_and_blocks_the_count_that_nodes_lease_from() {
    let authority = start();
    let text = policy().to_string();
    let node = holding(&authority, &text, 1);
    let (used, held) = (node.total(), node.left());
    // Leased units are shown as used, spent or not.
    let told = left(&authority);
    assert!(told <= LIMIT - used, "{told} beside {used} and {held}");
    let said = explained(&authority);
    assert_eq!(said["rules"][0]["quotas"][0]["remaining"], told, "{said}");
    // Blocked: no node gets a lease, and only the units that are out can still be spent.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time").as_millis();
    let in_an_hour = u64::try_from(now).expect("a time of this age") + 3_600_000;
    change(&authority, "block", Some(in_an_hour));
    let mut other = Node::new(2, &text, IP, &[authority.port()]);
    assert!((0..5).all(|_| !other.admits()) && other.left() == 0);
    assert!(!is_checked(&authority, IP));
    change(&authority, "unblock", None);
    wait_until("it is heard of", SOON, || is_checked(&authority, IP).then_some(()));
    // Reset: charges are deleted, and the units that are out stay reserved.
    let mut node = holding(&authority, &text, 3);
    let held = node.left();
    change(&authority, "reset", None);
    let told = left(&authority);
    assert!(told <= LIMIT - held, "{told} beside {held}");
    let spent = (0..held).filter(|_| node.admits()).count() as u64;
    let direct = (0..LIMIT).filter(|_| is_checked(&authority, IP)).count() as u64;
    assert!(spent + direct <= LIMIT, "{spent} and {direct}");
}

#[test]
fn what_is_behind_a_change_is_answered_for_a_while_by_isolates_that_began_after_it() {
    let text = limited(100).to_string();
    let setup = worker(&text).beside(&text);
    let mut worker: Workerd = setup.start();
    let port = worker.port;
    let status = |port: u16, policy: &str| {
        let body = Node::new(7, policy, IP, &[port]).message(1);
        Client::connect(port).send(&fleet_node::question(&body)).status
    };
    assert_eq!(status(port, &text), 200);
    let put = |limit: u64| {
        let put =
            operates("PUT", "admin/policy", &limited(limit).to_string(), &[("if-match", "*")]);
        let answer = Client::connect(port).send(&put);
        assert_eq!(answer.status, 200, "{}", answer.text());
        limited(limit).to_string()
    };
    let second = put(50);
    // An isolate that started after the change knows neither, and learns both.
    worker.kill();
    worker.restart();
    let beside = worker.ports[1];
    assert_eq!([status(beside, &text), status(beside, &second)], [200, 200]);
    assert_eq!(status(beside, &limited(3).to_string()), 409);
    // A message whose policy is unknown causes no further calls for a second.
    thread::sleep(Duration::from_millis(1_100));
    let third = put(30);
    // An isolate that does not know of the change calls the policy object when a node does.
    assert_eq!(status(beside, &third), 200);
    assert_eq!([status(beside, &second), status(beside, &text)], [200, 409]);
    // All in one count: the charges under each policy count under the last.
    let left = (0..40).filter(|_| {
        let body = json!({"method": "GET", "path": "/", "client_ip": IP}).to_string();
        let check = Request::post("/check", body);
        let check = check.header("authorization", format!("Bearer {CHECK_TOKEN}"));
        answer(&Client::connect(port).send(&check))["decision"] == "allow"
    });
    assert_eq!(left.count(), 30 - 5);
}

// Guards: rules that were withdrawn long ago, and that a node still uses with every isolate that
// was idle meanwhile: such an isolate accepts the earlier policy for a while after it wakes.
#[test]
fn an_isolate_that_slept_answers_the_policy_before_no_longer_than_others() {
    let text = limited(100).to_string();
    let worker: Workerd = worker(&text).beside(&text).start();
    let (port, beside) = (worker.ports[0], worker.ports[1]);
    let status = |port: u16, policy: &str| {
        let body = Node::new(7, policy, IP, &[port]).message(1);
        Client::connect(port).send(&fleet_node::question(&body)).status
    };
    assert_eq!([status(port, &text), status(beside, &text)], [200, 200]);
    let second = limited(50).to_string();
    let put = operates("PUT", "admin/policy", &second, &[("if-match", "*")]);
    let put = Client::connect(port).send(&put);
    assert_eq!(put.status, 200, "{}", put.text());
    // The earlier policy is accepted for 20 s, and an isolate learns of a change within 5 s.
    thread::sleep(Duration::from_secs(26));
    assert_eq!([status(beside, &text), status(port, &text)], [409, 409]);
    assert_eq!([status(beside, &second), status(port, &second)], [200, 200]);
}
