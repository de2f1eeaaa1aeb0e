//! Floods of keys through a real Envoy, and tables that grow meanwhile: a client that has used its
//! whole limit is allowed nothing.
//!
//! Envoy handles about ten thousand requests per second, so the same with millions of keys runs
//! natively: `crates/tollgate-filter/tests/eviction.rs`.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// Connections of one sprayer, each with one request in flight: Envoy ends a connection that
/// pipelines faster than its responses are read.
const CONNECTIONS: usize = 16;
/// The number of clients that have used their whole limit.
const SPENT: usize = 10;

fn policy(capacity: u32, limit: u32, algorithm: &str) -> Value {
    json!({"version": 1, "response": {"on_allow": false}, "rules": [{
        "name": "r",
        "key": [{"header": "x-key"}],
        "capacity": capacity,
        "quotas": [{"name": "q", "limit": limit, "window": "1d", "algorithm": algorithm}],
    }]})
}

fn of(key: &str) -> Request {
    Request::get("/").header("x-key", key)
}

/// How many of `count` requests of `key` pass.
fn passed(client: &mut Client, key: &str, count: usize) -> usize {
    let request = of(key);
    (0..count).filter(|_| client.send(&request).status == 200).count()
}

/// One request of each key.
fn spray(clients: &mut [Client], keys: Range<usize>) {
    for first in keys.clone().step_by(CONNECTIONS) {
        let batch = first..(first + CONNECTIONS).min(keys.end);
        for (key, client) in batch.clone().zip(&mut *clients) {
            client.start(&of(&format!("nobody-sent-this-{key}"))).expect("taken");
        }
        for client in clients.iter_mut().take(batch.len()) {
            assert_eq!(client.finish(false).expect("answered").status, 200);
        }
    }
}

/// Sprays `keys` fresh keys on two threads while `SPENT` clients that have used their whole limit,
/// and one that has used a little, continue to send requests.
fn flood(keys: usize, capacity: u32, limit: u32, algorithm: &str) {
    let envoy = Setup::policy(2, &policy(capacity, limit, algorithm)).start();
    let most = usize::try_from(limit).expect("small");
    let mut client = envoy.client();
    let spent: Vec<String> = (0..SPENT).map(|number| format!("spent-{number}")).collect();
    for key in &spent {
        assert_eq!(passed(&mut client, key, most + 2), most);
    }
    assert_eq!(passed(&mut client, "heavy", 3), 3);
    let is_over = AtomicBool::new(false);
    let (tries, let_in, heavy) = thread::scope(|scope| {
        let trying = scope.spawn(|| {
            let (mut tries, mut let_in, mut heavy) = (0_usize, 0, 3);
            while !is_over.load(Ordering::Relaxed) || tries == 0 {
                let_in += spent.iter().map(|key| passed(&mut client, key, 1)).sum::<usize>();
                heavy += passed(&mut client, "heavy", 1);
                tries += SPENT;
            }
            (tries, let_in, heavy)
        });
        let halves = [0..keys / 2, keys / 2..keys].map(|half| {
            let mut clients = envoy.clients(CONNECTIONS);
            scope.spawn(move || spray(&mut clients, half))
        });
        let done = halves.map(thread::ScopedJoinHandle::join);
        is_over.store(true, Ordering::Relaxed);
        assert!(done.iter().all(Result::is_ok), "every key that is new passes");
        trying.join().expect("the clients that try")
    });
    assert_eq!(let_in, 0, "of {tries} tries of who had used everything");
    assert!(heavy <= most, "{heavy} of {most} passed");
    let stat = |name: &str| envoy.stat(&format!("wasmcustom.tollgate.{name}"));
    assert_eq!((stat("failures"), stat("evictions_half_used")), (0, 0));
    println!(
        "{keys} keys, capacity {capacity}: 0 of {tries} tries passed, {} evictions",
        stat("evictions")
    );
    // Twice as many places as keys, and up to twice that.
    let places = (usize::try_from(capacity).expect("small") * 2).next_power_of_two();
    let full = u64::try_from(keys.saturating_sub(places)).expect("small");
    assert!(stat("evictions") >= full, "the table overflowed {} times", stat("evictions"));
}

#[test]
fn a_flood_through_a_small_table_lets_nobody_in_again() {
    flood(50_000, 1000, 5, "sliding-window");
}

#[test]
fn a_flood_under_a_larger_limit_lets_nobody_in_again() {
    flood(40_000, 1000, 60, "fixed-window");
}

// More than the 131,072 places of a table of the default size.
#[test]
fn a_flood_through_a_table_of_the_default_size_lets_nobody_in_again() {
    flood(200_000, 65_536, 5, "gcra");
}

/// The policy on a port. A rule that every request passes has this name, so that clients see which
/// policy is in force.
fn listener(port: u16, policy: &Value, name: &str) -> Listener {
    let mut policy = policy.clone();
    policy["response"] = json!({});
    let told = json!({"name": "told", "key": [], "quotas": [{"name": name, "limit": 999_999, "window": "1m"}]});
    policy["rules"].as_array_mut().expect("rules").push(told);
    Listener { port, ..Listener::new("main", vec![tollgate(&policy, "vm", As::Text)]) }
}

/// Replaces the policy and waits until the new one decides.
fn replace(envoy: &mut Envoy, port: u16, policy: &Value, name: &str) {
    assert!(envoy.replace_listeners(&[listener(port, policy, name)]));
    process::wait_until("the policy is in force", process::READY_WITHIN, || {
        let answer = envoy.client().send(&of(name));
        answer.header("ratelimit-policy")?.contains(&format!("\"{name}\"")).then_some(())
    });
}

fn all_are_refused(envoy: &Envoy, keys: &[String]) {
    for mut client in envoy.clients(4) {
        for key in keys {
            assert_eq!(client.send(&of(key)).status, 429, "{key}");
        }
    }
}

// The operator sets another capacity while clients are counted; clients that have used their whole
// limit stay denied.
#[test]
fn another_capacity_forgets_nobody() {
    const KEYS: usize = 30;
    let port = process::free_port();
    let sized = |capacity: u32| policy(capacity, 5, "gcra");
    let mut setup = Setup::new(2, vec![listener(port, &sized(64), "first")]);
    setup.dynamic = true;
    let mut envoy = setup.start();
    let keys: Vec<String> = (0..KEYS).map(|number| format!("spent-{number}")).collect();
    let mut old = envoy.client();
    for key in &keys {
        assert_eq!(passed(&mut old, key, 7), 5);
    }
    for (capacity, name) in [(100_000, "second"), (1_000_000, "third")] {
        replace(&mut envoy, port, &sized(capacity), name);
        all_are_refused(&envoy, &keys);
        // A fresh key is counted once, on any workers.
        let key = format!("new-{capacity}");
        let admitted: usize = envoy.clients(8).iter_mut().map(|c| passed(c, &key, 2)).sum();
        assert_eq!(admitted, 5);
        assert!(!envoy.server.log().contains("keeps the room"), "growing loses nothing");
    }
    // A second rule with the same key may also require more.
    let mut two = sized(64);
    let mut other = two["rules"][0].clone();
    (other["name"], other["capacity"]) = (json!("other"), json!(4_000_000));
    other["quotas"][0] = json!({"name": "other", "limit": 500, "window": "1d"});
    two["rules"].as_array_mut().expect("rules").push(other);
    replace(&mut envoy, port, &two, "fourth");
    all_are_refused(&envoy, &keys);
    // Back to the first: the room stays, and the log reports it.
    replace(&mut envoy, port, &sized(64), "fifth");
    all_are_refused(&envoy, &keys);
    let line = "the table of rule \"r\" keeps the room for 4194304 keys that it once had";
    assert!(envoy.server.log().contains(line), "{}", envoy.server.log());
    assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
    assert_eq!(envoy.stat("wasmcustom.tollgate.evictions"), 0);
}

// Clients race for fresh keys while the table grows: every key passes exactly five times.
#[test]
fn fresh_keys_are_exact_while_the_table_grows() {
    const KEYS: usize = 600;
    let port = process::free_port();
    let sized = |capacity: u32| listener(port, &policy(capacity, 5, "gcra"), "any");
    // With half the room, a bucket would overflow once in a thousand runs.
    let mut setup = Setup::new(2, vec![sized(2000)]);
    setup.dynamic = true;
    let mut envoy = setup.start();
    let mut admitted = vec![0; KEYS];
    let mut ask_all = |envoy: &Envoy, tries: usize| {
        let mut clients = envoy.clients(8);
        for (key, admitted) in admitted.iter_mut().enumerate() {
            let request = of(&format!("racer-{key}"));
            for client in clients.iter_mut().take(tries) {
                client.start(&request).expect("taken");
            }
            for client in clients.iter_mut().take(tries) {
                let status = client.finish(false).expect("answered").status;
                assert!([200, 429].contains(&status), "{status}");
                *admitted += usize::from(status == 200);
            }
        }
    };
    ask_all(&envoy, 2);
    for capacity in [8000, 64_000, 1_000_000] {
        // While the new listener is being created, and afterwards: workers switch to it one by one.
        assert!(envoy.replace_listeners(&[sized(capacity)]));
        ask_all(&envoy, 2);
    }
    let stats =
        ["failures", "evictions"].map(|it| envoy.stat(&format!("wasmcustom.tollgate.{it}")));
    let wrong: Vec<_> = admitted.iter().enumerate().filter(|(_, count)| **count != 5).collect();
    assert_eq!(
        (wrong, stats),
        (vec![], [0, 0]),
        "keys with how often they passed; failures, evictions"
    );
}
