//! Real Envoys that share one budget: each with the filter and several workers, and a real
//! `tollgate-server` as the authority.

#[path = "envoy_server.rs"]
#[allow(dead_code, reason = "the tests of Envoy use the rest")]
mod envoy_server;
mod fleet_full;
mod fleet_queue;
mod fleet_stopped;
#[allow(dead_code, reason = "the tests of the Worker use the rest")]
mod leasing_envoys;

use std::thread;

use envoy_server::{As, Envoy, Listener, Setup as EnvoySetup, tollgate};
use leasing_envoys::{SOON, check_exact, check_leased, each, envoy, fleet_stat, get, policy};
use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate_e2e::authority::Kind;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{Setup, TollgateServer};

fn server(policy: &Value) -> TollgateServer {
    Setup::new(policy).leasing().start()
}

// Guards: two proxies that each allow the whole limit.
#[test]
fn without_leases_two_proxies_admit_exactly_what_one_limiter_would() {
    check_exact(Kind::Server);
}

// Guards: units of leases that are spent in addition to the units that the authority allows
// directly, and units that are never spent.
#[test]
fn with_leases_two_proxies_admit_the_limit_and_no_more() {
    check_leased(Kind::Server);
}

// Guards: a gate that opens when the authority is killed, and one that stays closed when it is
// back.
#[test]
fn without_the_authority_each_rule_says_what_becomes_of_requests() {
    let rule = |name: &str, on_failure: Value| {
        json!({
            "name": name, "key": [{"header": format!("x-{name}")}], "scope": "fleet",
            "on_failure": on_failure, "quotas": [{"limit": 12, "window": "366d"}],
        })
    };
    let rules = [
        rule("allow", json!("allow")),
        rule("deny", json!("deny")),
        rule("local", json!({"share": 4})),
    ];
    let policy = policy(&json!(rules));
    let mut server = server(&policy);
    let envoy = envoy(&policy, server.port, &json!({"timeout": "500ms"}));
    let mut client = envoy.client();
    let mut ask =
        |name: &str| client.send(&Request::get("/").header(format!("x-{name}"), "a")).status;
    for name in ["allow", "deny", "local"] {
        assert_eq!(ask(name), 200, "{name}");
    }
    server.server.kill();
    for _ in 0..20 {
        assert_eq!(ask("allow"), 200);
        assert_eq!(ask("deny"), 503);
    }
    // A quarter of twelve, counted by this node alone.
    let local: Vec<u16> = (0..6).map(|_| ask("local")).collect();
    assert_eq!(local, [200, 200, 200, 429, 429, 429]);
    let failed = fleet_stat(&envoy, "failed");
    assert!((2..40).contains(&failed), "{failed}: it is not asked each time");
    server.crash();
    wait_until("it is asked again", SOON, || (ask("deny") == 200).then_some(()));
    wait_until("one count again", SOON, || (ask("local") == 200).then_some(()));
    assert_eq!(fleet_stat(&envoy, "paused"), 0);
}

// Guards: a request whose client left while the authority was silent, and that is held for ever or
// charged twice.
#[test]
fn a_client_that_leaves_while_the_authority_is_silent_is_let_go() {
    let policy = policy(&json!([
        {"name": "own", "key": [], "quotas": [{"limit": 10, "window": "366d"}]},
        each(100, "366d", &json!({"lease": 0})),
    ]));
    let server = server(&policy);
    let envoy = envoy(&policy, server.port, &json!({"timeout": "10s"}));
    assert_eq!(envoy.client().send(&get("a")).status, 200);
    server.signal(Signal::STOP);
    for _ in 0..4 {
        let mut client = envoy.client();
        client.start(&get("a")).expect("it is sent");
        wait_until("it waits", SOON, || (fleet_stat(&envoy, "paused") == 1).then_some(()));
        drop(client);
        wait_until("it is gone", SOON, || (fleet_stat(&envoy, "paused") == 0).then_some(()));
    }
    server.signal(Signal::CONT);
    assert_eq!(envoy.stat("wasmcustom.tollgate.waiting_left"), 4);
    // This node has its units back: nine of ten are left.
    let mut client = envoy.client();
    let statuses: Vec<u16> = (0..10).map(|_| client.send(&get("b")).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 9, "{statuses:?}");
}

// Guards: a sprayer of fresh keys, each of which needs a request to the authority, at a rule that
// allows requests when the authority is unreachable.
#[test]
fn ten_thousand_fresh_keys_do_not_open_the_gate() {
    const KEYS: usize = 10_000;
    const CLIENTS: usize = 50;
    let mut policy = policy(&json!([each(1, "366d", &json!({"on_failure": "allow"}))]));
    policy["waiting"] = json!({"total": 10, "per_key": 5});
    let server = server(&policy);
    let envoy = envoy(&policy, server.port, &json!({"timeout": "10s"}));
    let admitted: u64 = thread::scope(|scope| {
        let client = |number: usize| {
            let mut pair = envoy.clients(2);
            let mut admitted = 0;
            for key in (number..KEYS).step_by(CLIENTS) {
                let request = get(&format!("key-{key}"));
                for client in &mut pair {
                    client.start(&request).expect("Envoy takes it");
                }
                let answers = pair.iter_mut().map(|it| it.finish(false).expect("an answer").status);
                let answers: Vec<u16> = answers.collect();
                let passed = answers.iter().filter(|status| **status == 200).count();
                assert!(passed <= 1, "{key}: {answers:?}");
                assert!(answers.iter().all(|it| [200, 429, 503].contains(it)), "{answers:?}");
                admitted += passed as u64;
            }
            admitted
        };
        let running: Vec<_> = (0..CLIENTS).map(|i| scope.spawn(move || client(i))).collect();
        running.into_iter().map(|it| it.join().expect("a client fails")).sum()
    });
    let overloaded = fleet_stat(&envoy, "overloaded");
    println!("{admitted} of {KEYS} keys admitted once, {overloaded} refused as too many");
    assert!(admitted > 0 && overloaded > 0);
    assert_eq!(fleet_stat(&envoy, "failed"), 0);
    assert_eq!(fleet_stat(&envoy, "paused"), 0);
}

/// The plugin configuration in `docs/fleet.md`.
fn shown() -> Value {
    let page = include_str!("../../docs/fleet.md");
    let (_, rest) = page.split_once("```json\n").expect("an example");
    let (block, _) = rest.split_once("```").expect("its end");
    serde_json::from_str(block).expect("the example is JSON")
}

// Guards: an example that does not work.
#[test]
fn what_the_documents_show_works() {
    let mut configuration = shown();
    let secret = |name: &str| configuration["fleet"][name].as_str().expect("a text").to_owned();
    let (token, secret) = (secret("token"), secret("secret"));
    let server = Setup::new(&configuration["policy"]);
    let server =
        server.variable("TOLLGATE_FLEET_SECRET", secret).variable("TOLLGATE_CHECK_TOKEN", token);
    let server = server.start();
    configuration["fleet"]["cluster"] = json!("origin");
    configuration["fleet"]["timeout"] = json!("5s");
    let start = |configuration: &Value| {
        let listener = Listener::new("main", vec![tollgate(configuration, "vm", As::Struct)]);
        let mut setup = EnvoySetup::new(1, vec![listener]);
        setup.origin = server.port;
        setup.start()
    };
    let envoys = [start(&configuration), start(&configuration)];
    let mut clients: Vec<Client> = envoys.iter().map(Envoy::client).collect();
    let statuses: Vec<u16> = (0..30).map(|i| clients[i % 2].send(&get("a")).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 20, "{statuses:?}");
    // With another token the authority rejects it: this node counts half on its own.
    configuration["fleet"]["token"] = json!("another");
    let stranger = start(&configuration);
    let mut client = stranger.client();
    let statuses: Vec<u16> = (0..15).map(|_| client.send(&get("a")).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10, "{statuses:?}");
    assert!(fleet_stat(&stranger, "failed") > 0);
}
