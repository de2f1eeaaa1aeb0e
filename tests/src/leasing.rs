//! The properties of `POST /lease` on every authority: nodes, direct checks, unauthorized callers,
//! and repeated messages.

use std::thread;

use serde_json::{Value, json};

use crate::authority::Authority;
use crate::fleet_node::{Node, question, run_dry, wait_for_leases};
use crate::http::Request;
use crate::server::CHECK_TOKEN;
use crate::workerd::answer;

/// The limit that the nodes share.
pub const LIMIT: u64 = 6_000;
const IP: &str = "192.0.2.1";

/// One rule of the fleet, for each client.
pub fn policy() -> Value {
    limited(LIMIT)
}

/// The same with another limit.
pub fn limited(limit: u64) -> Value {
    json!({"version": 1, "rules": [{"name": "each", "key": ["client_ip"], "scope": "fleet",
        "quotas": [{"algorithm": "fixed-window", "limit": limit, "window": "366d"}]}]})
}

/// True when a request of `ip` to the authority itself is allowed.
pub fn is_checked(authority: &Authority, ip: &str) -> bool {
    let body = json!({"method": "GET", "path": "/", "client_ip": ip}).to_string();
    let request =
        Request::post("/check", body).header("authorization", format!("Bearer {CHECK_TOKEN}"));
    answer(&authority.client().send(&request))["decision"] == "allow"
}

/// Three nodes and direct checks together are allowed the limit. Messages that come late, again and
/// in another order change nothing.
///
/// # Panics
/// When one of these does not hold.
pub fn check_one_budget(authority: &Authority) {
    let policy = policy().to_string();
    let port = authority.port();
    wait_for_leases(&policy, port);
    let mut direct = 0;
    let nodes: Vec<Node> = thread::scope(|scope| {
        let node = |table| Node::new(table, &policy, IP, &[port]);
        let running: Vec<_> =
            (1..=3).map(|table| scope.spawn(move || run_dry(node(table)))).collect();
        direct = (0..200).map(|_| u64::from(is_checked(authority, IP))).sum();
        running.into_iter().map(|node| node.join().expect("a node")).collect()
    });
    let leased: u64 = nodes.iter().map(|node| node.leased).sum();
    let admitted = direct + nodes.iter().map(Node::total).sum::<u64>();
    let asked: usize = nodes.iter().map(|node| node.sent.len()).sum();
    println!("{admitted} of {LIMIT} admitted, {leased} of leases, {asked} questions");
    assert_eq!(admitted, LIMIT);
    assert!(leased > LIMIT / 4, "{leased} of {admitted}");
    assert!(asked < 6_000, "{asked} questions for {admitted} requests");
    // Late, again, and in another order.
    let mut client = authority.client();
    for body in nodes.iter().rev().flat_map(|node| node.sent.iter().rev()) {
        assert_eq!(client.send(&question(body)).status, 200);
    }
    assert!(!is_checked(authority, IP));
    assert!(is_checked(authority, "192.0.2.2"), "another client");
    authority.metric("tollgate_lease_units_total", |units| units >= leased);
    authority.metric("tollgate_lease_questions_total", |asked_there| asked_there >= asked as u64);
    authority.metric("tollgate_lease_conflicts_total", |conflicts| conflicts == 0);
}

/// An unauthorized or malformed request gets a response that reports the error, and changes
/// nothing.
///
/// # Panics
/// When this does not hold.
pub fn check_strangers(authority: &Authority) {
    let text = policy().to_string();
    let port = authority.port();
    let node = Node::new(1, &text, IP, &[port]);
    let good = node.message(1);
    let other = limited(6_001).to_string();
    let other = Node::new(1, &other, IP, &[port]).message(1);
    let bearer = format!("Bearer {CHECK_TOKEN}");
    let binary = "application/octet-stream";
    let mut client = authority.client();
    let mut asked = |method: &str, token: Option<&str>, kind: &str, body: &[u8]| {
        let mut request = Request::new(method, "/lease").header("content-type", kind).body(body);
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        // A request rejected before it was read may have ended the connection.
        let answer = client.try_send(&request).unwrap_or_else(|_| {
            client = authority.client();
            client.send(&request)
        });
        if answer.status != 200 {
            let kind = answer.header("content-type").expect("a type");
            assert_eq!(kind, "application/problem+json", "{}", answer.text());
        }
        answer.status
    };
    let token = Some(bearer.as_str());
    assert_eq!(asked("POST", None, binary, &good), 401);
    assert_eq!(asked("POST", Some("Bearer only-for-tests-admin"), binary, &good), 401);
    assert_eq!(asked("GET", token, binary, b""), 405);
    assert_eq!(asked("POST", token, "application/json", &good), 415);
    assert_eq!(asked("POST", token, binary, &vec![0; 65_537]), 413);
    assert_eq!(asked("POST", token, binary, &other), 409);
    for (i, byte) in good.iter().enumerate() {
        let mut wrong = good.clone();
        wrong[i] = byte ^ 0x80;
        let status = asked("POST", token, binary, &wrong);
        assert!(matches!(status, 200 | 400 | 409), "{i}: {status}");
        assert_eq!(asked("POST", token, binary, &good[..i]), 400);
    }
    assert_eq!(asked("POST", token, binary, &good), 200);
    authority.metric("tollgate_unauthorized_total{api=\"check\",reason=\"wrong\"}", |n| n == 1);
    authority.metric("tollgate_lease_conflicts_total", |n| n >= 1);
    assert!(is_checked(authority, IP));
}
