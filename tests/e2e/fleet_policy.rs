//! A real Envoy that takes its policy from a real `tollgate-server`: a policy put there is in force
//! in every worker, counts are kept, and an invalid policy changes nothing.
//!
//! No test here asserts how long a change takes; they only wait until it is followed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_e2e::authority::{FOLLOW_TOKEN, Kind};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{self, TempDir, wait_until};
use tollgate_e2e::server::{Setup as Server, TollgateServer};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};
use crate::following_envoys::{
    FAILURES, REFUSED, SOON, admitted, all_have, asking, check_followed, envoy, following, policy,
    wait_for,
};

/// A server that stores its policies in `data`, or nowhere.
fn server(policy: &Value, data: Option<&TempDir>) -> TollgateServer {
    let setup = Server::new(policy).operated().variable("TOLLGATE_FOLLOW_TOKEN", FOLLOW_TOKEN);
    match data {
        Some(dir) => setup.set("data", dir.path().display()).start(),
        None => setup.start(),
    }
}

fn put(server: &TollgateServer, policy: &Value) {
    let answer = server.operate("PUT", "admin/policy", &policy.to_string(), &[("if-match", "*")]);
    assert!(answer.status < 300, "{}", answer.text());
}

#[test]
fn what_is_put_is_in_force_in_every_worker_and_counts_go_on() {
    check_followed(Kind::Server);
}

// Guards: a key that has two counts for a moment: four workers, each of which switches at a
// different time, while eight connections send requests for twenty keys.
#[test]
fn no_request_is_admitted_twice_while_workers_go_over() {
    const KEYS: usize = 20;
    let server = server(&policy(1, 100), None);
    let envoy = envoy(4, server.port, &policy(0, 1));
    wait_for(&envoy, 1);
    let counts: Vec<AtomicUsize> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let ask = |client: &mut Client, number: usize| {
        let passed = admitted(client, &format!("k{number}"), 1);
        counts[number].fetch_add(passed, Ordering::Relaxed);
    };
    let mut clients = envoy.clients(8);
    thread::scope(|scope| {
        for (first, client) in clients.iter_mut().enumerate() {
            let (is_over, ask) = (&is_over, &ask);
            scope.spawn(move || {
                let mut number = first * 3;
                while !is_over.load(Ordering::Relaxed) {
                    ask(client, number % KEYS);
                    number += 1;
                }
            });
        }
        let _ends = Over(&is_over);
        for (number, limit) in [(2, 150), (3, 120), (4, 300)] {
            put(&server, &policy(number, limit));
            wait_for(&envoy, number);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut client = envoy.client();
    (0..KEYS).for_each(|number| (0..400).for_each(|_| ask(&mut client, number)));
    // At most 150 under the first two, then the difference between 300 and 120.
    for (number, count) in counts.iter().enumerate() {
        let count = count.load(Ordering::Relaxed);
        assert!((300..=330).contains(&count), "key {number}: {count}");
    }
}

#[test]
fn a_policy_that_is_wrong_changes_nothing_and_is_said_once() {
    let server = server(&policy(1, 10), None);
    let envoy = envoy(2, server.port, &policy(0, 1));
    wait_for(&envoy, 1);
    let mut client = envoy.client();
    assert_eq!(admitted(&mut client, "k", 20), 10);
    // The server rejects it, so no filter gets it.
    let bad = json!({"version": 1, "rules": 3}).to_string();
    assert_eq!(server.operate("PUT", "admin/policy", &bad, &[("if-match", "*")]).status, 422);
    // The server accepts it, and a filter cannot: tenant entries have no store here.
    let mut tenants = policy(2, 50);
    tenants["tenant"] = json!({"header": "x-tenant"});
    put(&server, &tenants);
    let all = asking(2);
    wait_until("every worker has refused it", SOON, || (envoy.stat(REFUSED) >= all).then_some(()));
    assert!(all_have(envoy.ports[0], 1));
    assert_eq!(admitted(&mut client, "k", 20), 0, "nothing is counted anew");
    let said = || {
        let log = envoy.server.log();
        log.lines().filter(|line| line.contains("is rejected: tenant: needs a store")).count()
    };
    assert_eq!(said(), 1, "{}", envoy.server.log());
    put(&server, &policy(3, 50));
    wait_for(&envoy, 3);
    assert_eq!(admitted(&mut client, "k", 60), 40);
    assert_eq!(said(), 1);
    assert_eq!(envoy.stat(FAILURES), 0);
}

#[test]
fn a_server_that_is_away_changes_nothing_and_is_found_again() {
    let data = TempDir::new("data");
    let mut server = server(&policy(1, 10), Some(&data));
    server.server.kill();
    let envoy = envoy(2, server.port, &policy(0, 3));
    wait_until("it is asked", SOON, || (envoy.stat(FAILURES) > 0).then_some(()));
    assert!(all_have(envoy.ports[0], 0), "it begins with its own");
    let mut client = envoy.client();
    assert_eq!(admitted(&mut client, "k", 20), 3);
    server.crash(); // the policy is still there
    wait_for(&envoy, 1);
    assert_eq!(admitted(&mut client, "k", 20), 7);
    put(&server, &policy(2, 15));
    wait_for(&envoy, 2);
    assert_eq!(admitted(&mut client, "k", 20), 5);
    server.server.kill();
    let before = envoy.stat(FAILURES);
    wait_until("it is missed", SOON, || (envoy.stat(FAILURES) >= before + 6).then_some(()));
    assert!(all_have(envoy.ports[0], 2), "the last good one stays");
    server.crash();
    put(&server, &policy(3, 16));
    wait_for(&envoy, 3);
    assert_eq!(admitted(&mut client, "k", 20), 1);
    let log = envoy.server.log();
    let said = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(said("cannot fetch the policy"), 2, "once each time it went: {log}");
    assert_eq!(said("responds again"), 2, "{log}");
}

// Guards: a server that lost its policies, and resets every filter to the first one.
#[test]
fn a_server_that_was_set_back_is_not_followed() {
    let mut server = server(&policy(1, 10), None);
    let envoy = envoy(2, server.port, &policy(0, 3));
    put(&server, &policy(2, 20));
    wait_for(&envoy, 2);
    server.crash(); // nothing is stored: it has its file again, as version 1
    // The main thread may have requested nothing since the first policy: for it nothing is new.
    wait_until("every worker has seen it", SOON, || (envoy.stat(REFUSED) >= 2).then_some(()));
    assert!(all_have(envoy.ports[0], 2));
    let log = envoy.server.log();
    let line = "serves policy 1; policy 2 remains in force";
    assert_eq!(log.lines().filter(|said| said.contains(line)).count(), 1, "{log}");
    put(&server, &policy(4, 30)); // numbered 2 there
    put(&server, &policy(5, 40));
    wait_for(&envoy, 5);
}

// Guards: a new listener, or an instance that is created again, that begins with an earlier policy
// than the one in force: that one would be the newest again.
#[test]
fn a_listener_that_is_replaced_goes_on_with_what_is_in_force() {
    let mut server = server(&policy(1, 10), None);
    let port = process::free_port();
    let listener = |own: &Value| Listener { port, ..Listener::new("main", vec![following(own)]) };
    let mut setup = Setup::new(2, vec![listener(&policy(0, 3))]);
    (setup.dynamic, setup.drain_s, setup.origin) = (true, 3600, server.port);
    let mut envoy = setup.start();
    wait_for(&envoy, 1);
    put(&server, &policy(2, 20));
    wait_for(&envoy, 2);
    let mut kept = envoy.client();
    assert_eq!(admitted(&mut kept, "k", 30), 20);
    server.server.kill();
    assert!(envoy.replace_listeners(&[listener(&policy(9, 100))]));
    let before = envoy.stat(FAILURES);
    wait_until("the new ones ask", SOON, || (envoy.stat(FAILURES) >= before + 12).then_some(()));
    assert!(all_have(port, 2));
    assert_eq!(admitted(&mut envoy.client(), "k", 30), 0);
    assert_eq!(admitted(&mut kept, "k", 30), 0);
    server.crash();
    put(&server, &policy(3, 21));
    put(&server, &policy(4, 22));
    wait_for(&envoy, 4);
    assert_eq!(admitted(&mut envoy.client(), "k", 30), 2);
    // Drained listeners follow, too.
    wait_until("the old connection's worker has it", SOON, || {
        let said = kept.send(&Request::get("/").header("x-probe", "1"));
        let said = said.header("ratelimit-policy").expect("fields");
        said.contains("policy-4").then_some(())
    });
}

#[test]
fn two_listeners_follow_each_its_own_and_a_stranger_gets_nothing() {
    let server = server(&policy(1, 10), None);
    let other = |token: &str| {
        let from = json!({"cluster": "origin", "token": token, "every": "1s"});
        let mut filter =
            tollgate(&json!({"policy": policy(7, 4), "policy_from": from}), "vm", As::Struct);
        filter["typed_config"]["config"]["name"] = json!("other");
        filter
    };
    let listeners = vec![
        Listener::new("main", vec![following(&policy(0, 3))]),
        Listener::new("second", vec![other(FOLLOW_TOKEN)]),
        Listener::new("stranger", vec![other("a-token-of-nobody")]),
        Listener::new("still", vec![tollgate(&policy(8, 4), "vm", As::Text)]),
    ];
    let mut setup = Setup::new(2, listeners);
    setup.origin = server.port;
    let envoy = setup.start();
    put(&server, &policy(2, 12));
    for (port, number) in envoy.ports.iter().zip([2, 2, 7, 8]) {
        // The unauthorized listener has another listener's policy when that came first: they are
        // one plugin.
        if number == 7 {
            continue;
        }
        wait_until("each has its own", SOON, || all_have(*port, number).then_some(()));
    }
    wait_until("it is counted", SOON, || (envoy.stat(FAILURES) > 0).then_some(()));
    let log = envoy.server.log();
    assert!(log.contains("cannot fetch the policy: status 401"), "{log}");
    assert!(!log.contains("a-token-of-nobody") && !log.contains(FOLLOW_TOKEN), "{log}");
}

/// A policy of almost 1 MiB, with 900 rules for 20 paths each.
fn large(number: usize) -> Value {
    let rule = |i: usize| {
        let paths: Vec<_> = (0..20).map(|n| format!("/tenants/{i}/items-{n:025}/*")).collect();
        json!({"name": format!("r{i}-{number}"), "when": {"paths": paths},
            "key": [{"header": "x-tiny"}], "quotas": [{"limit": 1, "window": "1m"}]})
    };
    let mut policy = policy(number, 10);
    let rules = policy["rules"].as_array_mut().expect("rules");
    rules.extend((0..900).map(rule));
    assert!((800_000..1 << 20).contains(&policy.to_string().len()), "{}", policy.to_string().len());
    policy
}

/// Ends a measurement when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The number of requests, the 99th percentile and the maximum of their times in microseconds,
/// until `is_over`.
fn slowest(envoy: &Envoy, is_over: &AtomicBool) -> (usize, u128, u128) {
    let mut clients = envoy.clients(8);
    let probe = Request::get("/").header("x-probe", "1");
    let mut took = vec![];
    while !is_over.load(Ordering::Relaxed) {
        for client in &mut clients {
            let began = Instant::now();
            assert_eq!(client.send(&probe).status, 200);
            took.push(began.elapsed().as_micros());
        }
    }
    took.sort_unstable();
    (took.len(), took[took.len() * 99 / 100], took[took.len() - 1])
}

// Guards: requests that are lost or denied while a worker compiles 1 MiB, and an unbounded number
// of metric names. The delay is printed; docs/fleet.md has the figure.
#[test]
fn a_policy_of_1_mib_holds_workers_up_one_at_a_time() {
    let server = server(&policy(1, 10), None);
    let envoy = envoy(2, server.port, &policy(0, 1));
    wait_for(&envoy, 1);
    let measure = |act: &(dyn Fn() + Sync)| {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let measured = scope.spawn(|| slowest(&envoy, &is_over));
            let _ends = Over(&is_over); // also when `act` fails
            act();
            is_over.store(true, Ordering::Relaxed);
            measured.join().expect("no request is lost")
        })
    };
    let larges = [2, 3].map(large);
    let quiet = measure(&|| thread::sleep(Duration::from_secs(5)));
    println!("without a change: {} requests, p99 {} us, longest {} us", quiet.0, quiet.1, quiet.2);
    for (number, large) in [2, 3].into_iter().zip(&larges) {
        let busy = measure(&|| {
            put(&server, large);
            wait_for(&envoy, number);
        });
        println!("policy {number}: {} requests, p99 {} us, longest {} us", busy.0, busy.1, busy.2);
    }
    let stats = Client::connect(envoy.admin).send(&Request::get("/stats")).text();
    let names = stats.lines().filter(|line| line.starts_with("wasmcustom.tollgate.")).count();
    println!("{names} names of metrics");
    assert!((9_000..=10_000).contains(&names), "{names}");
    assert!(stats.contains("plugin=(other).rule=(other).result=allowed"));
    assert_eq!([envoy.stat(FAILURES), envoy.stat(REFUSED)], [0, 0]);
}

// Guards: a version that is still shown though no listener follows the server any more.
#[test]
fn a_plugin_that_stops_following_shows_no_version() {
    const VERSION: &str = "wasmcustom.tollgate.policy_version.plugin=tollgate";
    let server = server(&policy(1, 10), None);
    put(&server, &policy(2, 10));
    let mut setup = Setup::new(2, vec![Listener::new("main", vec![following(&policy(0, 3))])]);
    (setup.origin, setup.dynamic) = (server.port, true);
    let mut envoy = setup.start();
    wait_for(&envoy, 2);
    assert!(envoy.stat(VERSION) > 0);
    let mut listener = Listener::new("main", vec![tollgate(&policy(8, 4), "vm", As::Text)]);
    listener.port = envoy.ports[0];
    assert!(envoy.replace_listeners(&[listener]));
    wait_for(&envoy, 8);
    wait_until("no version is shown", SOON, || (envoy.stat(VERSION) == 0).then_some(()));
}
