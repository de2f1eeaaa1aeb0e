//! Exactness under concurrency: N workers together allow what one would allow.

use std::collections::BTreeMap;
use std::thread;

use serde_json::json;
use tollgate_e2e::http::{Client, Request};

use crate::envoy_server::{Envoy, Setup};

const KEYS: usize = 5_000;
const CONNECTIONS: usize = 8;

/// The same fresh key from eight connections at once, 5,000 times: the moment at which a limiter
/// that inserts without comparing loses updates (159 of 5,000 keys with four workers).
fn race(envoy: &Envoy, clients: &mut [Client], header: &str) -> BTreeMap<usize, usize> {
    let mut admitted_per_key = BTreeMap::new();
    for key in 0..KEYS {
        let request = Request::get("/").header(header, format!("key-{key}"));
        for client in &mut *clients {
            client.start(&request).expect("Envoy takes the request");
        }
        let answers = clients.iter_mut().map(|c| c.finish(false).expect("Envoy answers").status);
        let answers: Vec<u16> = answers.collect();
        assert!(answers.iter().all(|status| [200, 429].contains(status)), "{answers:?}");
        let admitted = answers.iter().filter(|status| **status == 200).count();
        *admitted_per_key.entry(admitted).or_default() += 1;
    }
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0, "no try was exhausted");
    admitted_per_key
}

#[test]
fn fresh_keys_are_exact_with_four_workers() {
    let rule = |name: &str, limit: u32| {
        json!({
            "name": name,
            "key": [{"header": format!("x-{name}")}],
            "on_missing": "skip",
            "quotas": [{"name": name, "limit": limit, "window": "1d"}],
            "capacity": 262_144,
        })
    };
    let policy = json!({"version": 1, "rules": [rule("one", 1), rule("five", 5)]});
    let envoy = Setup::policy(4, &policy).start();
    let mut clients = envoy.clients(CONNECTIONS);
    assert_eq!(race(&envoy, &mut clients, "x-one"), BTreeMap::from([(1, KEYS)]));
    assert_eq!(race(&envoy, &mut clients, "x-five"), BTreeMap::from([(5, KEYS)]));
}

/// One key in every request: 20,000 requests, 1,000 allowed, not one more or less.
#[test]
fn a_hot_key_is_exact_with_four_workers() {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 20_000;
    let policy = json!({"version": 1, "rules": [{
        "name": "hot", "key": [], "quotas": [{"name": "hot", "limit": 1000, "window": "1d"}],
    }]});
    let envoy = Setup::policy(4, &policy).start();
    let admitted: usize = thread::scope(|scope| {
        let one_client = || {
            let mut client = envoy.client();
            let answers = (0..REQUESTS / CLIENTS).map(|_| client.send(&Request::get("/")).status);
            answers.filter(|status| *status == 200).count()
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one_client)).collect();
        clients.into_iter().map(|client| client.join().expect("a client fails")).sum()
    });
    assert_eq!(admitted, 1_000);
    assert_eq!(envoy.decisions("hot", "allowed"), 1_000);
    assert_eq!(envoy.decisions("hot", "denied"), 19_000);
}

/// Many rules by one key: its value has few of their records, and workers add others at the same
/// time. 960 requests for each of 20 rules of 100, of which each allows 50.
#[test]
fn rules_of_one_key_are_exact_with_four_workers() {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 19_200;
    const USED: usize = 20;
    let rule = |of: usize| {
        json!({
            "name": format!("r{of}"),
            "when": {"paths": [format!("/{of}")]},
            "key": [{"header": "x-key"}],
            "quotas": [{"limit": 50, "window": "1d"}],
        })
    };
    let policy = json!({"version": 1, "rules": (0..100).map(rule).collect::<Vec<_>>()});
    let envoy = Setup::policy(4, &policy).start();
    thread::scope(|scope| {
        for started in 0..CLIENTS {
            let envoy = &envoy;
            scope.spawn(move || {
                let mut client = envoy.client();
                for sent in 0..REQUESTS / CLIENTS {
                    let path = format!("/{}", (started + sent) % USED * 5);
                    client.send(&Request::get(&path).header("x-key", "a"));
                }
            });
        }
    });
    for used in 0..USED {
        let rule = format!("r{}", used * 5);
        assert_eq!(envoy.decisions(&rule, "allowed"), 50, "{rule}");
        assert_eq!(envoy.decisions(&rule, "denied"), 910, "{rule}");
    }
}
