//! Several keys at once: charged to all or to none, also when workers race.

use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};
use tollgate_e2e::http::{Request, Response};

use crate::envoy_server::{As, Listener, Setup, tollgate};

/// Each user has a quota, and all users together have one: two keys, two stored values.
fn layers(per_user: u32, together: u32) -> Value {
    let rule = |name: &str, key: Value, limit: u32| {
        json!({
            "name": name,
            "key": key,
            "quotas": [{"name": name, "limit": limit, "window": "1d"}],
        })
    };
    json!({"version": 1, "rules": [
        rule("user", json!([{"header": "x-user"}]), per_user),
        rule("all", json!([]), together),
    ]})
}

/// `r` of the quota `name`.
fn remaining(response: &Response, name: &str) -> u32 {
    let limits = response.header("ratelimit").expect("fields on every answer");
    let start = format!("\"{name}\";r=");
    let member = limits.split(", ").find_map(|member| member.strip_prefix(start.as_str()));
    let number = member.and_then(|member| member.split(';').next());
    number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {name} in {limits}"))
}

// One after the other: a request that one quota denies is charged to no other.
#[test]
fn a_denial_is_charged_to_none() {
    let envoy = Setup::policy(1, &layers(2, 3)).start();
    let mut client = envoy.client();
    let mut ask = |user: &str| {
        let response = client.send(&Request::get("/").header("x-user", user));
        (response.status, remaining(&response, "user"), remaining(&response, "all"))
    };
    assert_eq!(ask("a"), (200, 1, 2));
    assert_eq!(ask("a"), (200, 0, 1));
    assert_eq!(ask("a"), (429, 0, 1), "the user's quota denies, the common one is not charged");
    assert_eq!(ask("b"), (200, 1, 0));
    assert_eq!(ask("b"), (429, 1, 0), "the common quota denies, the user's is not charged");
    assert_eq!(ask("c"), (429, 2, 0));
}

// Four workers race for the last units of the common quota. The user's value is committed first, so
// it must be refunded after a lost race. In the end every user was charged for its allowed
// requests.
#[test]
fn what_cannot_be_committed_everywhere_is_given_back() {
    const USERS: usize = 24;
    const ROUNDS: usize = 200;
    const PER_USER: u32 = 1_000;
    const TOGETHER: u32 = 2_000;
    let envoy = Setup::policy(4, &layers(PER_USER, TOGETHER)).start();
    let admitted: BTreeMap<usize, u32> = thread::scope(|scope| {
        let one_user = |user: usize| {
            let mut client = envoy.client();
            let request = Request::get("/").header("x-user", user.to_string());
            let answers = (0..ROUNDS).map(|_| client.send(&request).status);
            (user, u32::try_from(answers.filter(|s| *s == 200).count()).expect("few"))
        };
        let users: Vec<_> = (0..USERS).map(|user| scope.spawn(move || one_user(user))).collect();
        users.into_iter().map(|user| user.join().expect("a user fails")).collect()
    });
    assert_eq!(admitted.values().sum::<u32>(), TOGETHER);
    let mut client = envoy.client();
    for (user, admitted) in admitted {
        let response = client.send(&Request::get("/").header("x-user", user.to_string()));
        assert_eq!(response.status, 429);
        assert_eq!(remaining(&response, "user"), PER_USER - admitted, "user {user}");
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}

// The client's address: the connection manager decides which proxies it trusts, the filter reads
// the result.
#[test]
fn the_client_is_who_the_connection_manager_says() {
    let policy = json!({"version": 1, "rules": [{
        "name": "ip", "key": ["client_ip"], "quotas": [{"name": "ip", "limit": 2, "window": "1d"}],
    }]});
    let listener = |name, manager| {
        let filters = vec![tollgate(&policy, name, As::Text)];
        Listener { manager, ..Listener::new(name, filters) }
    };
    let envoy = Setup::new(
        1,
        vec![
            listener("edge", json!({"use_remote_address": true})),
            listener("behind", json!({"use_remote_address": true, "xff_num_trusted_hops": 1})),
        ],
    )
    .start();
    let ask = |port: usize, from: &str| {
        let request = Request::get("/").header("x-forwarded-for", from);
        tollgate_e2e::http::Client::connect(envoy.ports[port]).send(&request).status
    };
    // At the edge no proxy is trusted: new addresses in the header do not help.
    assert_eq!([1, 2, 3].map(|i| ask(0, &format!("192.0.2.{i}"))), [200, 200, 429]);
    // Behind one trusted proxy the last entry is the client; the client itself wrote the entries
    // before it.
    let behind = |from: &str| ask(1, from);
    assert_eq!(["7.7.7.7, 192.0.2.1", "8.8.8.8, 192.0.2.1"].map(behind), [200, 200]);
    assert_eq!(["192.0.2.1", "192.0.2.2"].map(behind), [429, 200]);
    // IPv6 clients own a /64.
    assert_eq!(["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(behind), [200, 200, 429]);
    assert_eq!(behind("2001:db8:0:1::1"), 200);
}
