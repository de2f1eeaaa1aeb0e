//! A real Envoy that takes its policy from an authority, a real server or a real Worker.
//!
//! No test here asserts how long a change takes; they only wait until it is followed.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::authority::{Authority, FOLLOW_TOKEN, Kind};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;

use crate::envoy_server::{As, Envoy, Listener, Setup, is_dynamic_module, tollgate};

pub const SOON: Duration = Duration::from_secs(60);
pub const FAILURES: &str = "wasmcustom.tollgate.policy_fetch_failures";
pub const REFUSED: &str = "wasmcustom.tollgate.policy_refused";

fn log(limit: usize) -> Value {
    json!({"name": "day", "algorithm": "sliding-log", "limit": limit, "window": "1d"})
}

/// A policy whose fields show its number for a key that only the probe uses; only the server has
/// its keys for tokens.
pub fn policy(number: usize, limit: usize) -> Value {
    let name = format!("policy-{number}");
    json!({
        "version": 1,
        "jwt": {"metadata": "payload", "keys": [{"kty": "oct", "alg": "HS256", "kid": "k", "k": "YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcywgbG9uZw"}]},
        "rules": [
            {"name": "api", "key": [{"header": "x-key"}], "on_missing": "skip", "quotas": [log(limit)]},
            {"name": name, "key": [{"header": "x-probe"}], "on_missing": "skip",
                "quotas": [{"limit": 1_000_000, "window": "1s"}]},
        ],
    })
}

/// The filter's setting for the source of its policy.
pub fn following_from() -> Value {
    json!({"cluster": "origin", "token": FOLLOW_TOKEN, "every": "1s"})
}

/// A filter that starts with `policy`.
pub fn following(policy: &Value) -> Value {
    let configuration = json!({"policy": policy, "policy_from": following_from()});
    tollgate(&configuration, "vm", As::Text)
}

pub fn envoy(workers: u32, port: u16, policy: &Value) -> Envoy {
    let listener = Listener::new("main", vec![following(policy)]);
    let mut setup = Setup::new(workers, vec![listener]);
    setup.origin = port;
    setup.start()
}

/// How many threads of an Envoy with this many workers ask the server: all of them with the wasm
/// module, and the main thread alone with the dynamic module.
pub fn asking(workers: u64) -> u64 {
    if is_dynamic_module() { 1 } else { workers + 1 }
}

/// True when every worker of this listener decides by the policy of this number: this many
/// connections are spread over all of them.
pub fn all_have(port: u16, number: usize) -> bool {
    let (probe, expected) =
        (Request::get("/").header("x-probe", "1"), format!("\"policy-{number}\""));
    let mut clients: Vec<_> = (0..16).map(|_| Client::connect(port)).collect();
    clients.iter_mut().all(|client| {
        let said = client.send(&probe).header("ratelimit-policy");
        said.is_some_and(|said| said.contains(&expected))
    })
}

pub fn wait_for(envoy: &Envoy, number: usize) {
    for port in &envoy.ports {
        wait_until(&format!("policy {number} is in force"), SOON, || {
            all_have(*port, number).then_some(())
        });
    }
}

/// How many of `tries` requests of a key are allowed.
pub fn admitted(client: &mut Client, key: &str, tries: usize) -> usize {
    let request = Request::get("/").header("x-key", key);
    (0..tries).filter(|_| client.send(&request).status == 200).count()
}

pub fn each(envoy: &Envoy, expected: usize, what: &str) {
    let mut clients = envoy.clients(8);
    for number in 0..24 {
        let got = admitted(&mut clients[number % 8], &format!("client-{number}"), expected + 7);
        assert_eq!(got, expected, "{number}: {what}");
    }
}

fn put(authority: &Authority, policy: &Value) {
    let policy = policy.to_string();
    let answer = authority.operate("PUT", "admin/policy", &policy, &[("if-match", "*")]);
    assert!(answer.status < 300, "{}", answer.text());
}

/// A policy put at the authority is in force in every worker, and counts are kept.
pub fn check_followed(kind: Kind) {
    let authority = kind.start(policy(1, 10));
    let envoy = envoy(4, authority.port(), &policy(0, 1));
    wait_for(&envoy, 1);
    each(&envoy, 10, "everything");
    put(&authority, &policy(2, 30));
    wait_for(&envoy, 2);
    each(&envoy, 20, "raised: the difference");
    put(&authority, &policy(3, 10));
    wait_for(&envoy, 3);
    each(&envoy, 0, "lowered: nothing");
    let back =
        authority.operate("POST", "admin/policy/rollback", "{\"to\": 2}", &[("if-match", "*")]);
    assert_eq!(back.status, 200, "{}", back.text());
    wait_for(&envoy, 2);
    each(&envoy, 20, "rolled back: the difference to what the lower limit could count");
    assert_eq!(envoy.stat("wasmcustom.tollgate.policy_version.plugin=tollgate"), 4);
    assert_eq!([envoy.stat(FAILURES), envoy.stat(REFUSED)], [0, 0]);
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
}
