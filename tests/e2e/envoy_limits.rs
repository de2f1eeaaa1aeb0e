//! The bounds: the memory of a table, and the number of waiting requests.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_e2e::http::{Client, Request};

use crate::envoy_server::Setup;

// A client sends a new key with every request. The host never frees a key, so without a fixed table
// this would use up its memory. The sprayer must not evict limited clients.
#[test]
fn a_table_overflows_without_growing() {
    const KEYS: usize = 40_000;
    let policy = json!({"version": 1, "rules": [{
        "name": "small",
        "key": [{"header": "x-key"}],
        "quotas": [{"name": "small", "limit": 5, "window": "1d"}],
        "capacity": 256,
    }]});
    let envoy = Setup::policy(2, &policy).start();
    let mut victim = envoy.client();
    let heavy = Request::get("/").header("x-key", "heavy");
    assert_eq!([(); 6].map(|()| victim.send(&heavy).status), [200, 200, 200, 200, 200, 429]);

    let spray = |clients: &mut [Client], range: std::ops::Range<usize>| {
        for first in range.step_by(clients.len()) {
            for (i, client) in clients.iter_mut().enumerate() {
                let key = format!("a-key-nobody-sent-before-{}", first + i);
                client.start(&Request::get("/").header("x-key", key)).expect("taken");
            }
            for client in &mut *clients {
                assert_eq!(client.finish(false).expect("answered").status, 200);
            }
        }
    };
    let mut clients = envoy.clients(16);
    spray(&mut clients, 0..KEYS / 4);
    let before = envoy.server.resident_bytes();
    spray(&mut clients, KEYS / 4..KEYS);
    let grown = envoy.server.resident_bytes().saturating_sub(before);
    // One key for each would be 30,000 x about 130 bytes = 3.9 MB, and more each time the host's
    // map grows.
    assert!(grown < 2_000_000, "{grown} bytes more for 30,000 keys");

    let evictions = envoy.stat("wasmcustom.tollgate.evictions");
    assert!(evictions > KEYS as u64 - 512, "{evictions}");
    assert_eq!(envoy.stat("wasmcustom.tollgate.evictions_half_used"), 0);
    assert_eq!(victim.send(&heavy).status, 429, "who owes most is forgotten last");
}

fn queue(limit: u32, burst: u32) -> serde_json::Value {
    json!({"version": 1, "rules": [{
        "name": "queue",
        "key": [],
        "quotas": [{
            "name": "queue", "limit": limit, "window": "1s", "burst": burst, "algorithm": "leaky-queue",
        }],
    }]})
}

/// The time of the response to each of `count` requests that arrive at once, in order, and its
/// status.
fn arrive_at_once(envoy: &crate::envoy_server::Envoy, count: usize) -> Vec<(Duration, u16)> {
    let mut clients = envoy.clients(count);
    let started = Instant::now();
    for client in &mut clients {
        client.start(&Request::get("/")).expect("taken");
    }
    let wait = move |mut client: Client| {
        let status = client.finish(false).expect("answered").status;
        (started.elapsed(), status)
    };
    let waiting = clients.into_iter().map(|client| thread::spawn(move || wait(client)));
    let waiting: Vec<_> = waiting.collect();
    let mut answers: Vec<_> = waiting.into_iter().map(|t| t.join().expect("a client")).collect();
    answers.sort();
    answers
}

// Shaping: forty requests at once leave 50 ms apart, across two workers with a queue each.
#[test]
fn a_queue_lets_requests_go_one_by_one() {
    const COUNT: u32 = 40;
    let envoy = Setup::policy(2, &queue(20, COUNT)).start();
    let answers = arrive_at_once(&envoy, 40);
    assert!(answers.iter().all(|(_, status)| *status == 200), "{answers:?}");
    for (place, (at, _)) in (0..).zip(&answers) {
        let due = Duration::from_millis(50) * place;
        // The clock of the queue starts with the first request, a little after the test's.
        assert!(*at >= due, "place {place} left early, at {at:?}");
    }
    // A request that arrives when the queue has emptied, because the machine was suspended, does
    // not wait.
    let (allowed, delayed) =
        (envoy.decisions("queue", "allowed"), envoy.decisions("queue", "delayed"));
    assert!(allowed + delayed == 40 && delayed >= 10, "{allowed} {delayed}");
}

// A full queue denies at once; and a client that leaves while it waits affects no other.
#[test]
fn a_queue_is_bounded_and_survives_a_client_that_leaves() {
    let envoy = Setup::policy(1, &queue(1, 8)).start();
    let mut leaver = envoy.client();
    let mut first = envoy.client();
    assert_eq!(first.send(&Request::get("/")).status, 200);
    leaver.start(&Request::get("/")).expect("taken");
    thread::sleep(Duration::from_millis(100));
    drop(leaver);
    let answers = arrive_at_once(&envoy, 12);
    let passed = answers.iter().filter(|(_, status)| *status == 200).count();
    assert_eq!(answers[0].1, 429, "a refusal does not wait: {answers:?}");
    assert!((6..12).contains(&passed), "{answers:?}");
    thread::sleep(Duration::from_millis(900));
    assert_eq!(first.send(&Request::get("/")).status, 200);
}
